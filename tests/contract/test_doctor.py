"""`nodevitals doctor` has a remedy for every reason that the code gives, and a cost for every
capability of the unit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.commands.doctor.permissions import COSTS, NUMBERS, granted_by_unit
from nodevitals.commands.doctor.remedies import REMEDIES, remedies_of, remedy_of
from nodevitals.probes import registered
from nodevitals.probes.ascend import probe as ascend
from nodevitals.probes.mounts import access
from nodevitals.probes.services import units
from nodevitals.state.history import HistoryProbe
from testbed.node import ROOT

PACKAGE = ROOT / "exporter/nodevitals"
ENGINE = ("engine/results.py", "engine/supervisor.py", "engine/worker_end.py", "engine/worker.py")
# The position of the reason among the arguments.
CALLS = {"ProbeError": 0, "CallError": 1, "failure": 0, "_End": 1}
# What a reason that is no constant may be, by the expression. Of the kernel's other errors, mounts
# gives the name in small letters.
COMPUTED = {
    ("probes/mounts/access.py", "reason"): {*access._REASONS.values(), "unknown"},
    ("probes/mounts/probe.py", "f'unexpected_{what}'"): {"unexpected_fstype", "unexpected_source"},
    ("probes/ascend/probe.py", "reason"): {*dict(ascend._REASONS.values()), "npu_smi"},
    ("probes/services/bus.py", "reason"): {
        *("missing", "refused", "permission", "timeout", "closed", "protocol", "too_long"),
    },
    ("probes/services/units.py", "reason"): {*units._REASONS.values(), "refused"},
    ("probes/bmc/probe.py", "reason"): {"device_missing", "missing"},
    ("probes/bmc/probe.py", "error.reason"): {"stuck", "missing"},
    ("linux/tool.py", "reason"): {"timeout", "too_long"},
    ("state/history.py", "reason"): {"disk_full", "state_directory"},
    # Passed on: their words are found where they arise.
    ("engine/results.py", "reason"): set(),
    ("engine/worker.py", "error.reason"): set(),
    ("engine/worker.py", "one_line(end.reason, MAX_REASON_CHARACTERS)"): set(),
    ("probes/kubernetes/state.py", "self.reason"): set(),
}


def source_files() -> Iterator[str]:
    for folder in ("probes", "linux", "state"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield str(path.relative_to(PACKAGE))
    yield from ENGINE


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        if isinstance(node, ast.Call):
            function = getattr(node.func, "id", getattr(node.func, "attr", ""))
            yield function, node


def reasons_in(name: str) -> Iterator[str]:
    for function, node in calls(name):
        if function == "ProbeResult":
            given = [one.value for one in node.keywords if one.arg == "reason"]
        elif function in CALLS and len(node.args) > CALLS[function]:
            given = [node.args[CALLS[function]]]
        else:
            continue
        for one in given:
            if isinstance(one, ast.Constant):
                yield str(one.value)
            else:
                yield from COMPUTED[name, ast.unparse(one)]


def probe_of(name: str) -> str:
    """The probe of a file; '' of one that several use."""
    parts = Path(name).parts
    if parts[0] == "state":
        return HistoryProbe.name
    probe = Path(parts[1]).stem if parts[0] == "probes" else ""
    return probe if probe in registered() else ""


@pytest.mark.parametrize("name", list(source_files()))
def test_every_reason_has_a_remedy(name: str) -> None:
    probe = probe_of(name)
    known = remedies_of(probe)
    if not probe:  # any probe may give it
        known = {**known, **{word: "" for words in REMEDIES.values() for word in words}}
    assert set(reasons_in(name)) <= known.keys()


def test_no_remedy_is_for_a_reason_that_nothing_gives() -> None:
    given = {reason for name in source_files() for reason in reasons_in(name)}
    listed = {reason for words in REMEDIES.values() for reason in words}
    assert listed - given == set()
    assert {"missing", "disk_full", "forbidden", "timeout", "worker_died"} <= given


def test_remedies_are_one_short_line_and_are_filled_in() -> None:
    for probe, words in REMEDIES.items():
        for reason in words:
            text = remedy_of(probe, reason, "/mnt/data")
            assert "{" not in text, text
            assert text.isprintable(), text
            assert 10 < len(text) < 140, text


def test_every_capability_of_the_unit_has_a_cost() -> None:
    assert granted_by_unit() == list(COSTS)
    assert COSTS.keys() <= NUMBERS.keys()
