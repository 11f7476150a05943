"""The mail at the top of the READMEs is what the demo sends; only times differ."""

from __future__ import annotations

import re
from pathlib import Path

from demo.story import BLOCK, READMES, run_story

from testbed.node import ROOT


def main(folder: Path) -> None:
    """Run the fault, and print its mails. Raises AssertionError where a README has another one."""
    for language, text in run_story(folder).items():
        print(text)
        shown = BLOCK.search((ROOT / READMES[language]).read_text())
        assert shown is not None
        [block] = shown.groups()[1:2]
        assert _plain(block) == _plain(text), f"{READMES[language]}: run `python -m demo.story`"


def _plain(text: str) -> str:
    return re.sub(r"[0-9]+", "0", text)
