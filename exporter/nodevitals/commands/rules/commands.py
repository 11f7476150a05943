"""`nodevitals rules check | render | import | backtest`."""

from __future__ import annotations

from nodevitals.commands.rules import check, import_, render
from nodevitals.commands.rules.backtest import options as backtest
from nodevitals.commands.terminal import Subparsers


def add_to(commands: Subparsers) -> None:
    """Add `rules` and its actions to the command line."""
    parser = commands.add_parser("rules", help="check, render, import and backtest rule files")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for action in (check, render, import_, backtest):
        action.add_to(actions)
