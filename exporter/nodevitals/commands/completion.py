"""`nodevitals completion`: print the completion for a shell, or the manual page.

`make generate` writes the files, and the package contains them: nothing is computed here.
"""

from __future__ import annotations

import argparse

from nodevitals.commands.shipped import shipped
from nodevitals.commands.terminal import CommandError, Subparsers

FILES = {"bash": "nodevitals.bash", "zsh": "_nodevitals"}
PLACES = {**{shell: f"completions/{file}" for shell, file in FILES.items()}, "man": "nodevitals.1"}
EXAMPLES = """\
examples:
  source <(nodevitals completion bash)
  nodevitals completion bash > /etc/bash_completion.d/nodevitals
  nodevitals completion zsh > /usr/local/share/zsh/site-functions/_nodevitals
  nodevitals completion man > /usr/local/share/man/man1/nodevitals.1

The Debian and RPM packages install all three; pip and pipx put them below their own folder, where
neither man nor a shell looks (pipx 1.3 and later link the manual page)."""


def add_to(commands: Subparsers) -> None:
    """Add `completion` to the command line."""
    parser = commands.add_parser(
        "completion", help="print the completion of a shell, or the manual page", epilog=EXAMPLES
    )
    parser.add_argument("shell", choices=tuple(PLACES), help="the shell, or man: %(choices)s")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the file."""
    file = shipped("packaging") / PLACES[options.shell]
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}: install nodevitals again") from None
    print(text, end="")
    return 0
