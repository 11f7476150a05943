"""What becomes of a repair, and whether it may begin.

In: isolations, what Prometheus says, objects of the API server, exit statuses. Out: the repair as
it is then. Pure. What a command or an object says is not trusted: it is cut and shown, no more.
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
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.repair.repair_records import RUNNING_STATES, Repair, RepairState, Target
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.settings.response import OutOfServiceSettings

MAX_TEXT = 200
MAX_CONDITIONS = 100
GOOD_TYPES, BAD_TYPES = ("Complete", "Succeeded"), ("Failed",)
GOOD_PHASES, BAD_PHASES = ("Succeeded",), ("Failed", "Error")


class View(NamedTuple):
    """What decides whether something may begin."""

    seen: Seen
    nodes: Mapping[str, Member]
    settings: OutOfServiceSettings
    ledger: Ledger

    def holds(self, isolation: Isolation) -> bool:
        """Whether the hub holds a node out of service, and may repair it now."""
        return (
            isolation.state == "isolated"
            and isolation.acted is not None
            and not (isolation.dry_run or self.settings.dry_run or isolation.restoring)
            and not self.ledger.breaker.open
            and (bool(isolation.approved_by) or chosen(isolation.node, self.nodes, self.settings))
        )

    def faults(self, isolation: Isolation, repair: RepairSettings) -> list[Fault]:
        """The confirmed faults of a node that a repair is for; [] where it may not begin."""
        if not self.holds(isolation):
            return []
        own = {fault.identity for fault in isolation.faults}
        return [
            fault
            for fault in self.seen.faults
            if fault.identity in own
            and fault.service in self.settings.services
            and repair.action in (None, fault.action)
            and (not repair.faults or fault.fault in repair.faults)
        ]


def began(repair: Repair, uid: str, now: float) -> Repair:
    """It runs."""
    if repair.state != "wanted":
        return repair
    target = repair.target and replace(repair.target, uid=uid)
    return replace(repair, state="started", started=now, target=target, text="")


def aimed(repair: Repair, target: Target | None, command: tuple[str, ...]) -> Repair:
    """What it starts, directly before."""
    if repair.state not in ("wanted", "dry_run"):
        return repair
    return replace(repair, target=target, command=command)


def impossible(repair: Repair, text: str) -> Repair:
    """A new one whose values do not fit; in a dry run, it would fail."""
    if repair.state == "dry_run":
        return replace(repair, text=line(f"it would fail: {text}"))
    return replace(repair, state="failed", ended=repair.created, text=line(text))


def noted(repair: Repair, text: str) -> Repair:
    """It was not done yet, or cannot be seen; tried again."""
    return replace(repair, text=line(text)) if repair.state in RUNNING_STATES else repair


def removing(repair: Repair, text: str) -> Repair:
    """It has succeeded, and its object is deleted: from now on, its absence is no riddle."""
    return replace(repair, removing=line(text)) if repair.state == "started" else repair


def over(repair: Repair, state: RepairState, text: str, now: float) -> Repair:
    """It has ended."""
    if repair.state not in RUNNING_STATES:
        return repair
    return replace(repair, state=state, ended=now, text=line(text))


def of_command(ended: Ended, seconds: float) -> tuple[RepairState, str]:
    """What a command that has ended says, with the last line of its output."""
    lines = [one for one in ended.text.splitlines() if one.strip()]
    last = f": {lines[-1]}" if lines else ""
    if ended.status == 0:
        return "succeeded", f"status 0{last}"
    if ended.timed_out:
        return "timed_out", f"ended after {seconds:g} s{last}"
    return "failed", f"status {ended.status}{last}"


def of_object(found: Mapping[str, Any]) -> tuple[RepairState, str] | None:
    """What the status of an object says; None while it has not ended."""
    status = found.get("status")
    if not isinstance(status, Mapping):
        return None
    conditions = {one["type"]: one for one in _conditions(status.get("conditions"))}
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
    """A text of another program in one line that can be shown."""
    words = " ".join(text[: 4 * MAX_TEXT].split())[:MAX_TEXT]
    return "".join(one if one.isprintable() else "?" for one in words)


def _conditions(found: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(found, list):
        return ()
    return [
        one
        for one in found[:MAX_CONDITIONS]
        if isinstance(one, Mapping) and isinstance(one.get("type"), str)
    ]


def _is(conditions: Mapping[str, Mapping[str, Any]], kind: str, value: str) -> bool:
    return kind in conditions and conditions[kind].get("status") == value


def _named(state: str) -> RepairState:
    return "failed" if state == "failed" else "succeeded"


def _said(condition: Mapping[str, Any]) -> str:
    words = (condition.get("type"), condition.get("reason"), condition.get("message"))
    return ": ".join(str(one)[:MAX_TEXT] for one in words if one)
