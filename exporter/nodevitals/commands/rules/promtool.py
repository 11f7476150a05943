"""promtool as a part of `nodevitals rules check`: its complaints as findings."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.terminal import CommandError

TIMEOUT_SECONDS = 600.0
# `rules/a.yaml: 5:9: …` for a rule, `line 9: …` for a key that promtool does not know.
_POSITION = re.compile(r": (\d+):\d+: |\bline (\d+): ")
_LINES = 4
"""Number of output lines that make a message."""
# Collecting garbage less often saves a fifth of promtool's time.
_ENVIRONMENT = {"GOGC": "400", **os.environ}


def run_promtool(folder: Path, promtool: str) -> Iterator[Finding]:
    """Check every rule file and run every test, as many at once as there are CPUs.

    Raises CommandError where promtool does not run.
    """
    checked, tested = sorted(folder.glob("*.yaml")), sorted((folder / "tests").glob("*.yaml"))
    arguments = ("check", "rules", "--lint=all", "--lint-fatal")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = [
            *(
                pool.submit(_complaint, promtool, arguments, one, "promtool/check")
                for one in checked
            ),
            *(
                pool.submit(_complaint, promtool, ("test", "rules"), one, "promtool/test")
                for one in tested
            ),
        ]
        for one in started:
            yield from one.result()


def _complaint(
    promtool: str, arguments: tuple[str, ...], file: Path, name: FindingId
) -> list[Finding]:
    try:
        done = subprocess.run(
            [promtool, *arguments, str(file)],
            env=_ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"{promtool}: {error.strerror}; choose another --promtool") from None
    except subprocess.TimeoutExpired:
        return [Finding(str(file), 0, name, "", f"not finished after {TIMEOUT_SECONDS:g} s")]
    if done.returncode:
        text = _first_failure(done.stdout + done.stderr)
        position = _POSITION.search(text) if name == "promtool/check" else None
        line = int(position[1] or position[2]) if position else 0
        return [Finding(str(file), line, name, "", text.removeprefix(f"{file}: "))]
    return []


def _first_failure(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((index for index, line in enumerate(lines) if "FAILED" in line), 0)
    return " ".join(" ".join(lines[first : first + _LINES]).split()).removeprefix("FAILED: ")
