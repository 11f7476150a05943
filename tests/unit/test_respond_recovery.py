"""Faults of logins and connections: whose they are, by what other nodes report."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals_hub.alerting.prometheus_queries import Sample
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.peer_sights import PeerSight, Sights, parse
from nodevitals_hub.isolation.faults import PART, Clocks, Seen, read, reported_query
from nodevitals_hub.isolation.observers import reporters_query
from nodevitals_hub.isolation.recovery import confirmed, reached
from nodevitals_hub.records import Fault
from testbed.promql import parsed

NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5")
MEMBERS = {name: Member(name=name, host=name, port=1) for name in NODES}
LOGIN = Fault(node="gpu-1", fault="peer_unreachable", service="drain_when_idle")
NOBODY = Fault(node="gpu-1", fault="node_reaches_nobody", service="drain_when_idle")
FABRIC = Fault(node="gpu-1", fault="node_fabric_unreachable", service="drain_when_idle")


def sights(reaching: int, failing: int, blind: int = 0, plane: Any = "peers") -> Sights:
    """Observers of gpu-1; those that are blind reach no node at all."""
    found: dict[str, list[PeerSight]] = {}
    for number in range(reaching + failing + blind):
        is_blind = number >= reaching + failing
        own = PeerSight(plane, "gpu-1", number < reaching, "banner")
        others = [PeerSight(plane, f"other-{one}", not is_blind) for one in range(3)]
        found[f"observer-{number}"] = [own, *others]
    return found


@pytest.mark.parametrize(
    ("reaching", "failing", "blind", "ok"),
    [
        (0, 3, 0, True),
        (1, 3, 0, True),
        (3, 3, 0, False),
        (2, 1, 0, False),
        (0, 1, 0, None),  # one report alone
        (0, 2, 0, None),
        (0, 1, 9, None),  # the others reach no node: it is them
        (0, 0, 9, None),
        (0, 0, 0, None),
        (1, 2, 0, False),
        (3, 0, 0, False),
    ],
)
def test_several_nodes_must_agree(reaching: int, failing: int, blind: int, ok: bool | None) -> None:
    seen = sights(reaching, failing, blind)
    assert confirmed("gpu-1", [LOGIN], seen, observers=3).ok is ok
    on_fabric = sights(reaching, failing, blind, plane="fabric")
    assert confirmed("gpu-1", [FABRIC], on_fabric, observers=3).ok is ok
    assert confirmed("gpu-1", [FABRIC], seen, observers=3).ok is None
    assert reached("gpu-1", [LOGIN], seen, 3).ok is (True if reaching > max(2, failing) else None)


def test_the_text_has_the_step_that_fails() -> None:
    verdict = confirmed("gpu-1", [LOGIN], sights(1, 3), observers=3)
    assert verdict.text == "of 4 other nodes, 3 do not reach gpu-1 (banner)"
    verdict = confirmed("gpu-1", [LOGIN], sights(0, 1), observers=3)
    assert verdict.text == "1 other nodes can say it; 3 are needed (recovery.observers)"


def test_a_node_that_reaches_nobody_while_others_reach_each_other() -> None:
    assert confirmed("gpu-1", [NOBODY], sights(3, 0), observers=3).ok is True
    assert confirmed("gpu-1", [NOBODY], sights(0, 0, blind=5), observers=3).ok is None


def test_what_the_node_says_of_itself_counts_for_nothing() -> None:
    seen = {"gpu-1": sights(0, 1)["observer-0"], **sights(0, 2)}
    assert confirmed("gpu-1", [LOGIN], seen, observers=3).ok is None


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(2, 8))
def test_fewer_reports_than_needed_never_confirm(
    reaching: int, failing: int, blind: int, observers: int
) -> None:
    verdict = confirmed("gpu-1", [LOGIN], sights(reaching, failing, blind), observers)
    assert verdict.ok is not True or (failing >= observers and failing > reaching)


@pytest.mark.parametrize(
    ("runs", "ok", "words"),
    [
        (False, True, "ssh.service does not run on gpu-1"),
        (True, False, "ssh.service runs on gpu-1"),
        (None, None, "the agent of gpu-1 says nothing about ssh.service"),
    ],
)
def test_of_its_units_a_nodes_own_agent_knows(
    runs: bool | None, ok: bool | None, words: str
) -> None:
    fault = Fault(
        node="gpu-1", fault="service_down", device_id="ssh.service", service="drain_when_idle"
    )
    down = [PeerSight("units", "ssh.service", False)]
    own = [] if runs is None else [PeerSight("units", "ssh.service", runs)]
    seen = {"gpu-1": own, "gpu-2": down, "gpu-3": down, "gpu-4": down}
    assert confirmed("gpu-1", [fault], seen, observers=3) == (ok, words, "")
    assert reached("gpu-1", [fault], seen, 3).ok is (True if runs else None)


EXPOSED = """\
nodevitals_services_unit_active{unit="ssh.service"} 0
# HELP nodevitals_peer_reachable Whether
# TYPE nodevitals_peer_reachable gauge
nodevitals_peer_reachable{peer="gpu-1",port="22",protocol="ssh"} 0
nodevitals_peer_reachable{peer="gpu-3",port="22",protocol="ssh"} 1
nodevitals_peer_failure{peer="gpu-1",port="22",protocol="ssh",reason="key_refused"} 1
nodevitals_peers_listed 2
nodevitals_fabric_failure{source="gpu-2",peer="gpu-1",reason="timeout"} 1
nodevitals_fabric_failure{source="gpu-2",peer="gpu-4",reason="peer_busy"} 1
nodevitals_fabric_bandwidth_bytes_per_second{source="gpu-3",peer="gpu-2",tool="iperf3"} 1e9
nodevitals_fabric_bandwidth_bytes_per_second{source="gpu-3",peer="gpu-4",tool="iperf3"} 1e9
"""


def test_sights_are_read_from_an_agents_metrics() -> None:
    assert parse(EXPOSED, "gpu-2") == [
        PeerSight("peers", "gpu-1", False, "key_refused"),
        PeerSight("peers", "gpu-3", True),
        PeerSight("fabric", "gpu-1", False, "timeout"),
        PeerSight("fabric", "gpu-3", True),
        PeerSight("units", "ssh.service", False),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodevitals_peer_reachable nothing", "nothing"),
        ('nodevitals_peer_reachable{peer="a"} 1\n' * 20_001, "over 20000 samples of peers"),
    ],
    ids=["no number", "too many"],
)
def test_a_hostile_agent_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text, "gpu-2")


@given(st.text(max_size=300))
def test_any_text_gives_sights_or_an_error(text: str) -> None:
    try:
        found = parse(f"nodevitals_peer_reachable{text}", "gpu-2")
    except ValueError:
        return
    assert all(len(one.reason) <= 64 for one in found)


def answered(*rows: dict[str, str], age: float = 0.0, **more: Any) -> Seen:
    """What is seen in these rows."""
    alive = Sample({PART: "alive"}, 1000.0, 1000.0)
    samples = [alive, *(Sample(row, 1000.0 - age, 1000.0) for row in rows)]
    now, before = Clocks(1000.0, 50.0, 1000.0), Clocks(985.0, 35.0, 985.0)
    recoverable = ("peer_unreachable", "node_reaches_nobody")
    return read(samples, MEMBERS, "", now, before, recoverable=recoverable, **more)


REPORTED = {
    PART: "reported",
    "fault": "peer_unreachable",
    "peer": "gpu-1",
    "port": "22",
    "protocol": "ssh",
    "action": "investigate",
}


def test_a_report_is_a_fault_of_the_peer() -> None:
    [fault] = answered(REPORTED).faults
    assert fault.identity == ("gpu-1", "peer_unreachable", "22/ssh")
    assert fault.service == "drain_when_idle"  # running jobs go on
    own = {PART: "reported", "fault": "node_reaches_nobody", "instance": "gpu-2:9855"}
    assert [one.node for one in answered(own).faults] == ["gpu-2"]


@pytest.mark.parametrize(
    "rows",
    [
        [REPORTED | {"peer": "storage-1"}],
        [REPORTED, {PART: "work", "instance": "gpu-1:9855"}],
    ],
)
def test_a_report_that_concerns_no_node_in_service_is_none(rows: list[dict[str, str]]) -> None:
    """A peer that is no node on the lists; a node with planned work."""
    seen = answered(*rows)
    assert (seen.faults, seen.lasting) == ((), frozenset())


def test_an_old_report_is_none() -> None:
    assert answered(REPORTED, age=200.0).faults == ()


def test_a_confirmed_fault_of_that_name_counts_only_as_reported() -> None:
    """Also where a site made it critical."""
    confirmed_row = {
        PART: "fault",
        "fault": "node_reaches_nobody",
        "instance": "gpu-1",
        "service": "drain_when_idle",
        "incident": "false",
    }
    assert answered(confirmed_row).faults == ()


def test_the_queries_are_promql() -> None:
    assert parsed(reported_query(["peer_unreachable", "node_reaches_nobody"]))
    assert parsed(reporters_query('gpu"1'))
