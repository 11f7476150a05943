"""Nodes taken out of service and returned, at an API server that keeps versions and roles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevitals_hub.isolation.schedulers.kubernetes_objects import CONDITION, MARK, REASON
from nodevitals_hub.isolation.schedulers.kubernetes_scheduler import KubernetesScheduler
from nodevitals_hub.isolation.schedulers.schedulers import SchedulerError
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings
from testbed.kubernetes_api.nodes import ROLE, NodeApi

NODE = "gpu-7"
TAINT = "nodevitals.io/out-of-service"
FAULT = Fault(
    node=NODE, fault="nvidia_xid", device_id="GPU-5d2", service="drain_now", action="reboot_node"
)
ISOLATION = Isolation(
    id="20261123-030000-abcdef",
    node=NODE,
    dry_run=False,
    state="isolated",
    faults=(FAULT,),
    created=1.0,
)
Act = Callable[[KubernetesScheduler], Awaitable[Any]]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, [NODE, "gpu-8"]) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def run(act: Act, **settings: Any) -> Any:
    """What a scheduler returns."""

    async def whole() -> Any:
        scheduler = KubernetesScheduler(OutOfServiceSettings(scheduler="kubernetes", **settings))
        try:
            return await act(scheduler)
        finally:
            await scheduler.close()

    return asyncio.run(whole())


def failed(act: Act) -> str:
    with pytest.raises(SchedulerError) as caught:
        run(act)
    assert "\n" not in str(caught.value)
    return caught.value.kind


def isolate(scheduler: KubernetesScheduler) -> Awaitable[None]:
    return scheduler.isolate(ISOLATION)


def restore(scheduler: KubernetesScheduler) -> Awaitable[None]:
    return scheduler.restore(ISOLATION)


def test_a_node_out_of_service_and_back(api: NodeApi) -> None:
    """What was on it before stays: other taints, annotations and conditions."""
    before = api.nodes["gpu-8"]["metadata"]["resourceVersion"]
    run(isolate)
    assert api.cordoned() == [NODE]
    assert api.taints(NODE) == ["site/own", TAINT]
    assert api.annotations(NODE)[MARK] == ISOLATION.id
    assert api.annotations(NODE)[REASON] == "nvidia_xid of GPU-5d2"
    assert api.condition(NODE, CONDITION) == "True"
    assert [one["reason"] for one in api.of_kind("events")] == ["OutOfService"]
    run(restore)
    assert api.cordoned() == []
    assert api.taints(NODE) == ["site/own"]
    assert api.annotations(NODE) == {"site/own": "x"}
    assert (api.condition(NODE, CONDITION), api.condition(NODE, "Ready")) == ("False", "True")
    assert api.nodes["gpu-8"]["metadata"]["resourceVersion"] == before
    assert api.denied == []


def test_the_same_isolation_is_done_once(api: NodeApi) -> None:
    """Also where the answer to the first write was lost."""
    api.fail("after reset", "patch", times=1)
    assert failed(isolate) == "unreachable"
    assert api.cordoned() == [NODE]
    run(isolate)
    run(isolate)
    assert api.requests["patch", "nodes"] == 1
    assert len(api.of_kind("events")) == 1


def test_a_node_that_a_person_has_cordoned_is_left_alone(api: NodeApi) -> None:
    api.cordon(NODE)
    version = api.nodes[NODE]["metadata"]["resourceVersion"]
    assert failed(isolate) == "taken"
    assert failed(restore) == "taken"
    assert api.nodes[NODE]["metadata"]["resourceVersion"] == version


def test_a_person_who_uncordons_is_not_overruled(api: NodeApi) -> None:
    run(isolate)
    api.cordon(NODE, cordoned=False)
    states = run(lambda scheduler: scheduler.states([NODE]))
    assert states[NODE] == (True, ISOLATION.id)
    assert failed(isolate) == "taken"
    assert api.cordoned() == []
    run(restore)
    assert MARK not in api.annotations(NODE)
    assert api.taints(NODE) == ["site/own"]


def test_a_mark_with_another_id_is_not_ours_to_remove(api: NodeApi) -> None:
    run(isolate)
    other = replace(ISOLATION, id="20261123-040000-zzzzzz")
    assert failed(lambda scheduler: scheduler.restore(other)) == "taken"
    assert failed(lambda scheduler: scheduler.isolate(other)) == "taken"
    assert api.cordoned() == [NODE]
    assert api.annotations(NODE)[MARK] == ISOLATION.id


def test_a_conflict_changes_nothing(api: NodeApi) -> None:
    api.conflicts = 1
    assert failed(isolate) == "conflict"
    assert api.cordoned() == []
    run(isolate)
    assert api.cordoned() == [NODE]


def test_an_unknown_node(api: NodeApi) -> None:
    unknown = replace(ISOLATION, node="gpu-99")
    assert failed(lambda scheduler: scheduler.isolate(unknown)) == "unknown_node"
    assert run(lambda scheduler: scheduler.states(["gpu-99", "gpu-8"])) == {"gpu-8": (True, "")}


@pytest.mark.parametrize("code", [400, 401, 403, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("act", [isolate, restore])
def test_each_failure_of_the_api_server_changes_nothing(api: NodeApi, code: int, act: Act) -> None:
    if act is restore:
        run(isolate)
    before = api.cordoned()
    api.fail(code)
    kind = failed(act)
    assert kind == ("refused" if code in (400, 401, 403, 422) else "unreachable")
    api.heal()
    assert api.cordoned() == before


def test_no_connection(api: NodeApi) -> None:
    api.__exit__()
    assert failed(isolate) == "unreachable"


def test_without_the_right_for_condition_and_event_the_node_is_out_all_the_same(
    api: NodeApi,
) -> None:
    api.role = ROLE - {("create", "events"), ("patch", "nodes/status")}
    run(isolate)
    assert api.cordoned() == [NODE]


def test_a_second_fault_is_described(api: NodeApi) -> None:
    run(isolate)
    second = replace(FAULT, fault="mount_hung", device_id="/data")
    more = replace(ISOLATION, faults=(FAULT, second))
    run(lambda scheduler: scheduler.describe(more))
    assert api.annotations(NODE)[REASON] == "nvidia_xid of GPU-5d2, mount_hung of /data"


def test_no_taint_where_none_is_set(api: NodeApi) -> None:
    run(isolate, taint="")
    assert api.taints(NODE) == ["site/own"]
    run(restore, taint="")
    assert api.taints(NODE) == ["site/own"]


def test_a_drain_evicts_what_may_move(api: NodeApi) -> None:
    run(isolate)
    api.pod("worker-0", NODE)
    api.pod("agent", NODE, owner="DaemonSet")
    api.pod("static", NODE, annotations={"kubernetes.io/config.mirror": "x"})
    api.pod("by-hand", NODE, owner="")
    api.pod("protected", NODE)
    api.pod("elsewhere", "gpu-8")
    api.protected = {"protected"}
    progress = run(lambda scheduler: scheduler.drain(ISOLATION))
    assert api.pods == ["agent", "static", "by-hand", "protected", "elsewhere"]
    assert "disruption budget" in progress.blocked
    assert "train/by-hand has no controller" in progress.blocked
    api.protected = set()
    again = run(lambda scheduler: scheduler.drain(ISOLATION))
    assert again.blocked == "train/by-hand has no controller: end it by hand"


def test_what_runs_is_what_a_drain_concerns_without_the_pods_of_repairs(api: NodeApi) -> None:
    run(isolate)
    running: Act = lambda scheduler: scheduler.running(ISOLATION)  # noqa: E731
    api.pod("agent", NODE, owner="DaemonSet")
    api.pod("reset-0", NODE, labels={"nodevitals.io/repair": "20261123-030000-abcdef-reset"})
    assert run(running) == (0, "")
    api.pod("worker-0", NODE)
    api.pod("by-hand", NODE, owner="")
    api.pod("ending", NODE, deletionTimestamp="2026-11-23T03:00:00Z")
    assert run(running) == (3, "")
    run(lambda scheduler: scheduler.drain(ISOLATION))
    assert api.pods == ["agent", "reset-0", "by-hand", "ending"]
    api.role = ROLE - {("list", "pods")}
    assert failed(running) == "refused"


def test_a_drain_ends_when_a_person_returns_the_node(api: NodeApi) -> None:
    run(isolate)
    api.pod("worker-0", NODE)
    api.cordon(NODE, cordoned=False)
    assert failed(lambda scheduler: scheduler.drain(ISOLATION)) == "taken"
    api.cordon(NODE)
    api.unmark(NODE)
    assert failed(lambda scheduler: scheduler.drain(ISOLATION)) == "taken"
    assert len(api.pods) == 1


def test_a_drain_leaves_the_rest_to_the_next_round(
    api: NodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eviction may take as long as a webhook does: other nodes must not wait for all of them."""
    run(isolate)
    for number in range(3):
        api.pod(f"worker-{number}", NODE)
    monkeypatch.setattr(
        "nodevitals_hub.isolation.schedulers.kubernetes_scheduler.EVICTIONS_SECONDS", 0.0
    )
    for left in (2, 1, 0):
        run(lambda scheduler: scheduler.drain(ISOLATION))
        assert len(api.pods) == left
