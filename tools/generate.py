#!/usr/bin/env python3
"""Write the files that are made from code; with --check, fail where one is stale.

docs/METRICS.md from the families, the example configuration from the Settings, the README's table
of probes from the first sentence of their docstrings, and the inhibitions of Alertmanager's
minimal configuration from those of the full one.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from nodevitals import catalogue, probes
from nodevitals.commands.example import example_configuration

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- probes: made by make generate -->\n", "<!-- end of probes -->\n"
# From the key to the next line that is not indented.
INHIBITIONS = re.compile(r"^inhibit_rules:.*?(?=^\S)", re.MULTILINE | re.DOTALL)


def readme(text: str) -> str:
    """Return the README with its table of probes."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md: no lines {BEGIN.strip()} and {END.strip()}")
    rows = [
        f"| `{name}` | {' '.join((kind.__doc__ or '').split())} |\n"
        for name, kind in probes.registered().items()
    ]
    return before + begin + "| probe | checks |\n|---|---|\n" + "".join(rows) + end + after


def minimal_alertmanager(text: str, full: str) -> str:
    """Return the minimal configuration with the inhibitions of the full one."""
    [inhibitions] = INHIBITIONS.findall(full)
    return INHIBITIONS.sub(lambda _: str(inhibitions), text)


def made() -> dict[Path, str]:
    """Return the content of every generated file."""
    for name, kind in probes.registered().items():
        if kind.unusable:
            raise SystemExit(f"probe {name}: {kind.unusable}")
    path = ROOT / "README.md"
    minimal = ROOT / "alertmanager/minimal.yaml"
    full = (ROOT / "alertmanager/alertmanager.yaml").read_text()
    return {
        ROOT / "docs/METRICS.md": catalogue.markdown(),
        ROOT / "exporter/packaging/nodevitals.example.yaml": example_configuration(
            probes.registered()
        ),
        path: readme(path.read_text()),
        minimal: minimal_alertmanager(minimal.read_text(), full),
    }


def main() -> int:
    """Write or check."""
    stale = {path: text for path, text in made().items() if path.read_text() != text}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is stale: make generate", file=sys.stderr)
        else:
            new = path.with_name(path.name + ".new")
            new.write_text(text)
            os.replace(new, path)
            print(f"{path.relative_to(ROOT)} written")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
