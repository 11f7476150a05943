"""promtool as a part of `nodevitals rules check`: its complaints as findings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.terminal import CommandError

TIMEOUT_SECONDS = 600.0
# `rules/a.yaml: 5:9: …` for a rule, `line 9: …` for a key that promtool does not know.
_POSITION = re.compile(r": (\d+):\d+: |\bline (\d+): ")
_LINES = 4
"""Number of output lines that make a message."""


def run_promtool(folder: Path, promtool: str) -> Iterator[Finding]:
    """Check every rule file and run every test. Raises CommandError where promtool does not run."""
    for file in sorted(folder.glob("*.yaml")):
        arguments = ("check", "rules", "--lint=all", "--lint-fatal")
        yield from _complaint(promtool, arguments, file, "promtool/check")
    for file in sorted((folder / "tests").glob("*.yaml")):
        yield from _complaint(promtool, ("test", "rules"), file, "promtool/test")


def _complaint(
    promtool: str, arguments: tuple[str, ...], file: Path, name: FindingId
) -> Iterator[Finding]:
    try:
        done = subprocess.run(
            [promtool, *arguments, str(file)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"{promtool}: {error.strerror}; choose another --promtool") from None
    except subprocess.TimeoutExpired:
        yield Finding(str(file), 0, name, "", f"not finished after {TIMEOUT_SECONDS:g} s")
        return
    if done.returncode:
        text = _first_failure(done.stdout + done.stderr)
        position = _POSITION.search(text) if name == "promtool/check" else None
        line = int(position[1] or position[2]) if position else 0
        yield Finding(str(file), line, name, "", text.removeprefix(f"{file}: "))


def _first_failure(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((index for index, line in enumerate(lines) if "FAILED" in line), 0)
    return " ".join(" ".join(lines[first : first + _LINES]).split()).removeprefix("FAILED: ")
