"""Nodes drained and resumed at a stand-in of scontrol that checks its arguments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevitals_hub.isolation.schedulers import slurm_scheduler
from nodevitals_hub.isolation.schedulers.schedulers import SchedulerError
from nodevitals_hub.isolation.schedulers.slurm_scheduler import SlurmScheduler, parse_node
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings, SlurmSettings
from testbed.programs import install
from testbed.slurm import LINE

NODE = "gpu-7"
FAULT = Fault(node=NODE, fault="nvidia_xid", device_id='a"b\nc', service="drain_now")
ISOLATION = Isolation(
    id="20261123-030000-abcdef",
    node=NODE,
    dry_run=False,
    state="isolated",
    faults=(FAULT,),
    created=1.0,
)
MARK = "nodevitals 20261123-030000-abcdef: nvidia_xid of a?b?c"
Act = Callable[[SlurmScheduler], Awaitable[Any]]


class Slurm:
    """The stand-in and its file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "slurm.json"
        self.program = install(folder / "bin", "slurm", ["scontrol"], str(self.file)) / "scontrol"
        self.put()

    def put(self, state: str = "IDLE", reason: str = "", cpus: int = 0, fail: str = "") -> None:
        """Set the node, and how the program fails."""
        other = {"state": "IDLE", "reason": "", "cpus": 0}
        nodes = {NODE: {"state": state, "reason": reason, "cpus": cpus}, "gpu-8": other}
        self.file.write_text(json.dumps({"nodes": nodes, "fail": fail, "calls": []}))

    def node(self) -> tuple[str, str]:
        """State and reason."""
        node = json.loads(self.file.read_text())["nodes"][NODE]
        return node["state"], node["reason"]

    def updates(self) -> int:
        """Number of changes."""
        return sum(call[0] == "update" for call in json.loads(self.file.read_text())["calls"])

    def run(self, act: Act) -> Any:
        """What a scheduler returns."""

        async def whole() -> Any:
            slurm = SlurmSettings(scontrol=str(self.program))
            settings = OutOfServiceSettings(scheduler="slurm", slurm=slurm)
            return await act(SlurmScheduler(settings))

        return asyncio.run(whole())

    def failed(self, act: Act) -> str:
        """The kind of the failure."""
        with pytest.raises(SchedulerError) as caught:
            self.run(act)
        assert "\n" not in str(caught.value)
        return caught.value.kind


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name in slurm_scheduler.FORBIDDEN_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return Slurm(tmp_path)


def isolate(scheduler: SlurmScheduler) -> Awaitable[None]:
    return scheduler.isolate(ISOLATION)


def restore(scheduler: SlurmScheduler) -> Awaitable[None]:
    return scheduler.restore(ISOLATION)


def test_a_node_out_of_service_and_back_once(slurm: Slurm) -> None:
    slurm.run(isolate)
    slurm.run(isolate)
    assert slurm.node() == ("IDLE+DRAIN", MARK)
    assert slurm.updates() == 1
    assert slurm.run(lambda s: s.states([NODE, "gpu-9"])) == {NODE: (False, ISOLATION.id)}
    more = replace(ISOLATION, present=(replace(FAULT, fault="mount_hung", device_id=""),))
    slurm.run(lambda s: s.describe(more))
    assert slurm.node()[1].endswith("mount_hung")
    slurm.run(restore)
    assert slurm.node() == ("IDLE", "")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN", "replace the fan"),
        ("DOWN", "by li"),
        ("DOWN", "Not responding: the power supply is on its way"),
        ("IDLE+DRAIN", "Not responding"),
        ("IDLE+DRAIN", "nodevitals 20261123-040000-zzzzzz: of another hub"),
    ],
)
def test_a_node_that_a_person_has_taken_is_left_alone(
    slurm: Slurm, state: str, reason: str
) -> None:
    slurm.put(state, reason)
    assert slurm.failed(isolate) == slurm.failed(restore) == "taken"
    assert slurm.updates() == 0


def test_a_reason_of_another_is_not_overwritten(slurm: Slurm) -> None:
    """A requested reboot leaves the node in service until it is idle. The hub tries again."""
    slurm.put("IDLE+REBOOT_REQUESTED", "kernel update")
    assert slurm.failed(isolate) == "conflict"
    assert slurm.updates() == 0
    slurm.put("IDLE")
    slurm.run(isolate)
    assert slurm.node() == ("IDLE+DRAIN", MARK)


def test_a_node_that_slurmctld_has_set_down_does_not_return_by_itself(slurm: Slurm) -> None:
    slurm.put("DOWN*", "Not responding")
    slurm.run(isolate)
    assert slurm.node() == ("DOWN*+DRAIN", MARK)


def test_a_person_who_resumes_is_not_overruled(slurm: Slurm) -> None:
    slurm.put("IDLE", MARK)
    assert slurm.failed(isolate) == "taken"
    slurm.put("IDLE+DRAIN", MARK.replace("abcdef", "zzzzzz"))
    assert slurm.failed(restore) == "taken"
    assert slurm.updates() == 0


@pytest.mark.parametrize(
    ("fail", "kind"),
    [("down", "unreachable"), ("denied", "refused"), ("garbage", "refused"), ("exit", "refused"),
     ("name", "unknown_node"), ("hang", "unreachable")],
)  # fmt: skip
def test_failures(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, fail: str, kind: str) -> None:
    if fail == "hang":
        monkeypatch.setattr(slurm_scheduler, "SECONDS", 1.0)
    slurm.put(fail=fail)
    assert slurm.failed(isolate) == kind
    assert slurm.failed(lambda s: s.states([NODE])) == kind


@pytest.mark.parametrize("name", ["gpu-[1-9]", "gpu-7,gpu-8", "-a", "", "a b", "gpu-7\n", "ALL"])
def test_a_name_is_one_node(slurm: Slurm, name: str) -> None:
    kind = slurm.failed(lambda s: s.isolate(replace(ISOLATION, node=name)))
    assert kind == ("unknown_node" if name == "ALL" else "refused")
    assert slurm.updates() == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLURM_SCRIPT_CONTEXT", "prolog_slurmd"),
        ("SLURM_SCRIPT_CONTEXT", "epilog_slurmctld"),
        ("SLURM_JOB_ID", "4711"),
    ],
)
@pytest.mark.parametrize(
    "act",
    [
        isolate,
        restore,
        lambda scheduler: scheduler.describe(ISOLATION),
        lambda scheduler: scheduler.drain(ISOLATION),
        lambda scheduler: scheduler.running(ISOLATION),
        lambda scheduler: scheduler.states([NODE]),
        lambda scheduler: scheduler.marked([NODE]),
    ],
    ids=["isolate", "restore", "describe", "drain", "running", "states", "marked"],
)
def test_nothing_is_started_in_a_prolog_an_epilog_or_a_job(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, act: Act
) -> None:
    """Not even a question: slurmctld may wait for the script."""
    monkeypatch.setenv(variable, value)
    assert slurm.failed(act) == "refused"
    assert json.loads(slurm.file.read_text())["calls"] == []


def test_jobs_end_by_themselves(slurm: Slurm) -> None:
    for state, cpus, left in (("MIXED+DRAIN", 4, 1), ("IDLE+COMPLETING+DRAIN", 0, 1),
                              ("IDLE+DRAIN", 0, 0)):  # fmt: skip
        slurm.put(state, MARK, cpus)
        assert slurm.run(lambda s: s.drain(ISOLATION)).left == left
    assert slurm.updates() == 0


@pytest.mark.parametrize("suffix", list("*~#!%$@^-"))
def test_suffixes_of_states(suffix: str) -> None:
    line = f"NodeName=a CPUAlloc=0 OS=Linux State=IDLE{suffix}+DRAIN Weight=1 Reason=x [u@t]"
    node = parse_node(line)
    assert (node.states, node.reason, node.in_service) == (("IDLE", "DRAIN"), "x", False)


@pytest.mark.parametrize(
    ("state", "states", "reason", "in_service"),
    [
        ("IDLE", ("IDLE",), "", True),
        ("IDLE+NOT_RESPONDING", ("IDLE", "NOT_RESPONDING"), "", True),
        ("IDLE+DRAIN", ("IDLE", "DRAIN"), "replace the fan", False),
        ("IDLE+REBOOT_REQUESTED", ("IDLE", "REBOOT_REQUESTED"), "kernel update", True),
        (
            "IDLE+DRAIN+REBOOT_REQUESTED NextState=RESUME",
            ("IDLE", "DRAIN", "REBOOT_REQUESTED"),
            "kernel update",
            False,
        ),
    ],
)
def test_line_of_scontrol(
    state: str, states: tuple[str, ...], reason: str, in_service: bool
) -> None:
    shown = f" Reason={reason} [root@2026-11-23T03:00:00]" if reason else ""
    node = parse_node(LINE.format(name="gpu-7", cpus=4, state=state, reason=shown))
    assert (node.states, node.reason, node.cpus) == (states, reason, 4)
    assert node.in_service == in_service
