"""What people would be notified of in each scenario, with the rules and routes as shipped.

`python -m tests.bench scenarios` plays all; SCENARIOS=name,name in the environment plays some and
prints every title.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from testbed.alerting.scenario import Result, play
from testbed.alerting.scenarios import SCENARIOS


def main(folder: Path) -> None:
    """Print the table."""
    names = [name for name in os.environ.get("SCENARIOS", "").split(",") if name]
    chosen = [one for one in SCENARIOS if not names or one.key in names]
    began = time.monotonic()
    results = play(chosen, folder)
    print("| scenario | wanted | result |\n|---|---|---|")
    for result in results:
        print(_row(result))
        if names:
            print("\n".join(f"    {title}" for title in result.outcome.titles()))
    wrong = sum(bool(result.problems) for result in results)
    print(
        f"\n{len(results)} scenarios, {wrong} not as wanted; {time.monotonic() - began:.0f} s of "
        "wall time\n"
    )


def _row(result: Result) -> str:
    text = result.outcome.text()
    if result.problems:
        text = f"**{text}**: {'; '.join(result.problems)}"
    return f"| {result.scenario.happens} | {result.scenario.wanted.text()} | {text} |"
