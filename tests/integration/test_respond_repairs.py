"""Repairs of nodes out of service: objects at an API server and commands, started once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevitals.checks.model import Requester
from nodevitals_hub.isolation.schedulers.kubernetes_scheduler import KubernetesScheduler
from nodevitals_hub.isolation.schedulers.schedulers import NodeState, SchedulerError
from nodevitals_hub.repair.repair_records import Repair
from nodevitals_hub.settings.response import OutOfServiceSettings
from testbed.kubernetes_api.failures import WRITES
from testbed.kubernetes_api.nodes import (
    JOBS,
    REMEDIATION_ROLE,
    REMEDIATIONS,
    REPAIR_ROLE,
    ROLE,
    NodeApi,
)
from testbed.longforms import long_forms
from testbed.repairs import (
    REMEDIATION,
    RESET_JOB,
    KilledError,
    Ticket,
    kill_at_write,
    manifest,
    repairs_of,
)
from testbed.respond import Recorder, Responding, responding

NODES = [f"gpu-{number}" for number in range(1, 101)]
ADA = Requester(trigger="page", name="ada", role="act")
OPEN = {"breaker_nodes": 10_000, "breaker_share": 1.0}
FREE = {"nodes": 100, "share": 1.0, "per_hour": 100, **OPEN}
XID = ("gpu-1", "nvidia_xid")
OUT = 90
"""Seconds after which a node with a fault is out of service."""
COMPLETE = [{"type": "Complete", "status": "True"}]


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 120))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        found.role |= REPAIR_ROLE | REMEDIATION_ROLE
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def hub(
    folder: Path, *repairs: dict[str, Any], recorder: Recorder | None = None, **more: Any
) -> AbstractAsyncContextManager[Responding]:
    """A hub with repairs."""
    made = recorder or Recorder(NODES)
    return responding(folder, NODES, made, repairs=list(repairs), **{"limits": FREE, **more})


async def one(found: Responding) -> Repair:
    [repair] = await repairs_of(found)
    return repair


async def until(found: Responding, *states: str, fault: tuple[str, str] = XID) -> Repair:
    """The only repair, once it is in one of these states; for what takes real time."""
    for _ in range(2000):
        await found.rounds(1, fault, every=1)
        repairs = await repairs_of(found)
        if repairs and repairs[0].state in states:
            return repairs[0]
        await asyncio.sleep(0.02)
    raise AssertionError(repairs)


def test_a_job_is_created_once_and_its_end_is_recorded(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path)) as found:
            await found.rounds(OUT, XID)
            repair = await one(found)
            assert repair.state == "started"
            [job] = api.of_kind(JOBS)
            assert job["metadata"]["name"] == repair.id
            assert job["metadata"]["labels"]["site/node"] == "gpu-1"
            pod = job["spec"]["template"]
            assert pod["metadata"]["labels"] == {"nodevitals.io/repair": repair.id}
            assert pod["spec"]["nodeName"] == "gpu-1"
            assert pod["spec"]["containers"][0]["args"] == ["--gpu", "GPU-1"]
            shown = samples(found)
            assert shown["nodevitals_hub_repairs_running", ("reset_device",)] == 1
            assert shown["nodevitals_hub_repairs_total", ("reset_device", "started")] == 1
            api.say(JOBS, conditions=COMPLETE)
            await found.rounds(600, XID)
            assert (await one(found)).state == "succeeded"
            assert api.created == [repair.id]
            shown = samples(found)
            assert shown["nodevitals_hub_repairs_running", ("reset_device",)] == 0
            assert shown["nodevitals_hub_repairs_failed", ("reset_device",)] == 0
            [isolation] = found.isolations.book.open.values()
            said = [step.text for step in isolation.steps if step.text.startswith("repair")]
            assert said == [
                f"repair reset-gpu: to be started: Job repairs/{repair.id}",
                f"repair reset-gpu: started: Job repairs/{repair.id}",
                "repair reset-gpu: succeeded: Complete",
            ]
            assert api.denied == []

    run(steps())


def samples(found: Responding) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(family.name, labels): value for family, labels, value in found.isolations.samples()}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"conditions": [{"type": "Failed", "status": "True", "message": "x"}]}, "failed"),
        ({"conditions": [{"type": "Failed", "status": "False"}, *COMPLETE]}, "succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "Unknown"}]}, "started"),
        ({"conditions": [{"type": "Processing", "status": "False"}]}, "started"),
        ({"phase": "Succeeded"}, "succeeded"),
        ({"phase": "Error"}, "failed"),
        ({"phase": ["Succeeded"]}, "started"),
        ({"conditions": "Complete"}, "started"),
        ({"conditions": [None, 7, {"type": []}, {"type": "Complete", "status": True}]}, "started"),
    ],
)
def test_the_status_of_a_job_is_read_and_not_trusted(
    tmp_path: Path, api: NodeApi, status: dict[str, Any], state: str
) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path)) as found:
            await found.rounds(OUT, XID)
            api.say(JOBS, **status)
            await found.rounds(15, XID)
            assert (await one(found)).state == state

    run(steps())


def test_another_operators_object_ends_by_its_conditions(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path, REMEDIATION)) as found:
            await found.rounds(OUT, XID)
            [remediation] = api.of_kind(REMEDIATIONS)
            annotations = remediation["metadata"]["annotations"]
            assert annotations == {"remediation.medik8s.io/node-name": "gpu-1"}
            processing = {"type": "Processing", "status": "True"}
            succeeded = {"type": "Succeeded", "status": "False", "reason": "\x1b[31m\nno\tagent"}
            api.say(REMEDIATIONS, conditions=[processing, succeeded])
            await found.rounds(15, XID)
            assert (await one(found)).state == "started"
            api.say(REMEDIATIONS, conditions=[{**processing, "status": "False"}, succeeded])
            await found.rounds(15, XID)
            repair = await one(found)
            assert (repair.state, repair.text) == ("failed", "Succeeded: ?[31m no agent")
            assert len(api.of_kind(REMEDIATIONS)) == 1
            shown = samples(found)
            assert shown["nodevitals_hub_repairs_failed", ("reset_device",)] == 0
            await found.rounds(15, XID)
            assert samples(found)["nodevitals_hub_repairs_failed", ("reset_device",)] == 1

    run(steps())


@pytest.mark.parametrize("trouble", ["", "403", "lost", "killed"])
def test_an_object_that_has_succeeded_is_deleted_where_it_is_asked_for(
    tmp_path: Path, api: NodeApi, trouble: str
) -> None:
    """Also where the hub is killed between the deletion and its record."""
    recorder = Recorder(NODES)
    entry = manifest(tmp_path, REMEDIATION, remove=True)

    async def first() -> None:
        async with hub(tmp_path, entry, recorder=recorder) as found:
            await found.rounds(OUT, XID)
            api.say(REMEDIATIONS, conditions=[{"type": "Succeeded", "status": "True"}])
            if trouble == "403":
                api.role.discard(("delete", REMEDIATIONS))
                await found.rounds(15, XID)
                repair = await one(found)
                assert (repair.state, "403" in repair.text) == ("started", True)
                api.role.add(("delete", REMEDIATIONS))
            if trouble == "lost":
                api.fail("after reset", *WRITES, times=1)
            if trouble == "killed":
                kill_at_write(found, 3, False)
                with pytest.raises(KilledError):
                    await found.rounds(15, XID)
                assert api.of_kind(REMEDIATIONS) == []

    async def second() -> None:
        async with hub(tmp_path, entry, recorder=recorder) as found:
            await found.rounds(45, XID)
            repair = await one(found)
            assert (repair.state, repair.text) == ("succeeded", "Succeeded")
            assert api.of_kind(REMEDIATIONS) == []
            assert len(api.created) == 1

    run(first())
    run(second())


@pytest.mark.parametrize("is_there", [False, True])
def test_an_object_that_is_deleted_or_made_again_has_an_unknown_end(
    tmp_path: Path, api: NodeApi, is_there: bool
) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path)) as found:
            await found.rounds(OUT, XID)
            [(key, job)] = api.objects[JOBS].items()
            del api.objects[JOBS][key]
            if is_there:
                other = {**job["metadata"], "uid": "another"}
                api.objects[JOBS][key] = {
                    **job,
                    "metadata": other,
                    "status": {"conditions": COMPLETE},
                }
            await found.rounds(300, XID)
            assert (await one(found)).state == "unknown"
            assert len(api.created) == 1

    run(steps())


def test_a_dry_run_records_what_would_be_started_and_starts_nothing(
    tmp_path: Path, api: NodeApi
) -> None:
    ticket = Ticket(tmp_path)

    async def steps() -> None:
        job, call = manifest(tmp_path, dry_run=True), ticket.entry(dry_run=True)
        async with hub(tmp_path, job, call) as found:
            await found.rounds(600, XID)
            by_name = {repair.name: repair for repair in await repairs_of(found)}
            assert {repair.state for repair in by_name.values()} == {"dry_run"}
            assert by_name["reset-gpu"].what == f"Job repairs/{by_name['reset-gpu'].id}"
            words = ("--node", "gpu-1", "nvidia_xid of GPU-1")
            assert by_name["ticket"].command[1:] == words
            found.change(repairs=tuple(_live(entry) for entry in found.settings.repairs))
            await found.rounds(600, XID)  # its fault is older than the end of the dry run
            assert {repair.state for repair in await repairs_of(found)} == {"dry_run"}
        assert ticket.calls() == []
        assert not any(resource == JOBS for _, resource in api.requests)

    run(steps())


def _live(entry: Any) -> Any:
    return replace(entry, dry_run=False)


@pytest.mark.parametrize(
    "more",
    [
        {"dry_run": True},
        {"limits": {**FREE, "breaker_nodes": 1}},
        {"limits": {**FREE, "nodes": 0}},
        {"where": [{"pool": "b"}]},
    ],
    ids=["dry-run", "breaker", "limit", "where"],
)
def test_nothing_starts_where_the_hub_holds_no_node(
    tmp_path: Path, api: NodeApi, more: dict[str, Any]
) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), **more) as found:
            await found.rounds(600, XID)
            assert await repairs_of(found) == []
        assert api.created == []

    run(steps())


def test_nothing_starts_when_the_breaker_opens_or_the_dry_run_begins_after_the_isolation(
    tmp_path: Path, api: NodeApi
) -> None:
    recorder = Recorder(NODES)
    recorder.jobs = 1

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), recorder=recorder) as found:
            await found.rounds(OUT, XID)
            recorder.jobs = 0
            found.prometheus.incident = True
            await found.rounds(600, XID)
            found.prometheus.incident = False
            found.change(dry_run=True)
            await found.rounds(3600, XID)
            assert await found.states() == {"gpu-1": "isolated"}
            assert api.created == []

    run(steps())


def test_a_job_on_the_node_holds_it_back(tmp_path: Path, api: NodeApi) -> None:
    recorder = Recorder(NODES)
    recorder.jobs = 2

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), recorder=recorder) as found:
            await found.rounds(600, XID)
            [(_, reason)] = found.isolations.repairs.notes.items()
            assert reason == "2 left on gpu-1"
            assert api.created == []
            recorder.jobs = 0
            await found.rounds(15, XID)
            assert len(api.created) == 1

    run(steps())


def test_what_runs_is_not_known(tmp_path: Path, api: NodeApi) -> None:
    recorder = Recorder(NODES)

    async def fail(_: object) -> Any:
        raise SchedulerError("refused", "cannot list pods")

    recorder.running = fail  # type: ignore[method-assign, assignment]

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), recorder=recorder) as found:
            await found.rounds(600, XID)
            assert list(found.isolations.repairs.notes.values()) == ["cannot list pods"]
            assert api.created == []
            [entry] = found.settings.repairs
            found.change(repairs=(replace(entry, when_empty=False),))
            await found.rounds(15, XID)
            assert len(api.created) == 1

    run(steps())


def test_on_kubernetes_it_begins_when_the_drain_has_ended_and_its_pod_stays(
    tmp_path: Path, api: NodeApi
) -> None:
    """With no more rights than the chart gives."""
    api.role = ROLE | REPAIR_ROLE
    api.pod("worker-0", "gpu-1")
    api.protected = {"worker-0"}

    async def steps() -> None:
        kubernetes: Any = KubernetesScheduler(OutOfServiceSettings(scheduler="kubernetes"))
        entry = manifest(tmp_path)
        async with hub(tmp_path, entry, recorder=kubernetes, drain=True) as found:
            await found.rounds(300, XID)
            assert (api.cordoned(), api.created) == (["gpu-1"], [])
            assert list(found.isolations.repairs.notes.values()) == ["1 left on gpu-1"]
            api.protected = set()
            await found.rounds(30, XID)
            repair = await one(found)
            assert (repair.state, api.created) == ("started", [repair.id])
            api.pod("reset-0", "gpu-1", labels={"nodevitals.io/repair": repair.id})
            await found.rounds(60, XID)
            assert api.pods == ["reset-0"]
            api.cordon("gpu-1", cordoned=False)
            await found.rounds(15, XID)
            assert await found.states() == {"gpu-1": "canceled"}
        assert api.denied == []

    run(steps())


@pytest.mark.parametrize("faults", [["ecc"], ["nvidia_xid"]])
def test_only_the_faults_that_are_named(tmp_path: Path, api: NodeApi, faults: list[str]) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path, faults=faults)) as found:
            await found.rounds(OUT, XID)
            assert len(api.created) == (faults == ["nvidia_xid"])

    run(steps())


def test_a_fault_that_ends_before_the_second_question_starts_nothing(
    tmp_path: Path, api: NodeApi
) -> None:
    recorder = Recorder(NODES)
    recorder.jobs = 1

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), recorder=recorder) as found:
            await found.rounds(OUT, XID)
            recorder.jobs = 0
            rows = found.prometheus.rows

            def ends() -> list[dict[str, str]]:
                said = rows()
                found.prometheus.faults = set()
                return said

            found.prometheus.rows = ends  # type: ignore[method-assign]
            await found.rounds(15, XID)
            assert api.created == []

    run(steps())


def test_a_person_who_uncordons_in_between_is_not_overruled(tmp_path: Path, api: NodeApi) -> None:
    """Directly before it starts; and while it is decided and the API server is away."""
    recorder = Recorder(NODES)
    recorder.jobs = 1

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), recorder=recorder) as found:
            two = ("gpu-2", "nvidia_xid")
            await found.rounds(OUT, XID, two)
            by_node = {
                isolation.node: isolation for isolation in found.isolations.book.open.values()
            }
            mark = by_node["gpu-1"].id
            recorder.jobs = 0
            states = recorder.states

            async def uncordoned(nodes: Any) -> Any:
                if list(nodes) == ["gpu-1"]:  # after the round has read all nodes
                    recorder.nodes["gpu-1"] = NodeState(in_service=True, mark=mark)
                return await states(nodes)

            recorder.states = uncordoned  # type: ignore[method-assign]
            api.fail(503)
            await found.rounds(30, XID, two)
            [repair] = await repairs_of(found)
            assert (repair.node, repair.state) == ("gpu-2", "wanted")
            assert "503" in repair.text
            recorder.nodes["gpu-2"] = NodeState(in_service=True)
            await found.rounds(30, XID, two)
            assert (await one(found)).state == "wanted"  # it may have been created
            api.heal()
            await found.rounds(30, XID, two)
            assert (await one(found)).state == "canceled"
            assert api.created == []

    run(steps())


def test_a_node_that_is_kept_is_not_repaired(tmp_path: Path, api: NodeApi) -> None:
    async def good(*_: object) -> tuple[bool, str, str]:
        return True, "good", ""

    async def steps() -> None:
        back = {"enabled": True, "clean": 60.0}
        async with hub(tmp_path, manifest(tmp_path), back=back, test=good) as found:
            await found.rounds(OUT, XID)
            api.say(JOBS, conditions=COMPLETE)
            await found.rounds(300)
            assert await found.states() == {"gpu-1": "returned"}
            await found.rounds(300, XID)
            assert await found.states() == {"gpu-1": "kept"}
            assert len(api.created) == 1

    run(steps())


def test_the_hub_returns_no_node_while_its_repair_runs(tmp_path: Path, api: NodeApi) -> None:
    tests: list[int] = []

    async def good(*_: object) -> tuple[bool, str, str]:
        tests.append(1)
        return True, "good", ""

    async def steps() -> None:
        back = {"enabled": True, "clean": 60.0}
        recorder = Recorder(NODES)
        job = manifest(tmp_path)
        async with hub(tmp_path, job, recorder=recorder, back=back, test=good) as found:
            await found.rounds(OUT, XID)
            await found.rounds(1200)
            assert await found.states() == {"gpu-1": "testing"}
            assert tests == []
            api.say(JOBS, conditions=[{"type": "Failed", "status": "True"}])
            await found.rounds(120)
            assert await found.states() == {"gpu-1": "returned"}
            assert recorder.calls[-1] == ("restore", "gpu-1")

    run(steps())


def test_a_person_returns_a_node_whose_repair_runs(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path)) as found:
            await found.rounds(OUT, XID)
            [isolation] = found.isolations.book.open.values()
            await found.isolations.book.give_back(isolation.id, ADA)
            await found.rounds(15, XID)
            assert await found.states() == {"gpu-1": "canceled"}
            api.say(JOBS, conditions=COMPLETE)
            await found.rounds(15, XID)
            assert (await one(found)).state == "succeeded"

    run(steps())


def test_a_storm_starts_at_most_the_set_number_and_those_of_an_hour(
    tmp_path: Path, api: NodeApi
) -> None:
    async def steps() -> None:
        storm = [(node, "nvidia_xid") for node in NODES[:50]]
        async with hub(tmp_path, manifest(tmp_path, at_most=2, per_hour=5)) as found:
            await found.rounds(OUT, *storm)
            assert set((await found.states()).values()) == {"isolated"}
            await found.rounds(120, *storm)
            assert len(api.created) == 2
            for most in (4, 5, 5):
                api.say(JOBS, conditions=COMPLETE)
                await found.rounds(60, *storm)
                assert len(api.created) == most
            await found.rounds(3600, *storm)
            assert len(api.created) == 7

    run(steps())


def test_one_repair_of_a_node_runs_at_a_time_in_the_order_of_the_settings(
    tmp_path: Path, api: NodeApi
) -> None:
    ticket = Ticket(tmp_path)

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path), ticket.entry()) as found:
            await found.rounds(120, XID)
            assert len(api.created) == 1
            assert ticket.calls() == []
            api.say(JOBS, conditions=COMPLETE)
            await found.rounds(15, XID)
            for _ in range(500):
                await asyncio.sleep(0.02)
                if ticket.calls():
                    break
            assert ticket.calls() == [["--node", "gpu-1", "nvidia_xid of GPU-1"]]

    run(steps())


@pytest.mark.parametrize("trouble", ["403", "404", "500", "lost", "away"])
def test_what_may_pass_is_tried_again_and_started_once(
    tmp_path: Path, api: NodeApi, trouble: str
) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path)) as found:
            role, kinds = set(api.role), dict(api.kinds)
            if trouble == "403":
                api.role.discard(("create", JOBS))
            elif trouble == "404":
                api.kinds.pop(JOBS)
            elif trouble == "lost":
                api.fail("after reset", *WRITES, times=1)
            else:
                api.fail(500 if trouble == "500" else 503)
            await found.rounds(OUT, XID)
            repair = await one(found)
            assert repair.state in ("wanted", "started")
            if trouble != "lost":
                assert repair.text.endswith("tried again")
            api.heal()
            api.role, api.kinds = role, kinds
            await found.rounds(30, XID)
            assert (await one(found)).state == "started"
            assert len(api.created) == 1

    run(steps())


def test_no_connection_and_no_configuration_are_tried_again(
    tmp_path: Path, api: NodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        async with hub(tmp_path, manifest(tmp_path)) as found:
            await found.rounds(OUT, XID)
            repair = await one(found)
            assert repair.state == "wanted"
            assert repair.text.startswith("kubeconfig: ")
            monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
            await found.rounds(15, XID)
            assert (await one(found)).state == "started"

    run(steps())


def test_one_that_may_not_be_created_holds_up_no_other(tmp_path: Path, api: NodeApi) -> None:
    ticket = Ticket(tmp_path)

    async def steps() -> None:
        api.role -= {("create", JOBS), ("get", JOBS)}
        job, call = manifest(tmp_path, faults=["nvidia_xid"]), ticket.entry(faults=["ecc"])
        async with hub(tmp_path, job, call) as found:
            await found.rounds(OUT, XID)
            assert (await one(found)).state == "wanted"
            await found.rounds(OUT, XID, ("gpu-2", "ecc"))
            states = {repair.name: repair.state for repair in await repairs_of(found)}
            assert states["reset-gpu"] == "wanted"
            assert states["ticket"] in ("started", "succeeded")

    run(steps())


def test_a_refused_object_has_failed_and_holds_up_no_other(tmp_path: Path, api: NodeApi) -> None:
    labels = {"namespace": "repairs", "labels": {"x": "{reason}"}}  # a blank is not allowed

    async def steps() -> None:
        both = (XID, ("gpu-2", "nvidia_xid"))
        async with hub(tmp_path, manifest(tmp_path, {**RESET_JOB, "metadata": labels})) as found:
            await found.rounds(120, *both)
            assert [repair.state for repair in await repairs_of(found)] == ["failed", "failed"]
            assert api.requests["create", JOBS] == 2

    run(steps())


def test_an_object_of_another_is_not_taken_for_ours(tmp_path: Path, api: NodeApi) -> None:
    named = {**RESET_JOB, "metadata": {"namespace": "repairs", "name": "reset-{node}"}}

    async def steps() -> None:
        api.objects[JOBS]["repairs/reset-gpu-1"] = {
            "metadata": {"name": "reset-gpu-1", "uid": "other"}
        }
        async with hub(tmp_path, manifest(tmp_path, named)) as found:
            await found.rounds(120, XID)
            repair = await one(found)
            assert (repair.state, "not of this repair" in repair.text) == ("failed", True)

    run(steps())


def test_an_object_that_does_not_end_in_time(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path, timeout=600.0)) as found:
            await found.rounds(OUT, XID)
            found.clock.wall += 86400  # the wall clock does not count
            await found.rounds(300, XID)
            assert (await one(found)).state == "started"
            await found.rounds(600, XID)
            assert (await one(found)).state == "timed_out"
            assert len(api.created) == 1

    run(steps())


@pytest.mark.parametrize("ends", [True, False])
def test_an_object_that_cannot_be_read_is_not_called_late(
    tmp_path: Path, api: NodeApi, ends: bool
) -> None:
    """Its end is read when the API server is back; or it is given up after twice the time."""

    async def steps() -> None:
        async with hub(tmp_path, manifest(tmp_path, timeout=600.0)) as found:
            await found.rounds(OUT, XID)
            api.fail(503)
            await found.rounds(900, XID)
            assert (await one(found)).state == "started"
            api.say(JOBS, conditions=COMPLETE)
            if ends:
                api.heal()
            await found.rounds(900, XID)
            assert (await one(found)).state == ("succeeded" if ends else "unknown")

    run(steps())


def test_what_is_never_created_fails_after_its_time(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        api.role.discard(("create", JOBS))
        async with hub(tmp_path, manifest(tmp_path, timeout=600.0)) as found:
            await found.rounds(900, XID)
            repair = await one(found)
            assert repair.state == "failed"
            assert "403" in repair.text

    run(steps())


@pytest.mark.parametrize(
    "value",
    [
        "-rf",
        "--node=all",
        "a b",
        "a;reboot",
        "$(reboot)",
        "`reboot`",
        "a\nb",
        "a\x00b",
        "é",
        "'",
        '"',
        "{node}",
        "x" * 300,
        "*",
        "",
    ],
)
def test_a_hostile_value_starts_nothing(tmp_path: Path, api: NodeApi, value: str) -> None:
    ticket = Ticket(tmp_path)

    async def steps() -> None:
        entry = ticket.entry("--device", "{device_id}")
        async with hub(tmp_path, entry, manifest(tmp_path)) as found:
            found.prometheus.labels = {"device_id": value}
            await found.rounds(120, XID)
            repairs = await repairs_of(found)
            assert [repair.state for repair in repairs] == ["failed", "failed"]
            assert all("device_id" in repair.text for repair in repairs)
            assert all(repair.text.isprintable() for repair in repairs)
            assert api.created == []
        assert ticket.calls() == []

    run(steps())


def test_a_value_is_a_part_of_one_word(tmp_path: Path) -> None:
    """Also a reason, in which what a shell reads is replaced."""
    ticket = Ticket(tmp_path)

    async def steps() -> None:
        words = ("{node}", "on={device_id},{fault}", "{reason}", "${node}", "{{node}}")
        async with hub(tmp_path, ticket.entry(*words)) as found:
            found.prometheus.labels = {"device_id": "GPU-1/a:b"}
            fault = ("gpu-1", "nvidia_xid")
            await found.rounds(OUT, fault)
            await until(found, "succeeded")
        [call] = ticket.calls()
        assert call == [
            *("gpu-1", "on=GPU-1/a:b,nvidia_xid", "nvidia_xid of GPU-1/a:b"),
            *("${node}", "{{node}}"),
        ]

    run(steps())


@pytest.mark.parametrize(
    ("then", "state", "text"),
    [
        ("print('opened'); print('T-1 \\x1b[1m')", "succeeded", "status 0: T-1 ?[1m"),
        ("sys.exit('no such queue')", "failed", "status 1: no such queue"),
        ("time.sleep(600)", "timed_out", "ended after 5 s"),
        (
            "import signal; signal.signal(15, 1); print('x', flush=True); time.sleep(600)",
            "timed_out",
            "ended after 5 s: x",
        ),
    ],
    ids=["good", "bad", "hangs", "ignores-sigterm"],
)
def test_the_end_of_a_command(tmp_path: Path, then: str, state: str, text: str) -> None:
    ticket = Ticket(tmp_path, then)
    # Within it Python starts, and does what is asserted.
    timeout = 5.0 if state == "timed_out" else 60.0

    async def steps() -> None:
        async with hub(tmp_path, ticket.entry(timeout=timeout)) as found:
            await found.rounds(OUT, XID)
            repair = await until(found, "succeeded", "failed", "timed_out", "unknown")
            assert (repair.state, repair.text) == (state, text)
            assert len(ticket.calls()) == 1

    run(steps())


def test_a_command_that_prints_a_gigabyte(tmp_path: Path) -> None:
    ticket = Ticket(tmp_path, "for _ in range(1024): os.write(1, bytes(1 << 20))\nprint('\\nend')")

    async def steps() -> None:
        async with hub(tmp_path, ticket.entry()) as found:
            await found.rounds(OUT, XID)
            repair = await until(found, "succeeded", "failed", "timed_out", "unknown")
            assert (repair.state, repair.text) == ("succeeded", "status 0: end")

    run(steps())


def test_a_command_that_cannot_be_executed(tmp_path: Path) -> None:
    ticket = Ticket(tmp_path)
    ticket.program.chmod(0o644)

    async def steps() -> None:
        async with hub(tmp_path, ticket.entry()) as found:
            await found.rounds(OUT, XID)
            repair = await until(found, "succeeded", "failed", "timed_out", "unknown")
            assert repair.state == "failed"
            assert repair.text.startswith("status 126")

    run(steps())


def test_a_manifest_that_is_not_readable_now_is_read_later(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        entry = manifest(tmp_path)
        file = Path(entry["manifest_file"])
        text = file.read_text()
        file.write_text("kind: [")
        async with hub(tmp_path, entry) as found:
            await found.rounds(OUT, XID)
            assert await repairs_of(found) == []
            [reason] = found.isolations.repairs.notes.values()
            assert reason.startswith(f"{file}:2")
            file.write_text(text)
            await found.rounds(15, XID)
            assert len(api.created) == 1

    run(steps())


@pytest.mark.parametrize(
    ("kind", "is_done"),
    long_forms(
        "kills",
        [(kind, is_done) for kind in ("object", "command") for is_done in (False, True)],
        short=[("object", False), ("command", True)],
    ),
)
def test_a_hub_that_is_killed_at_any_write_starts_it_once(
    tmp_path: Path, api: NodeApi, kind: str, is_done: bool
) -> None:
    ticket = Ticket(tmp_path)
    entry = manifest(tmp_path) if kind == "object" else ticket.entry()

    def started() -> int:
        return len(api.created) + len(ticket.calls())

    async def play(number: int, place: Path, recorder: Recorder) -> bool:
        """Whether the hub lived to the end."""
        async with hub(place, entry, recorder=recorder, grace=1.0) as found:
            await found.rounds(30, XID)
            kill_at_write(found, number, is_done)
            try:
                await found.rounds(30, XID)
                return True
            except KilledError:
                return False

    async def go_on(place: Path, recorder: Recorder) -> list[Repair]:
        async with hub(place, entry, recorder=recorder) as found:
            for _ in range(500):
                await found.rounds(15, XID)
                repairs = await repairs_of(found)
                runs = ("wanted",) if kind == "object" else ("wanted", "started")
                if repairs and repairs[0].state not in runs:
                    break
                await asyncio.sleep(0.02)
            await found.rounds(30, XID)
            return await repairs_of(found)

    async def steps() -> None:
        number, lived = 0, False
        while not lived:
            number += 1
            before = started()
            place, recorder = tmp_path / f"{number}", Recorder(NODES)
            place.mkdir()
            lived = await play(number, place, recorder)
            repairs = await go_on(place, recorder)
            assert len(repairs) == 1
            # What the node shows may be written once more.
            acts = [call for call in recorder.calls if call[0] != "describe"]
            assert acts == [("isolate", "gpu-1")]
            if kind == "object":
                assert (repairs[0].state, started() - before) == ("started", 1)
            else:
                assert repairs[0].state in ("succeeded", "unknown")
                assert started() - before <= 1
                if repairs[0].state == "succeeded":
                    assert started() - before == 1
        assert number > 10

    run(steps())
