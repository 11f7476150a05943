"""The shipped rules over traces, evaluated by promtool once per day: what they predict each day."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from testbed.node import ROOT
from testbed.servers import BINARIES
from testbed.trends.traces import DAYS, Trace, Values

FILES = ("thresholds", "recording", "accelerator", "disks", "transceiver")
# By kind: the recorded days, and the label that has the number of the trace. `fault` is a ticket; a
# file system has none for its days, but is asked for them.
ESTIMATES = {
    "light": "nodevitals:transceiver_receive:days",
    "wear": "nodevitals:disk_wear:days",
    "memory": "nodevitals:memory_repairs:days",
    "space": "nodevitals:filesystem_full:days",
}
TICKETS = "transceiver_receive_(falling|dropped)|disk_wear_high|memory_repairs_growing"
TICKET = f"nodevitals:fault{{fault=~'{TICKETS}'}}"
_RESULT = re.compile(r'expr: "(?P<expr>.+)", time: (?P<day>\d+)d,\s+exp: .*\s+got: (?P<got>.*)')
_SAMPLE = re.compile(r"{([^{}]*)} ([-+.\dE]+)")


class Prediction(msgspec.Struct):
    """Days that are left, as an estimate and as a range; whether there is a ticket."""

    days: float | None
    early: float | None
    late: float | None
    ticket: bool


def verdicts(folder: Path, given: list[Trace]) -> list[dict[int, Prediction]]:
    """Return the predictions of each trace by day."""
    document = {
        "rule_files": [str(ROOT / f"rules/{name}.yaml") for name in FILES],
        "evaluation_interval": "1d",
        "group_eval_order": _groups(),
        "tests": [
            {
                "interval": "1d",
                "input_series": list(_input(given)),
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{day}d", "exp_samples": []}
                    for day in range(14, DAYS)
                    for expr in (*_expressions(), TICKET)
                ],
            }
        ],
    }
    path = folder / "trends.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    argv = [str(BINARIES / "promtool"), "test", "rules", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    found: list[dict[int, dict[str, float]]] = [defaultdict(dict) for _ in given]
    for result in _RESULT.finditer(done.stdout + done.stderr):
        for labels, value in _SAMPLE.findall(result["got"]):
            number = re.search(r"trace-(\d+)", labels)
            assert number, labels
            bound = re.search(r'bound="(\w+)"', labels)
            what = "ticket" if "nodevitals:fault" in result["expr"] else "days"
            found[int(number[1])][int(result["day"])][bound[1] if bound else what] = float(value)
    assert any(found), done.stdout + done.stderr
    return [
        {
            day: Prediction(one.get("days"), one.get("early"), one.get("late"), "ticket" in one)
            for day, one in days.items()
        }
        for days in found
    ]


def _expressions() -> Iterator[str]:
    for name in ESTIMATES.values():
        yield name
        yield f"{name}_range"


def _groups() -> list[str]:
    return [
        group["name"]
        for name in FILES
        for group in yaml.safe_load((ROOT / f"rules/{name}.yaml").read_text())["groups"]
    ]


def _input(given: list[Trace]) -> Iterator[dict[str, str]]:
    for number, trace in enumerate(given):
        name = f"trace-{number}"
        common = {"job": "nodevitals", "cluster": "c", "instance": name}
        common |= {
            "light": {"device": "mlx5_0", "port": "1", "interface": "ens1"},
            "wear": {"device": "nvme0"},
            "memory": {"device": "0", "uuid": name},
            "space": {"source": f"{name}:/data"},
        }[trace.kind]
        for metric, labels, values in trace.series:
            pairs = ", ".join(f'{key}="{value}"' for key, value in (common | labels).items())
            yield {"series": f"nodevitals_{metric}{{{pairs}}}", "values": _cells(values)}


def _cells(values: Values) -> str:
    """Without a sample it is stale at once, as when the agent is down."""
    return " ".join("stale" if one is None else f"{one:.9g}" for one in values)
