"""Which alerts fire when: promtool evaluates the rules over the series of a fleet.

promtool only compares: a test that expects nothing at each evaluation fails with the alerts that
fire, which is the timeline. promtool evaluates all groups at one interval, whatever their own is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import yaml

from testbed.alerting.series import STEP_SECONDS
from testbed.node import ROOT
from testbed.servers import BINARIES

SHIPPED = ROOT / "rules"
# These record what dashboards show: they have no alerts, and no alert reads them.
FOR_DASHBOARDS = frozenset(
    (
        "agent-history.yaml",
        "fabric-history.yaml",
        "job-history.yaml",
        "reliability.yaml",
        "state.yaml",
        "usage.yaml",
    )
)
# Collecting garbage less often saves a third of promtool's time.
ENVIRONMENT = {**os.environ, "GOGC": "1000", "GOMEMLIMIT": "1GiB"}
Labels = tuple[tuple[str, str], ...]

_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)=("(?:[^"\\]|\\.)*")(?:, |$)')
_CASE = re.compile(r"    name: ,$")
_WHEN = re.compile(r"    alertname: (\w+), time: (\w+), $")
_READ_BY_OTHERS = ("recording", "thresholds", "maintenance", "npu-exporter")
_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class Firing(msgspec.Struct):
    """One alert that fires from `start` until `end` (seconds); `end` is None if it still does.

    `annotations` has an entry for each time at which they changed.
    """

    labels: dict[str, str]
    start: float
    end: float | None = None
    annotations: list[tuple[float, dict[str, str]]] = []
    hold_seconds: float = 0.0
    """The longest `for` of the rules with this alert's name."""

    def annotations_at(self, at: float) -> dict[str, str]:
        """Return the annotations at a time of the alert's life."""
        return [texts for since, texts in self.annotations if since <= at][-1]


class RuleFiles:
    """The rule files of a folder: names of the alerts, their `for`, order of the groups.

    Not the watchdog, which always fires.
    """

    def __init__(self, folder: Path = SHIPPED) -> None:
        # What only dashboards show would take a part of promtool's time.
        paths = sorted(folder.glob("*.yaml"))
        self.files = [path for path in paths if path.name not in FOR_DASHBOARDS]
        groups = [
            group for file in self.files for group in yaml.safe_load(file.read_text())["groups"]
        ]
        # A group that reads others comes after them; without an order promtool's differs each time.
        self.order = sorted((group["name"] for group in groups), key=_rank)
        self.holds: dict[str, float] = {}
        for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
            hold = _seconds(rule.get("for", "0s"))
            self.holds[rule["alert"]] = max(hold, self.holds.get(rule["alert"], 0.0))
        self.holds.pop("Watchdog", None)


def evaluate(
    series: Sequence[dict[str, str]],
    seconds: float,
    folder: Path,
    rules: RuleFiles | None = None,
    since: float = 0.0,
    step: int = STEP_SECONDS,
    every: int | None = None,
) -> list[Firing]:
    """Return the alerts that fire, in order of their start, while the rules are evaluated over
    series (promtool's `input_series`, one sample per `step` seconds) from 0 to `seconds`, `every`
    so many seconds (`step`).

    Only what fires at `since` or later is returned. `folder` must exist; the input is left there.
    Raises RuntimeError where promtool reports anything but alerts.
    """
    rules = rules or RuleFiles()
    every = every or step
    times = range(int(since), int(seconds) + 1, every)
    # The test of a time without alerts has no output, so that its cost is nearly nothing.
    tests = [{"alertname": name, "eval_time": f"{at}s"} for at in times for name in rules.holds]
    document = {
        "rule_files": [str(file) for file in rules.files],
        "evaluation_interval": f"{every}s",
        "group_eval_order": rules.order,
        "tests": [{"interval": f"{step}s", "input_series": series, "alert_rule_test": tests}],
    }
    file = folder / "timeline.yaml"
    file.write_text(json.dumps(document, ensure_ascii=False))
    done = subprocess.run(
        [BINARIES / "promtool", "test", "rules", file],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    return firings(parse(done.stdout + done.stderr), times, rules.holds)


def parse(output: str) -> Iterator[tuple[int, Labels, dict[str, str]]]:
    """Yield time in seconds, labels and annotations of each alert in promtool's output.

    Raises RuntimeError for a line that is not part of the answer to an alert_rule_test.
    """
    at = 0
    labels: Labels = ()
    for line in output.splitlines():
        text = line.strip()
        if found := _WHEN.match(line):
            at = int(_seconds(found[2]))
        elif text.startswith("Labels:{"):
            labels = tuple(sorted(_pairs(text.removeprefix("Labels:"))))
        elif text.startswith("Annotations:{"):
            yield at, labels, dict(_pairs(text.removeprefix("Annotations:").rstrip(",")))
        elif not (_CASE.match(line) or _is_frame(text)):
            raise RuntimeError(f"promtool: {output[max(0, output.find(line) - 200) :][:2000]}")


def firings(
    alerts: Iterator[tuple[int, Labels, dict[str, str]]],
    times: range,
    holds: dict[str, float] | None = None,
) -> list[Firing]:
    """Join what fires at each time to alerts with a start and an end."""
    by_time: dict[int, dict[Labels, dict[str, str]]] = {at: {} for at in times}
    for at, labels, texts in alerts:
        by_time[at][labels] = texts
    found: list[Firing] = []
    current: dict[Labels, Firing] = {}
    for at, active in by_time.items():
        for labels in current.keys() - active.keys():
            current.pop(labels).end = at
        for labels, texts in active.items():
            if labels not in current:
                hold = (holds or {}).get(dict(labels)["alertname"], 0.0)
                current[labels] = Firing(dict(labels), at, None, [(at, texts)], hold)
                found.append(current[labels])
            elif current[labels].annotations[-1][1] != texts:
                current[labels].annotations.append((at, texts))
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    """Parse Prometheus' notation of labels: {name="text", …}, quoted as Go does."""
    inner = text[1:-1]
    found = _PAIR.findall(inner)
    if len(", ".join(f"{name}={value}" for name, value in found)) != len(inner):
        raise RuntimeError(f"promtool: labels not understood: {text[:500]}")
    # What Go quotes otherwise than JSON raises. Not ast.literal_eval, which fails at random where
    # several threads call it: https://github.com/python/cpython/issues/106905
    return [(name, str(json.loads(value))) for name, value in found]


def _is_frame(text: str) -> bool:
    """Whether a line only surrounds the alerts."""
    known = ("", "FAILED:", "SUCCESS", "exp:[],", "got:[", "]")
    return text in known or text.startswith("Unit Testing:") or text.rstrip(":").isdigit()


def _rank(group: str) -> tuple[int, str]:
    """Return the order of evaluation: what others read first, incidents of the fleet last."""
    if "fleet" in group:
        return 2, group
    return int(not any(word in group for word in _READ_BY_OTHERS)), group


def _seconds(duration: str) -> float:
    parts = re.findall(r"(\d+)([dhms])", duration)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
