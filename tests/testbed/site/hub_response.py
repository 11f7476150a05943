"""What the hub of the simulated fleet does about alerts: incidents, notifications, nodes out of
service and their repairs.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.site.series import Series, Value, grows

MINUTE, DAY = 60.0, 86400.0
Sample = tuple[str, dict[str, str], Value]
REAL = {"dry_run": "false"}
TRAINING = {"pool": "training"} | REAL


def response(own: dict[str, str], now: float, faults: bool) -> list[Series]:
    """Return the series; with faults, some of what the hub does fails or waits for a person.
    `own` are the labels of all of its series.
    """
    found = [*_always(now - DAY), *(_when_broken(now) if faults else ())]
    return [Series(f"nodevitals_hub_{name}", own | labels, value) for name, labels, value in found]


def _always(start: float) -> Iterator[Sample]:
    yield "address_info", {"url": "https://hub.example.org"}, 1.0
    yield "isolation_answer_age_seconds", {}, 12.0
    yield "isolation_breaker_open", REAL, 0.0
    yield "notifications_waiting", {"channel": "oncall"}, 0.0
    for outcome, rate in (("sent", 20 / DAY), ("failed", 0.0), ("dropped", 0.0)):
        of_channel = {"channel": "oncall", "outcome": outcome}
        yield "notifications_total", of_channel, grows(rate, start)
    for action in ("reset_device", "reboot_node"):
        yield "repairs_running", {"action": action}, 0.0
        yield "repairs_failed", {"action": action}, 0.0


def _when_broken(now: float) -> Iterator[Sample]:
    start = now - DAY
    for state, number in (("open", 2.0), ("acknowledged", 1.0)):
        yield "incidents", {"severity": "critical", "state": state}, number
    critical = {"severity": "critical"}
    yield "incidents_acknowledged_total", critical, grows(6 / DAY, start)
    yield "incident_acknowledge_seconds_total", critical, grows(6 * 240 / DAY, start)
    yield "incidents_resolved_total", critical, grows(4 / DAY, start)
    yield "incident_repair_seconds_total", critical, grows(4 * 5400 / DAY, start)
    yield "notifications_waiting", {"channel": "tickets"}, 3.0
    for outcome, rate in (("sent", 0.0), ("failed", 1 / 600), ("dropped", 1 / 1800)):
        of_channel = {"channel": "tickets", "outcome": outcome}
        yield "notifications_total", of_channel, grows(rate, start)
    for state, number in (("isolated", 2.0), ("testing", 1.0), ("kept", 1.0)):
        yield "isolations", TRAINING | {"state": state}, number
    for outcome, number in (("isolated", 4.0), ("returned", 3.0), ("kept", 1.0)):
        yield "isolation_decisions_total", REAL | {"outcome": outcome}, grows(number / DAY, start)
    yield "isolation_problems", {"reason": "unreachable"}, 1.0
    yield "repairs_running", {"action": "drain"}, 1.0
    yield "repairs_failed", {"action": "replace"}, 1.0
    for outcome, number in (("started", 4.0), ("succeeded", 2.0), ("failed", 1.0)):
        of_action = {"action": "reboot_node", "outcome": outcome}
        yield "repairs_total", of_action, grows(number / DAY, start)
    yield "set_aside", {"what": "message"}, 2.0
    yield "set_aside_timestamp_seconds", {"what": "message"}, now - 20 * MINUTE
