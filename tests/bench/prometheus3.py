"""All tests of the rule pack with the semantics of Prometheus 3, each with all rules of its files.

The long form of `tests/e2e/test_prometheus3.py`, which leaves out the rules that a test does not
ask about.
"""

from __future__ import annotations

import time
from pathlib import Path

from testbed.node import ROOT
from testbed.pack import promtool
from testbed.prometheus3 import write_rewritten


def main(folder: Path) -> None:
    """Print the result of all files."""
    began = time.monotonic()
    write_rewritten(ROOT / "rules", folder / "rules")
    files = sorted((folder / "rules/tests").glob("*.yaml"))
    failed = [file.name for file in files if promtool("test", "rules", str(file))[0]]
    seconds = time.monotonic() - began
    print("| test files | failed | seconds |\n|---|---|---|")
    print(f"| {len(files)} | {', '.join(failed) or 'none'} | {seconds:.0f} |")
