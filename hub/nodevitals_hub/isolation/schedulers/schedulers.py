"""The interface to job schedulers: Kubernetes, Slurm, or a site's own commands.

In: isolations. Out: the state of nodes, or SchedulerError. Each method has its own deadline and
may be repeated: the id in the mark makes sure that an isolation is done once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nodevitals_hub.records import Fault, Isolation

MAX_REASON = 1000

FailureKind = Literal["unreachable", "refused", "unknown_node", "conflict", "taken"]
"""unreachable: the hub retries. refused: no permission, or an answer that is not understood; the
hub retries and reports it. unknown_node: the scheduler has no such node. conflict: the node has
changed meanwhile; the hub retries. taken: a person has taken the node out of service, or has
changed the hub's mark; the hub leaves the node alone."""


class SchedulerError(Exception):
    """The scheduler did not do it; the text is the reason, in one line."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class NodeState(NamedTuple):
    """The state of a node in the scheduler."""

    in_service: bool
    """Whether it takes new jobs."""
    mark: str = ""
    """Id of the isolation in the hub's mark; "" where there is none."""


class DrainProgress(NamedTuple):
    """What still runs on a node."""

    left: int
    blocked: str = ""
    """Why the rest cannot be ended now, in one line."""


class Scheduler(ABC):
    """One scheduler."""

    @abstractmethod
    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The states of these nodes, without those it does not have. Raises SchedulerError."""

    async def marked(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that carry any mark. A scheduler that cannot list all of them reads `nodes`
        only. Raises SchedulerError.
        """
        states = await self.states(nodes)
        return {node: state for node, state in states.items() if state.mark}

    @abstractmethod
    async def isolate(self, isolation: Isolation) -> None:
        """Take a node out of service and set the mark. A node that is out of service without the
        mark is `taken`. Raises SchedulerError.
        """

    @abstractmethod
    async def describe(self, isolation: Isolation) -> None:
        """Bring reason, condition and annotations of an isolated node up to date. Raises
        SchedulerError.
        """

    @abstractmethod
    async def drain(self, isolation: Isolation) -> DrainProgress:
        """Begin or continue to end what runs on an isolated node. Raises SchedulerError."""

    async def running(self, isolation: Isolation) -> DrainProgress:
        """What still runs on an isolated node; nothing is ended. Raises SchedulerError."""
        raise SchedulerError("refused", f"{isolation.node}: what runs there is not known")

    @abstractmethod
    async def restore(self, isolation: Isolation) -> None:
        """Return a node to service and remove the mark. A node that does not carry the mark with
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
