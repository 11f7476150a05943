"""Which nodes are taken out of service: limits, the breaker, people, any sequence of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.settings.response import LimitsPerPool, OutOfServiceSettings, ReturnSettings
from testbed.isolations import NAMES, World, fault, isolation_settings

FREE = LimitsPerPool(nodes=100, share=1.0, per_hour=100, breaker_nodes=1000, breaker_share=1.0)


def world(nodes: int = 20, **more: Any) -> World:
    """A cluster of nodes in the pool `a`, where nothing limits but what is given."""
    return World(nodes, isolation_settings(**{"limits": FREE, "dry_run": False, **more}))


def limits(**more: Any) -> LimitsPerPool:
    return replace(FREE, **more)


def states(found: World) -> dict[str, str]:
    return {one.node: one.state for one in found.isolations.values()}


def out(found: World) -> set[str]:
    return {name for name, state in found.scheduler.items() if state.mark and not state.in_service}


def test_a_node_is_taken_out_after_the_grace() -> None:
    found = world()
    found.answers(15, fault("gpu-1"))
    found.answers(15, fault("gpu-1"))
    assert states(found) == {"gpu-1": "waiting"}
    assert found.done == []
    found.answers(45, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")]


def test_each_fault_has_a_grace_of_its_own() -> None:
    found = world()
    found.answers(0, fault("gpu-1", "first"))
    found.answers(50, fault("gpu-1", "first"), fault("gpu-1", "second"))
    found.answers(10, fault("gpu-1", "second"))
    found.answers(40, fault("gpu-1", "second"))
    assert states(found) == {"gpu-1": "waiting"}
    found.answers(10, fault("gpu-1", "second"))
    assert out(found) == {"gpu-1"}


def test_a_fault_that_goes_and_comes_within_the_grace_begins_anew() -> None:
    found = world()
    found.answers(0, fault("gpu-1"))
    found.answers(50, fault("gpu-1"))
    found.answers(15)
    found.answers(15, fault("gpu-1"))
    found.answers(45, fault("gpu-1"))
    assert states(found) == {"gpu-1": "waiting"}
    assert out(found) == set()
    found.answers(15, fault("gpu-1"))
    assert out(found) == {"gpu-1"}


def test_a_fault_that_comes_and_goes_all_night_is_one_isolation() -> None:
    found = world()
    for _ in range(200):
        found.lasts(30, fault("gpu-1"))
        found.lasts(120)
    [one] = found.isolations.values()
    assert (one.state, one.came_back) == ("waiting", 199)
    assert [step.text for step in one.steps] == ["its fault must last 60 s"]
    found.lasts(630)
    [one] = found.isolations.values()
    assert (one.state, one.reason) == ("ended", "its faults ended within the grace, 199 times")


def test_a_person_who_cancels_while_the_fault_pauses_is_not_asked_again() -> None:
    found = world()
    found.lasts(30, fault("gpu-1"))
    found.lasts(120)
    found.give_back("gpu-1")
    found.lasts(300, fault("gpu-1"))
    assert states(found) == {"gpu-1": "canceled"}
    assert out(found) == set()


def test_a_pause_ends_with_the_breaker_open() -> None:
    """What waits is refused when its fault comes back, not before."""
    found = world(limits=limits(breaker_nodes=3))
    found.lasts(30, fault("gpu-1"))
    found.lasts(60, *map(fault, NAMES[1:4]))
    assert states(found)["gpu-1"] == "waiting"
    found.lasts(30, fault("gpu-1"), *map(fault, NAMES[1:4]))
    assert states(found)["gpu-1"] == "refused"


@pytest.mark.parametrize(
    ("where", "chosen"),
    [((), set()), (({"pool": "b"},), set()), (({"pool": "a"},), {"gpu-1"})],
)
def test_only_nodes_that_where_chooses(where: tuple[dict[str, str], ...], chosen: set[str]) -> None:
    found = world(where=where)
    found.lasts(100, fault("gpu-1"))
    assert out(found) == chosen


def test_a_node_that_is_not_on_the_lists_is_refused() -> None:
    found = world()
    found.lasts(100, fault("other-1"))
    assert states(found) == {"other-1": "refused"}


@pytest.mark.parametrize(
    ("given_limits", "most", "text"),
    [
        (limits(nodes=4), 4, "nodes: 4"),
        (limits(share=0.05), 2, "share: 0.05"),
        (limits(share=0.01), 1, "share: 0.01"),
        (limits(per_hour=3), 3, "per_hour: 3"),
        (limits(nodes=0), 0, "nodes: 0"),
    ],
)
def test_a_storm_stops_at_the_limits(given_limits: LimitsPerPool, most: int, text: str) -> None:
    found = world(40, limits=given_limits)
    found.lasts(100, *map(fault, NAMES[:20]))
    assert len(out(found)) == most
    refused = [one for one in found.isolations.values() if one.state == "refused"]
    assert len(refused) == 20 - most
    assert all(text in one.reason for one in refused)


def test_what_a_limit_refused_is_not_done_when_there_is_room() -> None:
    found = world(limits=limits(per_hour=1))
    found.lasts(100, fault("gpu-1"), fault("gpu-2"))
    assert out(found) == {"gpu-1"}
    found.lasts(7200, fault("gpu-1"), fault("gpu-2"))
    assert out(found) == {"gpu-1"}


def test_the_hour_is_one_of_the_monotonic_clock() -> None:
    found = world(limits=limits(per_hour=1))
    found.lasts(100, fault("gpu-1"))
    found.now += 7200
    found.lasts(100, fault("gpu-1"), fault("gpu-2"))
    assert out(found) == {"gpu-1"}


@pytest.mark.parametrize(
    "given_limits", [limits(breaker_nodes=3), limits(breaker_nodes=99, breaker_share=0.15)]
)
def test_many_new_faults_open_the_breaker_and_the_backlog_stays_refused(
    given_limits: LimitsPerPool,
) -> None:
    found = world(limits=given_limits)
    storm = [fault(name) for name in NAMES[:3]]
    found.lasts(100, *storm)
    assert out(found) == set()
    assert found.ledger.breaker.open
    found.lasts(7200, *storm)
    assert not found.ledger.breaker.open
    assert out(found) == set()
    found.lasts(700)
    found.lasts(100, storm[0])
    assert out(found) == {storm[0].node}


def test_a_node_whose_fault_comes_and_goes_does_not_keep_the_breaker_open() -> None:
    found = world(limits=limits(breaker_nodes=3))
    storm = [fault(name) for name in NAMES[:3]]
    found.lasts(100, *storm)
    assert found.ledger.breaker.open
    for _ in range(10):
        found.lasts(120)
        found.lasts(120, storm[0])
    assert not found.ledger.breaker.open
    assert out(found) == set()
    found.lasts(100, fault("gpu-9"))
    assert out(found) == {"gpu-9"}


def test_nodes_that_get_a_fault_one_after_the_other_keep_the_breaker_open() -> None:
    found = world(limits=limits(breaker_nodes=3))
    found.lasts(100, *map(fault, NAMES[:3]))
    for number in range(4, 20):
        found.lasts(1200, *map(fault, NAMES[:number]))
        assert found.ledger.breaker.open


def test_a_fault_that_pauses_while_rules_start_again_is_still_the_backlog() -> None:
    found = world(limits=limits(breaker_nodes=3))
    storm = [fault(name) for name in NAMES[:3]]
    found.lasts(2500, *storm)
    found.lasts(300)
    found.lasts(3600, *storm)
    assert out(found) == set()


def test_a_fleet_incident_opens_the_breaker_also_for_what_waits() -> None:
    found = world()
    found.answers(0, fault("gpu-1"))
    found.answers(15, fault("gpu-1"), incident=True)
    found.lasts(3600, fault("gpu-1"))
    assert states(found) == {"gpu-1": "refused"}
    assert found.done == []


def test_the_breaker_never_blocks_a_return() -> None:
    found = world(limits=limits(breaker_nodes=3))
    found.lasts(100, fault("gpu-1"))
    found.answers(15, *map(fault, NAMES[:9]))
    assert found.ledger.breaker.open
    found.give_back("gpu-1")
    found.acts()
    assert out(found) == set()


def test_an_intent_is_not_done_once_the_breaker_is_open() -> None:
    found = world(limits=limits(breaker_nodes=3))
    found.is_reachable = False
    found.lasts(100, fault("gpu-1"))
    found.settle()
    found.answers(15, *map(fault, NAMES[:9]))
    found.is_reachable = True
    found.settle()
    found.lasts(100, *map(fault, NAMES[:9]))
    assert found.done == []


def test_an_intent_from_before_the_breaker_is_not_done_when_both_have_passed() -> None:
    """The API server is away from before the breaker opens until after it has closed."""
    found = world(limits=limits(breaker_nodes=3))
    storm = [fault(name) for name in NAMES[:9]]
    found.is_reachable = False
    found.lasts(100, fault("gpu-1"))
    found.lasts(60, *storm)
    assert found.ledger.breaker.open
    found.lasts(3600, *storm)
    assert not found.ledger.breaker.open
    found.is_reachable = True
    found.lasts(3600, *storm)
    assert found.done == []
    assert states(found)["gpu-1"] == "refused"
    found.approve("gpu-1")
    found.lasts(60, *storm)
    assert found.done == [("isolate", "gpu-1")]


def test_an_intent_from_before_a_dry_run_is_not_done_when_that_has_passed() -> None:
    found = world()
    found.is_reachable = False
    found.lasts(100, fault("gpu-1"))
    found.settings = replace(found.settings, dry_run=True)
    found.lasts(60, fault("gpu-1"))
    found.settings = replace(found.settings, dry_run=False)
    found.is_reachable = True
    found.lasts(3600, fault("gpu-1"))
    assert found.done == []


def test_a_fault_that_ends_and_comes_back_while_the_scheduler_is_away_has_a_new_grace() -> None:
    found = world()
    found.is_reachable = False
    found.lasts(100, fault("gpu-1"))
    found.lasts(1800)
    found.is_reachable = True
    found.answers(15, fault("gpu-1"))
    assert found.done == []
    found.lasts(90, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")]


def test_what_was_done_before_the_breaker_opened_stays_done() -> None:
    """The answer to the write was lost, and the API server is away while the breaker is open."""
    found = world(limits=limits(breaker_nodes=3))
    storm = [fault(name) for name in NAMES[:9]]
    found.crash = "after"
    found.lasts(75, fault("gpu-1"))
    found.crash, found.is_reachable = "", False
    found.lasts(3600, *storm)
    found.is_reachable = True
    found.lasts(60, *storm)
    assert states(found)["gpu-1"] == "isolated"
    assert found.done == [("isolate", "gpu-1")]


def test_a_second_fault_extends_and_all_must_end_before_the_clean_period() -> None:
    found = world()
    found.lasts(100, fault("gpu-1", "first"))
    found.lasts(60, fault("gpu-1", "first"), fault("gpu-1", "second"))
    found.lasts(600, fault("gpu-1", "second"))
    [one] = found.isolations.values()
    assert [fault.fault for fault in one.faults] == ["first", "second"]
    assert one.clean_since is None
    found.lasts(60)
    [one] = found.isolations.values()
    assert one.clean_since is not None
    assert found.done == [("isolate", "gpu-1")]


def test_a_node_is_clean_only_while_its_data_are_fresh() -> None:
    found = world(back=ReturnSettings(enabled=True))
    found.lasts(100, fault("gpu-1"))
    found.unfresh = {"gpu-1"}
    found.lasts(3600)
    assert states(found) == {"gpu-1": "isolated"}
    found.unfresh = set()
    found.lasts(890)
    assert states(found) == {"gpu-1": "isolated"}
    found.lasts(30)
    assert states(found) == {"gpu-1": "testing"}


def test_an_alert_without_a_confirmed_fault_keeps_a_node_out() -> None:
    found = world(back=ReturnSettings(enabled=True))
    found.lasts(100, fault("gpu-1"))
    found.alerting = {("gpu-1", "xid")}
    found.lasts(3600)
    assert states(found) == {"gpu-1": "isolated"}


def test_a_node_that_failed_again_is_kept_and_the_times_are_counted() -> None:
    found = world(back=ReturnSettings(enabled=True))
    for _ in range(2):
        found.lasts(100, fault("gpu-1"))
        found.lasts(1000)
        for one in [one for one in found.isolations.values() if one.state in ("testing", "kept")]:
            if one.state == "testing":
                found.put(acts.tested(one, True, "good", "", found.now))
        found.lasts(15)
    [kept] = [one for one in found.isolations.values() if one.state == "kept"]
    assert "second time this week: gpu-1, xid GPU-1" in kept.reason
    found.lasts(7200)
    assert out(found) == {"gpu-1"}


def test_a_failed_check_keeps_a_node_out() -> None:
    found = world(back=ReturnSettings(enabled=True))
    found.lasts(100, fault("gpu-1"))
    found.lasts(1000)
    [one] = found.isolations.values()
    found.put(acts.tested(one, False, "link 3 is slow", "", found.now))
    found.lasts(7200)
    assert states(found) == {"gpu-1": "kept"}


def test_what_a_person_has_taken_out_is_never_touched() -> None:
    found = world()
    found.cordon("gpu-1")
    found.lasts(7200, fault("gpu-1"))
    assert states(found) == {"gpu-1": "canceled"}
    found.lasts(7200)
    assert not found.scheduler["gpu-1"].in_service


def test_a_person_who_uncordons_cancels_until_the_faults_have_ended() -> None:
    found = world()
    found.lasts(100, fault("gpu-1"))
    found.uncordon("gpu-1")
    found.lasts(7200, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")]
    found.lasts(100, fault("gpu-1"), fault("gpu-1", "another"))
    assert found.done == [("isolate", "gpu-1")] * 2
    found.uncordon("gpu-1")
    found.lasts(700)
    found.lasts(100, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")] * 3


def test_a_dry_run_does_nothing_and_leaves_no_backlog() -> None:
    found = world(dry_run=True, limits=limits(nodes=2))
    storm = [fault("gpu-1"), fault("gpu-2"), fault("gpu-3")]
    found.lasts(300, *storm)
    assert sorted(states(found).values()) == ["isolated", "isolated", "refused"]
    found.settings = replace(found.settings, dry_run=False)
    found.lasts(7200, *storm)
    assert found.done == []
    assert sorted(states(found).values()) == ["refused"] * 3
    [one] = [one for one in found.isolations.values() if one.node == "gpu-1" and not one.dry_run]
    found.put(acts.approved(one, "ada", found.now))
    found.lasts(60, *storm)
    assert found.done == [("isolate", "gpu-1")]


def test_a_dry_run_that_is_switched_on_changes_nothing_from_then_on() -> None:
    found = world(back=ReturnSettings(enabled=True))
    found.lasts(100, fault("gpu-1"))
    found.settings = replace(found.settings, dry_run=True)
    found.lasts(7200)
    assert found.done == [("isolate", "gpu-1")]
    found.give_back("gpu-1")
    found.acts()
    assert found.done == [("isolate", "gpu-1"), ("restore", "gpu-1")]


def test_a_restart_between_intent_and_act_does_it_once() -> None:
    found = world()
    found.crash = "before"
    found.lasts(100, fault("gpu-1"))
    found.crash = "after"
    found.lasts(15, fault("gpu-1"))
    assert out(found) == {"gpu-1"}
    found.crash = ""
    found.lasts(100, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")]
    assert states(found) == {"gpu-1": "isolated"}


def test_a_node_that_may_be_out_is_not_forgotten_while_its_scheduler_is_away() -> None:
    found = world()
    found.crash = "after"
    found.lasts(75, fault("gpu-1"))
    assert out(found) == {"gpu-1"}
    found.is_reachable = False
    found.lasts(60)
    assert states(found) == {"gpu-1": "isolated"}
    found.is_reachable = True
    found.lasts(60)
    [one] = found.isolations.values()
    assert one.acted is not None


def test_a_person_who_uncordons_before_a_killed_hub_is_back_is_not_contradicted() -> None:
    found = world()
    found.crash = "after"
    found.lasts(75, fault("gpu-1"))
    assert out(found) == {"gpu-1"}
    found.uncordon("gpu-1")
    found.crash = ""
    found.lasts(7200, fault("gpu-1"))
    assert found.done == [("isolate", "gpu-1")]
    assert states(found) == {"gpu-1": "canceled"}
    assert found.scheduler["gpu-1"].mark == "", "what is left of ours is removed"


_names = st.sampled_from(NAMES[:8])
_step = st.one_of(
    st.tuples(st.just("add"), st.tuples(_names, st.sampled_from(["xid", "ecc"]))),
    st.tuples(st.just("add"), st.tuples(_names, st.sampled_from(["xid", "ecc"]))),
    st.tuples(st.just("add"), st.tuples(_names, st.sampled_from(["xid", "ecc"]))),
    st.tuples(st.just("add"), st.tuples(_names, st.sampled_from(["xid", "ecc"]))),
    st.tuples(st.just("remove"), _names),
    st.tuples(st.just("wait"), st.sampled_from([60, 600, 1800])),
    st.tuples(st.just("missing"), st.sampled_from([15, 3600])),
    st.tuples(st.just("unfresh"), st.sets(_names, max_size=3)),
    st.tuples(st.just("jump"), st.sampled_from([-86400, -60, 60, 4000, 86400])),
    st.tuples(st.sampled_from(["cordon", "uncordon", "approve", "give_back"]), _names),
    st.tuples(st.sampled_from(["reachable", "dry", "restart", "incident"]), st.booleans()),
    st.tuples(st.just("where"), st.sampled_from([(), ({"pool": "a"},), ({"pool": "b"},)])),
    st.tuples(st.just("crash"), st.sampled_from(["", "before", "after"])),
    st.tuples(st.just("tests"), st.booleans()),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_step, min_size=5, max_size=40), st.sampled_from([3, 100]), st.sampled_from([1, 6]))
def test_no_sequence_breaks_the_bounds(steps: Sequence[Any], breaker: int, per_hour: int) -> None:
    given_limits = LimitsPerPool(
        nodes=2, share=0.5, per_hour=per_hour, breaker_nodes=breaker, breaker_share=1.0
    )
    back = ReturnSettings(enabled=True, clean=60.0, again_within=1800.0)
    found = world(8, limits=given_limits, grace=20.0, back=back)
    faults: set[tuple[str, str]] = set()
    incident = False
    for what, value in steps:
        seconds = 45
        if what == "add":
            faults.add(value)
        elif what == "remove":
            faults = {one for one in faults if one[0] != value}
        elif what == "wait":
            seconds = value
        elif what == "incident":
            incident = value
        else:
            found.step(what, value)
        for _ in range(seconds // 15):
            found.answers(15, *(fault(*one) for one in sorted(faults)), incident=incident)
            found.check()


def test_settings_without_a_command_are_refused() -> None:
    made = OutOfServiceSettings(scheduler="command")
    assert [one.path for one in made.problems()] == ["out_of_service.command"]
