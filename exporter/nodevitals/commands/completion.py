"""`nodevitals completion SHELL`: print the completion of commands, options, probes and files.

`make generate` writes the files, and the package contains them: nothing is computed here.
"""

from __future__ import annotations

import argparse

from nodevitals.commands.shipped import shipped
from nodevitals.commands.terminal import CommandError, Subparsers

FILES = {"bash": "nodevitals.bash", "zsh": "_nodevitals"}
EXAMPLES = """\
examples:
  source <(nodevitals completion bash)
  nodevitals completion bash > /etc/bash_completion.d/nodevitals
  nodevitals completion zsh > /usr/local/share/zsh/site-functions/_nodevitals"""


def add_to(commands: Subparsers) -> None:
    """Add `completion` to the command line."""
    parser = commands.add_parser(
        "completion", help="print the completion script of a shell", epilog=EXAMPLES
    )
    parser.add_argument("shell", choices=tuple(FILES), help="the shell: %(choices)s")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the file."""
    file = shipped("packaging") / "completions" / FILES[options.shell]
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}: install nodevitals again") from None
    print(text, end="")
    return 0
