"""The shipped rules have no finding: promtool runs every one of their tests.

It is here, not in `make lint`: most other tests of this folder wait, so the processors are free.
"""

from __future__ import annotations

from nodevitals.commands.rules.check import check
from testbed.node import ROOT
from testbed.servers import BINARIES


def test_rules_check_finds_nothing() -> None:
    assert list(map(str, check([ROOT / "rules"], str(BINARIES / "promtool"), strict=True))) == []
