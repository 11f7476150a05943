"""What schedules jobs on nodes, and can keep them away from one: Kubernetes, Slurm, a command.

In: isolations. Out: the state of nodes, or SchedulerError. Each method has a deadline of its own
and may be called again: the same isolation is done once, by the id in its mark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nodevitals_hub.records import Fault, Isolation

MAX_REASON = 1000

FailureKind = Literal["unreachable", "refused", "unknown_node", "conflict", "taken"]
"""unreachable: tried again. refused: no permission, or not understood; tried again, and reported.
unknown_node: it has no such node. conflict: changed meanwhile; tried again. taken: a person has
taken the node out of service, or has changed our mark; it is left alone."""


class SchedulerError(Exception):
    """It was not done; the text says why, in one line."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class NodeState(NamedTuple):
    """A node, as the scheduler has it."""

    in_service: bool
    """Whether it takes new jobs."""
    mark: str = ""
    """Id of the isolation in our mark; "" where there is none."""


class DrainProgress(NamedTuple):
    """What still runs on a node."""

    left: int
    blocked: str = ""
    """Why the rest cannot be ended now, in one line."""


class Scheduler(ABC):
    """One scheduler."""

    @abstractmethod
    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that it has, of these. Raises SchedulerError."""

    async def marked(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that carry a mark, of any id. A scheduler that cannot be asked for all of them
        looks at `nodes`. Raises SchedulerError.
        """
        found = await self.states(nodes)
        return {node: state for node, state in found.items() if state.mark}

    @abstractmethod
    async def isolate(self, isolation: Isolation) -> None:
        """Take a node out of service, with our mark. A node that is out of service without our
        mark is `taken`. Raises SchedulerError.
        """

    @abstractmethod
    async def describe(self, isolation: Isolation) -> None:
        """Bring reason, condition and annotations of an isolated node up to date. Raises
        SchedulerError.
        """

    @abstractmethod
    async def drain(self, isolation: Isolation) -> DrainProgress:
        """Begin, or go on, to end what runs on an isolated node. Raises SchedulerError."""

    async def running(self, isolation: Isolation) -> DrainProgress:
        """What still runs on an isolated node; nothing is ended. Raises SchedulerError."""
        raise SchedulerError("refused", f"{isolation.node}: what runs there is not known")

    @abstractmethod
    async def restore(self, isolation: Isolation) -> None:
        """Return a node to service, and remove our mark. A node that does not carry the mark with
        this id is `taken`. Raises SchedulerError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close connections, end processes."""


def reason_of(isolation: Isolation) -> str:
    """The faults in one line: `nvidia_xid of GPU-5d2…, mount_hung of /data`."""
    faults = isolation.present or isolation.faults
    return ", ".join(map(_named, faults))[:MAX_REASON] or "no fault"


def _named(fault: Fault) -> str:
    return f"{fault.fault} of {fault.device_id}" if fault.device_id else fault.fault
