"""Alerts open, extend and resolve incidents; figures of a month."""

from __future__ import annotations

import calendar
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals_hub.incidents import incident_log
from nodevitals_hub.incidents.incident_log import key_of, taken, vanished
from nodevitals_hub.incidents.incident_summary import bounds, month_of, summary
from nodevitals_hub.records import ZERO_TIME, Alert, Incident
from nodevitals_hub.settings.response import IncidentsSettings, TargetSettings

SETTINGS = IncidentsSettings()
NODE = "gpu-7"


def alert(name: str = "a1", status: Any = "firing", start: int = 1, **labels: str) -> Alert:
    own = {"alertname": "AcceleratorLost", "instance": f"{NODE}:9855", "severity": "critical"}
    return Alert(
        status=status,
        fingerprint=name,
        labels={**own, **labels},
        annotations={"summary": f"{name} of {NODE}"},
        starts_at=f"2026-11-22T08:{start:02d}:00Z",
        ends_at=ZERO_TIME if status == "firing" else "2026-11-22T09:00:00Z",
    )


def new(now: float = 0.0) -> Incident:
    return Incident(
        id="20261122-080000-abcdef",
        key="k",
        title="",
        severity="critical",
        node=NODE,
        opened=now,
    )


def after(*alerts: Alert, gap: float = 10.0) -> list[Incident]:
    """The incidents of one node after these alerts, the newest last."""
    found: list[Incident] = []
    for number, one in enumerate(alerts):
        now = number * gap
        fresh = replace(new(now), id=f"20261122-08{number:04d}-abcdef")
        newest = found[-1] if found else None
        changed = taken(one, newest, fresh, SETTINGS, now)
        if changed is None:
            continue
        if newest is not None and changed.id == newest.id:
            found[-1] = changed
        else:
            found.append(changed)
    return found


def test_an_alert_opens_an_incident_and_its_end_resolves_it() -> None:
    [found] = after(alert(), alert(status="resolved"))
    assert found.title == f"a1 of {NODE}"
    assert (found.opened, found.resolved) == (0.0, 10.0)


def test_the_same_alert_by_another_receiver_changes_nothing() -> None:
    [found] = after(alert(), alert(), alert(status="resolved"), alert(status="resolved"))
    assert found.resolved == 20.0


def test_an_incident_lasts_until_all_of_its_alerts_have_ended() -> None:
    [found] = after(alert("a1"), alert("a2"), alert("a1", "resolved"))
    assert found.resolved is None
    [found] = after(alert("a1"), alert("a2"), alert("a1", "resolved"), alert("a2", "resolved"))
    assert found.resolved == 30.0


def test_a_firing_message_that_arrives_after_the_end_opens_nothing() -> None:
    [found] = after(alert(), alert(status="resolved"), alert())
    assert found.resolved is not None


def test_a_fault_that_fires_again_with_the_same_start_goes_on() -> None:
    """Where its own group said that it was resolved, or that was long ago: Prometheus was away, or
    a silence ended.
    """
    [over] = after(alert(), alert(status="resolved"))
    found = taken(alert(), over, new(), SETTINGS, 30.0, again=True)
    assert found is not None
    assert (found.id, found.resolved) == (over.id, None)
    end = calendar.timegm((2026, 11, 22, 9, 0, 0))
    assert taken(alert(), over, new(), SETTINGS, end + 500.0) is None
    assert taken(alert(), over, new(), SETTINGS, end + 700.0) is not None
    [silenced] = after(alert())
    silenced = vanished(silenced, set(), {"a1": 100.0}, 400.0, 300.0)
    assert silenced.resolved == 400.0
    assert taken(alert(), silenced, new(), SETTINGS, 500.0) is None
    assert taken(alert(), silenced, new(), SETTINGS, 1100.0) is not None


def test_an_alert_that_comes_again_soon_continues_the_incident() -> None:
    [found] = after(alert(), alert(status="resolved"), alert(start=9))
    assert found.resolved is None
    assert len(after(alert(), alert(status="resolved"), alert(start=9), gap=700)) == 2


def test_the_end_of_an_unknown_alert_is_no_incident() -> None:
    assert after(alert(status="resolved")) == []


def test_an_acknowledgement_survives_what_comes_later() -> None:
    [found] = after(alert())
    found = replace(found, acknowledged=5.0, acknowledged_by="Li")
    changed = taken(alert("a2"), found, new(), SETTINGS, 10.0)
    assert changed is not None
    assert changed.acknowledged_by == "Li"


def test_one_incident_per_node_and_per_fleet_incident() -> None:
    assert key_of(alert("a", device="0"), NODE) == key_of(alert("b", alertname="Other"), NODE)
    assert key_of(alert(), NODE) != key_of(alert(), "gpu-8")
    assert key_of(alert(), NODE) != key_of(alert(cluster="b"), NODE)
    assert key_of(alert(), NODE) != key_of(alert(drill="true"), NODE)
    first = key_of(alert(scope="fleet", domain="leaf", domain_name="leaf-1"), "")
    same = alert("b", scope="fleet", domain="leaf", domain_name="leaf-1", instance="other")
    assert first == key_of(same, "")
    assert first != key_of(alert(scope="fleet", domain="leaf", domain_name="leaf-2"), "")


def test_a_warning_is_no_incident_unless_the_site_wants_it() -> None:
    assert not incident_log.opens(alert(severity="warning"), SETTINGS)
    wanted = IncidentsSettings(severities=("critical", "warning"))
    assert incident_log.opens(alert(severity="warning"), wanted)
    assert not incident_log.opens(alert(severity="odd"), wanted)


def test_what_alertmanager_does_not_have_ends_after_a_while() -> None:
    [found] = after(alert("a1"), alert("a2"))
    since = {"a1": 100.0}
    assert vanished(found, {"a2"}, since, 399.0, 300.0) is found
    changed = vanished(found, {"a2"}, since, 400.0, 300.0)
    assert changed.alerts["a1"].status == "resolved"
    assert changed.resolved is None
    both = vanished(found, set(), {"a1": 100.0, "a2": 100.0}, 400.0, 300.0)
    assert both.resolved == 400.0
    assert vanished(found, {"a1", "a2"}, {"a1": 0.0, "a2": 0.0}, 9e9, 300.0) is found


@given(
    st.lists(
        st.tuples(st.sampled_from(["a1", "a2", "a3"]), st.booleans(), st.integers(0, 3)),
        max_size=30,
    )
)
def test_any_order_of_messages_gives_consistent_incidents(
    said: list[tuple[str, bool, int]],
) -> None:
    """An incident is resolved if and only if none of its alerts fires, and only the newest of a
    key is ever unresolved.
    """
    found = after(*(alert(n, "firing" if firing else "resolved", s) for n, firing, s in said))
    for one in found:
        fires = any(own.status == "firing" for own in one.alerts.values())
        assert fires == (one.resolved is None)
        assert one.resolved is None or one.resolved >= one.opened
    assert all(one.resolved is not None for one in found[:-1])


def test_many_alerts_are_bounded() -> None:
    found = after(*(alert(f"a{number}") for number in range(600)), gap=0)
    assert len(found[0].alerts) == incident_log.MAX_ALERTS_KEPT


def test_the_figures_of_a_month() -> None:
    settings = IncidentsSettings(targets={"critical": TargetSettings(acknowledge=300, repair=3600)})
    base = new(1000.0)
    incidents = [
        replace(base, acknowledged=1100.0, resolved=2000.0, false_alarm=False),
        replace(base, acknowledged=1900.0, resolved=9000.0, false_alarm=True),
        replace(base, node="gpu-8"),
        replace(base, drill=True, resolved=1001.0),
    ]
    found = summary("1970-01", incidents, settings)
    [critical] = found.severities
    assert (critical.count, critical.marked, critical.false_alarms) == (3, 2, 1)
    assert critical.precision == 0.5
    assert (critical.acknowledge.median, critical.acknowledge.longest) == (500.0, 900.0)
    assert critical.acknowledge.in_target == 0.5
    assert critical.repair.in_target == 0.5
    assert found.repeated == ((NODE, 2),)


def test_a_month_without_incidents_has_no_figures() -> None:
    assert summary("2026-11", [], SETTINGS).severities == ()


@pytest.mark.parametrize("month", ["2026-01", "2026-12", "2024-02"])
def test_months_follow_each_other(month: str) -> None:
    first, last = bounds(month)
    assert month_of(first) == month
    assert month_of(last - 1) == month
    assert month_of(last) != month
    assert bounds(month_of(last))[0] == last
    year, number = map(int, month.split("-"))
    assert (last - first) / 86400 == calendar.monthrange(year, number)[1]


@pytest.mark.parametrize("month", ["", "2026", "2026-13", "0001-01", "2026-11-01", "x", "9999-12"])
def test_what_is_no_month_is_refused(month: str) -> None:
    with pytest.raises(ValueError, match=r"month|format|unconverted"):
        bounds(month)
