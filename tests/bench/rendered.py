"""All tests of the rule pack on what `nodevitals rules render` and the chart make of it.

The long form of `tests/e2e/test_rules_render.py` and `tests/contract/test_chart_rules.py`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml

from testbed.charts import of_kind, render
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
        _report(name, output, began)
        began = time.monotonic()
        _write_chart_rules(yaml.safe_load(text) or {}, output)
        _report(f"{name}, by Helm", output, began)


def _report(name: str, folder: Path, began: float) -> None:
    files = sorted((folder / "tests").glob("*.yaml"))
    failed = [file.name for file in files if promtool("test", "rules", str(file))[0]]
    seconds = time.monotonic() - began
    print(f"| {name} | {len(files)} | {', '.join(failed) or 'none'} | {seconds:.0f} |")


def _write_chart_rules(values: dict[str, Any], folder: Path) -> None:
    """Write the rules as the chart renders them over those that `rules render` wrote."""
    maps = of_kind(render({"rules": {"kind": "ConfigMap", "values": values}}), "ConfigMap")
    [rules] = [one["data"] for one in maps if one["metadata"]["name"] == "nodevitals-rules"]
    for name, text in rules.items():
        assert (folder / name).exists()
        (folder / name).write_text(text)
