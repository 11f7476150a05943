"""Records of repairs, in respond.db and in the REST API. A record is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from nodevitals_hub.isolation.schedulers.kubernetes_objects import REPAIR
from nodevitals_hub.records import Identity

RepairState = Literal[
    "wanted", "started", "succeeded", "failed", "timed_out", "unknown", "canceled", "dry_run"
]
"""wanted: decided, and not known to be started. started: it runs. succeeded, failed: what the
object or the command said. timed_out: not ended within its time. unknown: its end was not seen.
canceled: its conditions ended before it was started. dry_run: it would have been started."""
RUNNING_STATES: tuple[RepairState, ...] = ("wanted", "started")
OUTCOMES: tuple[RepairState, ...] = (
    *("started", "succeeded", "failed", "timed_out", "unknown", "canceled", "dry_run"),
)
BAD_STATES: tuple[RepairState, ...] = ("failed", "timed_out", "unknown")
"""A person has to look."""
ACTIONS = ("none", "investigate", "restart_app", "reset_device", "reboot_node", "replace")


class ApiRefusal(Exception):  # noqa: N818 - also no answer at all
    """A request failed; the text is the reason. `code` is the HTTP status, 0 without an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of an object at the API server."""

    api_version: str
    kind: str
    resource: str
    namespace: str = ""
    """"" for an object of the whole cluster."""
    name: str
    uid: str = ""
    """That of the object that was created."""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


class Repair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A repair, started once for an isolation. `id` consists of the isolation's id and `name`."""

    id: str
    isolation: Identity
    name: str
    """That in the settings."""
    node: str
    fault: str
    device_id: str = ""
    action: str = ""
    """That of the fault."""
    state: RepairState
    created: float
    started: float | None = None
    ended: float | None = None
    target: Target | None = None
    """The object; None for a command."""
    command: tuple[str, ...] = ()
    """The words of the command, as they were executed."""
    timeout: float
    lasted: float = 0.0
    """Seconds since it was decided, by the monotonic clock, while the hub was there."""
    remove: bool = False
    """Whether its object is deleted when it has succeeded."""
    removing: str = ""
    """What the object said, directly before it is deleted."""
    text: str = ""
    """What became of it, in one line."""

    @property
    def what(self) -> str:
        """The object or the command, in one line."""
        return str(self.target) if self.target is not None else " ".join(self.command)

    @property
    def line(self) -> str:
        """The repair's name, state and reason, in one line."""
        dry = "dry run: would be started" if self.what else "dry run"
        words = {"wanted": "to be started", "dry_run": dry}
        state = words.get(self.state, self.state.replace("_", " "))
        shown = self.state in ("wanted", "dry_run", "started")
        more = ": ".join(filter(None, (self.what[:200] if shown else "", self.text)))
        return f"repair {self.name}: {state}{': ' if more else ''}{more}"


def uid_of(document: Mapping[str, Any]) -> str:
    """The uid of an object."""
    return str(document["metadata"].get("uid") or "")


def is_of(document: Mapping[str, Any], identity: str) -> bool:
    """Whether an object was created by this repair."""
    labels = document["metadata"].get("labels")
    return isinstance(labels, Mapping) and labels.get(REPAIR) == identity
