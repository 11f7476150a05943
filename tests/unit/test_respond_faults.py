"""What Prometheus says of faults, and answers by which nothing may be decided."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals_hub.alerting.prometheus_queries import Sample
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import (
    FULL_QUERY,
    PART,
    QUERY,
    Clocks,
    Seen,
    StaleError,
    clocks_of,
    read,
)
from testbed.promql import parsed

NOW = 1.8e9
NODES = {
    name: Member(name=name, host=name, port=1, labels={"pool": "a"}) for name in ("gpu-1", "gpu-2")
}
BEFORE = Clocks(wall=NOW - 15, monotonic=85.0, prometheus=NOW - 15)


def sample(part: str, value: float = NOW, time: float = NOW, **labels: str) -> Sample:
    return Sample({PART: part, **labels}, value, time)


def fault(instance: str = "gpu-1:9855", value: float = NOW, **more: str) -> Sample:
    labels: dict[str, Any] = {"fault": "nvidia_xid", "device_id": "GPU-1", "incident": "false"}
    labels |= {"instance": instance, "service": "drain_now", **more}
    return sample("fault", value, **labels)


def seen(
    *samples: Sample,
    cluster: str = "",
    wall: float = NOW,
    monotonic: float = 100.0,
    before: Clocks | None = BEFORE,
) -> Seen:
    found = [sample("alive"), *samples]
    return read(found, NODES, cluster, clocks_of(found, wall, monotonic), before)


def test_the_queries_are_promql() -> None:
    assert parsed(QUERY)
    assert parsed(FULL_QUERY)


def test_a_fault_is_one_of_a_node_on_the_lists_with_or_without_its_port() -> None:
    found = seen(fault("gpu-1:9855"), fault("gpu-1"), fault("other-7:9855"))
    assert [one.identity for one in found.faults] == [
        ("gpu-1", "nvidia_xid", "GPU-1"),
        ("other-7", "nvidia_xid", "GPU-1"),
    ]
    assert found.elapsed == 15.0


def test_a_node_that_is_on_no_list_is_its_address_alone() -> None:
    instances = ("[fd00::11]:9855", "fd00::11", "fd00::12", "[fd00::13]", "10.0.0.3:9855")
    found = seen(*map(fault, instances))
    assert [one.node for one in found.faults] == ["10.0.0.3", "fd00::11", "fd00::12", "fd00::13"]


@pytest.mark.parametrize("labels", [{"service": "keep"}, {"incident": "true"}, {"service": "new"}])
def test_a_fault_that_keeps_the_node_in_service_lasts_and_does_not_act(
    labels: dict[str, Any],
) -> None:
    found = seen(fault(**labels))
    assert found.faults == ()
    assert found.lasting == {("gpu-1", "nvidia_xid", "GPU-1")}


def test_of_two_of_one_identity_the_one_that_does_not_act_counts() -> None:
    assert seen(fault("gpu-1"), fault("gpu-1:9855", incident="true")).faults == ()
    [one] = seen(fault("gpu-1"), fault("gpu-1:9855", service="drain_when_idle")).faults
    assert one.service == "drain_when_idle"


def test_a_drill_is_no_fault() -> None:
    found = seen(fault(drill="true"))
    assert (found.faults, found.lasting) == ((), frozenset())


def test_a_fault_that_was_recorded_long_ago_is_none() -> None:
    assert seen(fault(value=NOW - 61)).faults == ()
    assert len(seen(fault(value=NOW - 59)).faults) == 1


def test_a_node_is_fresh_where_all_that_is_known_of_it_is() -> None:
    fresh = [sample("fresh", instance="gpu-1:9855"), sample("fresh", instance="gpu-2:9855")]
    assert seen(*fresh).fresh_nodes == {"gpu-1", "gpu-2"}
    assert seen(*fresh, sample("lacking", instance="gpu-2")).fresh_nodes == {"gpu-1"}
    assert seen(*fresh, sample("work", instance="gpu-1:9855")).fresh_nodes == {"gpu-2"}


def test_alerts_and_incidents_are_read() -> None:
    alert: dict[str, Any] = {"instance": "gpu-1:9855", "fault": "ecc"}
    found = seen(sample("alert", severity="critical", **alert), sample("incident", kind="node"))
    assert found.alerting == {("gpu-1", "ecc")}
    assert found.critical == {"gpu-1"}
    assert found.incident_open
    assert seen(sample("alert", severity="warning", **alert)).critical == frozenset()


def test_only_its_own_cluster_counts() -> None:
    mine, other = fault("gpu-1", cluster="a"), fault("gpu-2", cluster="b")
    found = seen(mine, other, sample("incident", cluster="b"), cluster="a")
    assert [one.node for one in found.faults] == ["gpu-1"]
    assert not found.incident_open
    with pytest.raises(StaleError, match=r"several clusters \('a', 'b'\): set `cluster`"):
        seen(mine, other)


def test_of_another_cluster_alone_nothing_is_known() -> None:
    found = [sample("alive", cluster="b"), fault("gpu-1", cluster="b")]
    with pytest.raises(StaleError, match="nothing of the cluster a, only of 'b'"):
        read(found, NODES, "a", clocks_of(found, NOW, 100.0), BEFORE)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"wall": NOW + 61}, "clock is -61 s away"),
        ({"wall": NOW - 61}, "clock is \\+61 s away"),
        ({"before": None}, "the first answer"),
        ({"before": BEFORE._replace(prometheus=NOW)}, "stands still"),
        ({"before": BEFORE._replace(prometheus=NOW + 5)}, "stands still"),
        ({"before": BEFORE._replace(wall=NOW - 60)}, "the hub's clock has jumped by \\+45 s"),
        ({"before": BEFORE._replace(wall=NOW + 40)}, "the hub's clock has jumped by -55 s"),
        ({"before": BEFORE._replace(prometheus=NOW - 99)}, "Prometheus' clock has jumped"),
    ],
)
def test_nothing_is_decided_by_clocks_that_do_not_fit(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(StaleError, match=text):
        seen(fault(), **changes)


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "nothing"),
        ([fault()], "the rules are not loaded"),
        ([sample("alive", NOW - 151), fault()], "last evaluated 151 s ago"),
        ([sample("alive"), fault()._replace(time=NOW - 1)], "different times"),
    ],
)
def test_nothing_is_decided_by_rules_that_are_not_evaluated(
    samples: list[Sample], text: str
) -> None:
    with pytest.raises(StaleError, match=text):
        read(samples, NODES, "", clocks_of(samples, NOW, 100.0), BEFORE)


def test_time_without_an_answer_is_no_time_that_a_fault_lasted() -> None:
    assert seen(before=BEFORE._replace(usable=False)).elapsed == 0.0
    long_ago = Clocks(wall=NOW - 91, monotonic=9.0, prometheus=NOW - 91)
    assert seen(before=long_ago).elapsed == 0.0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            Sample,
            st.dictionaries(
                st.sampled_from([PART, "instance", "fault", "service", "cluster", "incident"]),
                st.sampled_from(["fault", "alive", "fresh", "gpu-1:9855", "[::1]:9", ":", "", "é"]),
            ),
            st.floats(allow_nan=False),
            st.just(NOW),
        )
    ),
    st.sampled_from(["", "a"]),
)
def test_any_answer_is_read_or_refused(samples: list[Sample], cluster: str) -> None:
    with suppress(StaleError):
        found = read(samples, NODES, cluster, clocks_of(samples, NOW, 100.0), BEFORE)
        assert {one.identity for one in found.faults} <= found.lasting
