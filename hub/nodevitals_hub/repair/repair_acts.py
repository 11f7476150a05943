"""Decides whether a repair may begin, and what its state is.

In: isolations, the alerts of Prometheus, objects of the API server, exit statuses. Out: the changed
repair. No I/O. Texts of commands and objects are not trusted: they are only cut and shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodevitals.checks.processes import Ended
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_states import chosen
from nodevitals_hub.isolation.ledger import Ledger
from nodevitals_hub.isolation.recovery import takes_out
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.repair.repair_records import RUNNING_STATES, Repair, RepairState, Target
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.settings.response import OutOfServiceSettings

MAX_TEXT = 200
MAX_CONDITIONS = 100
GOOD_TYPES, BAD_TYPES = ("Complete", "Succeeded"), ("Failed",)
GOOD_PHASES, BAD_PHASES = ("Succeeded",), ("Failed", "Error")


class View(NamedTuple):
    """The facts that decide whether a repair may begin."""

    seen: Seen
    nodes: Mapping[str, Member]
    settings: OutOfServiceSettings
    ledger: Ledger

    def holds(self, isolation: Isolation) -> bool:
        """Whether the hub keeps a node out of service, and may repair it now."""
        return (
            isolation.state == "isolated"
            and isolation.acted is not None
            and not (isolation.dry_run or self.settings.dry_run or isolation.restoring)
            and not self.ledger.breaker.open
            and (bool(isolation.approved_by) or chosen(isolation.node, self.nodes, self.settings))
        )

    def faults(self, isolation: Isolation, repair: RepairSettings) -> list[Fault]:
        """The confirmed faults of a node that a repair handles; [] where it may not begin."""
        if not self.holds(isolation):
            return []
        own = {fault.identity for fault in isolation.faults}
        return [
            fault
            for fault in self.seen.faults
            if fault.identity in own
            and takes_out(fault, self.settings)
            and repair.action in (None, fault.action)
            and (not repair.faults or fault.fault in repair.faults)
        ]


def began(repair: Repair, uid: str, now: float) -> Repair:
    """The repair as running."""
    if repair.state != "wanted":
        return repair
    target = repair.target and replace(repair.target, uid=uid)
    return replace(repair, state="started", started=now, target=target, text="")


def aimed(repair: Repair, target: Target | None, command: tuple[str, ...]) -> Repair:
    """The repair with its object or command, directly before the start."""
    if repair.state not in ("wanted", "dry_run"):
        return repair
    return replace(repair, target=target, command=command)


def impossible(repair: Repair, text: str) -> Repair:
    """A new repair that cannot start, as its values do not fit; a dry run shows the same."""
    if repair.state == "dry_run":
        return replace(repair, text=line(f"it would fail: {text}"))
    return replace(repair, state="failed", ended=repair.created, text=line(text))


def noted(repair: Repair, text: str) -> Repair:
    """The repair with a note: a request failed, and is tried again."""
    return replace(repair, text=line(text)) if repair.state in RUNNING_STATES else repair


def removing(repair: Repair, text: str) -> Repair:
    """The repair, which has succeeded, before its object is deleted: that object may be absent."""
    return replace(repair, removing=line(text)) if repair.state == "started" else repair


def over(repair: Repair, state: RepairState, text: str, now: float) -> Repair:
    """The repair as ended."""
    if repair.state not in RUNNING_STATES:
        return repair
    return replace(repair, state=state, ended=now, text=line(text))


def of_command(ended: Ended, seconds: float) -> tuple[RepairState, str]:
    """The outcome of an ended command, with the last line of its output."""
    lines = [row for row in ended.text.splitlines() if row.strip()]
    last = f": {lines[-1]}" if lines else ""
    if ended.status == 0:
        return "succeeded", f"status 0{last}"
    if ended.timed_out:
        return "timed_out", f"ended after {seconds:g} s{last}"
    return "failed", f"status {ended.status}{last}"


def of_object(document: Mapping[str, Any]) -> tuple[RepairState, str] | None:
    """The outcome by the status of an object; None while it has not ended."""
    status = document.get("status")
    if not isinstance(status, Mapping):
        return None
    conditions = {
        condition["type"]: condition for condition in _conditions(status.get("conditions"))
    }
    for kinds, state in ((BAD_TYPES, "failed"), (GOOD_TYPES, "succeeded")):
        for kind in kinds:
            if _is(conditions, kind, "True"):
                return _named(state), _said(conditions[kind])
    if _is(conditions, "Succeeded", "False") and not _is(conditions, "Processing", "True"):
        return "failed", _said(conditions["Succeeded"])
    phase = status.get("phase")
    if phase in GOOD_PHASES:
        return "succeeded", f"phase {phase}"
    return ("failed", f"phase {phase}") if phase in BAD_PHASES else None


def line(text: str) -> str:
    """The text of another program in one printable line."""
    words = " ".join(text[: 4 * MAX_TEXT].split())[:MAX_TEXT]
    return "".join(character if character.isprintable() else "?" for character in words)


def _conditions(conditions: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(conditions, list):
        return ()
    return [
        condition
        for condition in conditions[:MAX_CONDITIONS]
        if isinstance(condition, Mapping) and isinstance(condition.get("type"), str)
    ]


def _is(conditions: Mapping[str, Mapping[str, Any]], kind: str, value: str) -> bool:
    return kind in conditions and conditions[kind].get("status") == value


def _named(state: str) -> RepairState:
    return "failed" if state == "failed" else "succeeded"


def _said(condition: Mapping[str, Any]) -> str:
    words = (condition.get("type"), condition.get("reason"), condition.get("message"))
    return ": ".join(str(word)[:MAX_TEXT] for word in words if word)
