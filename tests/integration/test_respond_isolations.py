"""The loop that takes nodes out of service, with Prometheus over HTTP and a site's commands."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.isolation.schedulers.schedulers import NodeState, SchedulerError
from testbed.respond import Recorder, Responding, Site, responding

NODES = [f"gpu-{number}" for number in range(1, 1001)]
ADA = Requester(trigger="page", name="ada", role="act")
OPEN = {"breaker_nodes": 10_000, "breaker_share": 1.0}
FREE = {"nodes": 100, "share": 1.0, "per_hour": 100, **OPEN}
XID = ("gpu-1", "nvidia_xid")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


@pytest.mark.parametrize(
    ("limits", "most"),
    [({}, 0), ({**OPEN, "per_hour": 4}, 4)],
)
def test_a_storm_of_500_faults_takes_out_at_most_the_set_number(
    tmp_path: Path, limits: dict[str, Any], most: int
) -> None:
    site = Site(tmp_path, NODES)

    async def steps() -> None:
        commands: dict[str, Any] = {"command": site.commands(), "limits": limits}
        async with responding(tmp_path, NODES, **commands) as found:
            storm = [(node, "nvidia_xid") for node in NODES[:500]]
            await found.rounds(120, *storm)
            out = [node for node in NODES if site.get(node) != "in service"]
            assert len(out) == len(site.log("isolate")) == most
            states = await found.states()
            assert sorted(set(states.values())) == sorted({"refused", *["isolated"][: len(out)]})
            assert {node for node, state in states.items() if state == "isolated"} == set(out)

    run(steps())


def test_a_node_is_taken_out_once_and_marked(tmp_path: Path) -> None:
    site = Site(tmp_path, NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], command=site.commands()) as found:
            await found.rounds(300, XID)
            [one] = found.isolations.book.open.values()
            assert site.get("gpu-1") == f"isolated {one.id}"
            assert site.log("isolate") == ["gpu-1"]
            assert one.acted is not None
            shown = {
                (family.name, labels): value for family, labels, value in found.isolations.samples()
            }
            prefix = "nodevitals_hub_isolation"
            assert shown[f"{prefix}s", ("a", "isolated", "false")] == 1
            assert shown[f"{prefix}_decisions_total", ("isolated", "false")] == 1
            assert shown[f"{prefix}_breaker_open", ("false",)] == 0
            assert shown[f"{prefix}_answer_age_seconds", ()] == 0

    run(steps())


def test_a_dry_run_calls_nothing_but_status(tmp_path: Path) -> None:
    site = Site(tmp_path, NODES[:20])
    site.set("gpu-2", "out of service")

    async def steps() -> None:
        settings: dict[str, Any] = {"command": site.commands(), "dry_run": True, "limits": FREE}
        async with responding(tmp_path, NODES[:20], **settings) as found:
            await found.rounds(300, XID, ("gpu-2", "nvidia_xid"))
            assert await found.states() == {"gpu-1": "isolated", "gpu-2": "canceled"}
            [one] = found.isolations.book.open.values()
            assert one.reason == "dry run: would be out of service"
            assert (site.log("isolate"), site.log("restore")) == ([], [])
            await found.rounds(1200)
            assert (await found.states())["gpu-1"] == "ended"

    run(steps())


@pytest.mark.parametrize("trouble", ["is_away", "is_empty"])
def test_nothing_is_decided_without_an_answer_or_without_rules(
    tmp_path: Path, trouble: str
) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        back: dict[str, Any] = {"enabled": True, "clean": 60.0}
        async with responding(tmp_path, NODES[:20], recorder, back=back) as found:
            await found.rounds(60, XID)
            setattr(found.prometheus, trouble, True)
            await found.rounds(600, XID)
            assert await found.states() == {"gpu-1": "waiting"}
            assert found.isolations.problem
            setattr(found.prometheus, trouble, False)
            await found.rounds(75, XID)
            assert recorder.calls == [("isolate", "gpu-1")]
            setattr(found.prometheus, trouble, True)
            await found.rounds(3600)
            assert await found.states() == {"gpu-1": "isolated"}
            assert recorder.calls == [("isolate", "gpu-1")]

    run(steps())


def test_prometheus_is_asked_again_directly_before_the_act(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder) as found:
            await found.rounds(75, XID)
            asked = found.prometheus.queries
            rows = found.prometheus.rows

            def ends() -> list[dict[str, str]]:
                said = rows()
                found.prometheus.faults = set()
                return said

            found.prometheus.rows = ends  # type: ignore[method-assign]
            await found.rounds(15, XID)
            assert found.prometheus.queries == asked + 2
            assert recorder.calls == []
            assert await found.states() == {"gpu-1": "ended"}

    run(steps())


def test_an_hour_without_the_scheduler_loses_nothing(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder) as found:
            recorder.failure = SchedulerError("unreachable", "no route to the API server")
            await found.rounds(3600, XID)
            [one] = found.isolations.book.open.values()
            assert "no route to the API server" in one.reason
            assert len(one.steps) < 10
            recorder.failure = None
            await found.rounds(30, XID)
            assert recorder.calls == [("isolate", "gpu-1")]
            recorder.failure = SchedulerError("unreachable", "no route to the API server")
            await found.isolations.book.give_back(one.id, ADA)
            await found.rounds(3600, XID)
            recorder.failure = None
            await found.rounds(15, XID)
            assert recorder.calls == [("isolate", "gpu-1"), ("restore", "gpu-1")]
            assert await found.states() == {"gpu-1": "canceled"}

    run(steps())


@pytest.mark.parametrize("is_done", [False, True])
def test_a_hub_that_is_killed_between_decision_and_act_does_it_once(
    tmp_path: Path, is_done: bool
) -> None:
    recorder = Recorder(NODES[:20])

    class KilledError(BaseException):
        """Ends the hub at once."""

    isolate = recorder.isolate

    async def killed(isolation: Any) -> None:
        if is_done:
            await isolate(isolation)
        raise KilledError

    async def first() -> None:
        recorder.isolate = killed  # type: ignore[method-assign]
        async with responding(tmp_path, NODES[:20], recorder) as found:
            with pytest.raises(KilledError):
                await found.rounds(300, XID)

    async def second() -> None:
        recorder.isolate = isolate  # type: ignore[method-assign]
        async with responding(tmp_path, NODES[:20], recorder) as found:
            await found.rounds(300, XID)
            assert recorder.calls == [("isolate", "gpu-1"), *[("describe", "gpu-1")] * is_done]
            [one] = found.isolations.book.open.values()
            assert recorder.nodes["gpu-1"] == NodeState(in_service=False, mark=one.id)
            assert one.acted is not None

    run(first())
    run(second())


def test_the_limit_of_an_hour_holds_over_restarts(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])
    limits = {**FREE, "per_hour": 1}

    async def steps(*faults: tuple[str, str]) -> None:
        async with responding(tmp_path, NODES[:20], recorder, limits=limits) as found:
            await found.rounds(300, *faults)
            assert recorder.calls == [("isolate", "gpu-1")]

    run(steps(XID))
    run(steps(XID, ("gpu-2", "nvidia_xid")))


def test_a_person_who_changes_a_node_is_not_contradicted(tmp_path: Path) -> None:
    site = Site(tmp_path, NODES[:20])
    site.set("gpu-1", "out of service")

    async def steps() -> None:
        settings: dict[str, Any] = {"command": site.commands(), "limits": FREE}
        async with responding(tmp_path, NODES[:20], **settings) as found:
            both = (XID, ("gpu-2", "nvidia_xid"))
            await found.rounds(120, *both)
            assert site.get("gpu-1") == "out of service"
            assert site.get("gpu-2").startswith("isolated")
            site.set("gpu-2", "in service")
            await found.rounds(3600, *both)
            assert await found.states() == {"gpu-1": "canceled", "gpu-2": "canceled"}
            assert site.log("isolate") == ["gpu-2"]
            assert site.log("restore") == []

    run(steps())


def test_people_approve_return_and_cancel(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        limits = {**FREE, "nodes": 1}
        async with responding(tmp_path, NODES[:20], recorder, limits=limits) as found:
            both = (XID, ("gpu-2", "nvidia_xid"))
            await found.rounds(120, *both)
            by_state = {one.state: one for one in found.isolations.book.open.values()}
            book = found.isolations.book
            with pytest.raises(RefusedError, match="needs the role act"):
                await book.approve(by_state["refused"].id, Requester(trigger="page", role="run"))
            with pytest.raises(RefusedError, match="nothing to approve"):
                await book.approve(by_state["isolated"].id, ADA)
            with pytest.raises(RefusedError, match="no isolation"):
                await book.approve("20270101-000000-abcdef", ADA)
            approved = await book.approve(by_state["refused"].id, ADA)
            assert approved.steps[-1].by == "ada"
            await found.rounds(15, *both)
            assert sorted(recorder.calls) == [("isolate", "gpu-1"), ("isolate", "gpu-2")]
            await book.give_back(by_state["isolated"].id, ADA)
            with pytest.raises(RefusedError, match="has begun"):
                await book.give_back(by_state["isolated"].id, ADA)
            await found.rounds(3600, *both)
            assert recorder.calls[2:] == [("restore", "gpu-1")]
            assert await found.states() == {"gpu-1": "canceled", "gpu-2": "isolated"}

    run(steps())


def test_the_whole_way_out_and_back(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])
    answers: list[tuple[bool | None, str, str]] = [
        (None, "no partner is idle", ""),
        (True, "links are good", "20270101-000000-abcdef"),
    ]

    async def check(*_: object) -> tuple[bool | None, str, str]:
        return answers.pop(0)

    async def until(found: Responding, state: str) -> None:
        while (await found.states())["gpu-1"] != state:
            await found.rounds(15)

    async def steps() -> None:
        settings: dict[str, Any] = {"back": {"enabled": True}, "drain": True, "test": check}
        async with responding(tmp_path, NODES[:20], recorder, **settings) as found:
            recorder.left = 3
            await found.rounds(150, XID)
            assert recorder.calls == [("isolate", "gpu-1"), *[("drain", "gpu-1")] * 3]
            await found.rounds(15, XID, ("gpu-1", "ecc"))
            assert recorder.calls[4:] == [("describe", "gpu-1")]
            await found.rounds(600)
            assert await found.states() == {"gpu-1": "isolated"}
            found.prometheus.incident = True
            await until(found, "returned")
            assert answers == []
            assert recorder.calls[5:] == [("restore", "gpu-1")]
            assert recorder.nodes["gpu-1"].in_service

    run(steps())


def test_the_way_back_is_tried_again_and_stops_when_a_fault_comes_back(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def check(*_: object) -> tuple[bool | None, str, str]:
        return None, "no partner is idle", ""

    async def steps() -> None:
        settings: dict[str, Any] = {"back": {"enabled": True}, "test": check}
        async with responding(tmp_path, NODES[:20], recorder, **settings) as found:
            await found.rounds(120, XID)
            await found.rounds(3600)
            [one] = found.isolations.book.open.values()
            assert one.state == "testing"
            assert "no partner is idle" in one.reason
            await found.rounds(15, XID)
            assert await found.states() == {"gpu-1": "isolated"}
            assert recorder.calls == [("isolate", "gpu-1")]

    run(steps())


def test_a_long_time_between_two_queries_counts_as_well(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder, every=300.0) as found:
            await found.rounds(1500, XID, every=300)
            assert recorder.calls == [("isolate", "gpu-1")]

    run(steps())


def test_what_is_out_and_well_is_not_written_again_and_again(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder) as found:
            await found.rounds(120, XID)
            await found.rounds(5400)
            path = tmp_path / "state" / "respond.db-wal"
            before = path.stat().st_size, list(found.isolations.book.open.values())
            await found.rounds(600)
            assert (path.stat().st_size, list(found.isolations.book.open.values())) == before

    run(steps())


def test_a_scheduler_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])
    failures = [SchedulerError("unreachable", "kubeconfig: no such file")]

    def make(_: object) -> Recorder:
        if failures:
            raise failures.pop()
        return recorder

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder) as found:
            found.isolations = found.made(scheduler=make)
            await found.rounds(15, XID)
            assert "kubeconfig" in found.isolations.problem
            await found.rounds(120, XID)
            assert recorder.calls == [("isolate", "gpu-1")]

    run(steps())


def test_settings_that_change_take_effect_and_keep_what_is_out(tmp_path: Path) -> None:
    recorder = Recorder(NODES[:20])

    async def steps() -> None:
        async with responding(tmp_path, NODES[:20], recorder, limits=FREE) as found:
            await found.rounds(120, XID)
            found.change(where=(), dry_run=True)
            await found.rounds(120, XID, ("gpu-2", "nvidia_xid"))
            assert recorder.calls == [("isolate", "gpu-1")]
            assert await found.states() == {"gpu-1": "isolated"}

    run(steps())


def test_a_node_whose_state_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    site = Site(tmp_path, NODES[:20])

    async def steps() -> None:
        settings: dict[str, Any] = {"command": site.commands(), "limits": FREE}
        async with responding(tmp_path, NODES[:20], **settings) as found:
            both = (XID, ("gpu-2", "nvidia_xid"))
            await found.rounds(120, *both)
            site.set("gpu-1", "no word of it")
            site.set("gpu-2", "in service")
            await found.rounds(15, *both)
            assert await found.states() == {"gpu-1": "isolated", "gpu-2": "canceled"}

    run(steps())


def test_an_isolation_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    """Its node is neither returned nor taken out again."""
    site = Site(tmp_path, NODES[:20])
    other = ("gpu-2", "nvidia_xid")

    async def steps() -> None:
        back: dict[str, Any] = {"enabled": True, "clean": 60.0}
        settings: dict[str, Any] = {"command": site.commands(), "limits": FREE, "back": back}
        async with responding(tmp_path, NODES[:20], **settings) as found:
            await found.rounds(120, XID)
            [lost] = found.isolations.book.open.values()
            damage = "UPDATE isolations SET record = '{' WHERE node = 'gpu-1'"
            await found.hub.database.do(lambda c: c.execute(damage).close())
            await found.hub.database.do(lambda c: c.execute("UPDATE facts SET value = '{'").close())
            await found.rounds(300, XID, other)
            assert await found.states() == {"gpu-1": "refused", "gpu-2": "isolated"}
            await found.rounds(1200)
            assert (await found.states())["gpu-1"] == "ended"
            await found.rounds(300, XID)  # a new fault: it is out of service already
            assert (await found.states())["gpu-1"] == "canceled"
            assert site.get("gpu-1") == f"isolated {lost.id}"
            assert site.log("isolate") == ["gpu-1", "gpu-2"]
            assert "gpu-1" not in site.log("restore")

    run(steps())
