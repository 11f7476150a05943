"""All tests of the rule pack on what `nodevitals rules render` makes of it.

The long form of `tests/e2e/test_rules_render.py`.
"""

from __future__ import annotations

import time
from pathlib import Path

from testbed.node import run
from testbed.pack import promtool
from testbed.sitevalues import VALUES

SITES = {"no values": "", "profile large": "profile: large\n", "every key": VALUES}


def main(folder: Path) -> None:
    """Print the result for each values file."""
    print("| values | test files | failed | seconds |\n|---|---|---|---|")
    for name, text in SITES.items():
        began = time.monotonic()
        values, output = folder / "values.yaml", folder / name.replace(" ", "-")
        values.write_text(text)
        arguments = ("--values", str(values), "--output", str(output), "--with-tests")
        assert run("rules", "render", *arguments).returncode == 0
        files = sorted((output / "tests").glob("*.yaml"))
        failed = [file.name for file in files if promtool("test", "rules", str(file))[0]]
        seconds = time.monotonic() - began
        print(f"| {name} | {len(files)} | {', '.join(failed) or 'none'} | {seconds:.0f} |")
