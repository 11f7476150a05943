"""Slurm: `scontrol update` drains a node, and State=RESUME returns it.

In: isolations. Out: programs, each with a deadline and a bounded output; SchedulerError. The mark
is the beginning of the node's reason: `nodevitals ID: …`. Slurm has no versions of nodes, so the
hub reads the node before and after each change.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nodevitals.checks import processes
from nodevitals_hub.isolation.schedulers.schedulers import (
    DrainProgress,
    FailureKind,
    NodeState,
    Scheduler,
    SchedulerError,
    reason_of,
)
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings

SECONDS = 20.0
AT_A_TIME = 4
MAX_REASON = 200
# In a prolog, an epilog or a job, a command that waits for slurmctld may block it.
# https://slurm.schedmd.com/prolog_epilog.html
FORBIDDEN_ENVIRONMENT = ("SLURM_JOB_ID", "SLURM_SCRIPT_CONTEXT")
OUT = ("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN")
BY_PERSON = ("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING")
# Reasons that slurmctld sets by itself; such a node may return without a person.
BY_SLURMCTLD = ("Not responding", "Node unexpectedly rebooted")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_MARK = re.compile(r"nodevitals ([0-9]{8}-[0-9]{6}-[a-z0-9]{6}):")
_UNSAFE = re.compile(r"[^A-Za-z0-9_ .,:/()%+-]")
_FAILURES: tuple[tuple[str, FailureKind], ...] = (
    ("Invalid node name", "unknown_node"),
    ("Unable to contact slurm controller", "unreachable"),
    ("Socket timed out", "unreachable"),
    ("Connection refused", "unreachable"),
    ("Zero Bytes were transmitted", "unreachable"),
)


class SlurmNode(NamedTuple):
    """A node, as `scontrol show node NAME --oneliner` prints it."""

    name: str
    states: tuple[str, ...]
    """The base state and the flags, without suffixes."""
    reason: str
    cpus: int
    """Number of CPUs allocated to jobs."""

    @property
    def in_service(self) -> bool:
        """Whether it takes new jobs."""
        return not set(self.states) & set(OUT)

    @property
    def mark(self) -> str:
        """The id in the hub's mark, or ""."""
        match = _MARK.match(self.reason)
        return match[1] if match else ""

    @property
    def taken(self) -> bool:
        """Whether a person has taken it out of service."""
        if self.in_service:
            return False
        by_itself = "DOWN" in self.states and self.reason in BY_SLURMCTLD
        return bool(set(self.states) & set(BY_PERSON)) or not by_itself


def parse_node(text: str) -> SlurmNode:
    """Parse one line of `scontrol`. Raises ValueError."""
    lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} nodes in the output instead of 1")
    head, _, tail = lines[0].partition(" State=")
    state = tail.partition(" ")[0]
    words = dict(word.partition("=")[::2] for word in head.split())
    cpus = words.get("CPUAlloc", "")
    if not state or not cpus.isdigit():
        raise ValueError("no State or no CPUAlloc in the output")
    reason = tail.partition(" Reason=")[2].partition(" Comment=")[0]
    states = tuple(part.rstrip("*~#!%$@^-") for part in state.upper().split("+"))
    reason = reason.rpartition(" [")[0] if " [" in reason else reason
    return SlurmNode(words["NodeName"], states, reason.strip(), int(cpus))


def reason_words(isolation: Isolation) -> str:
    """The reason of a drained node: the mark and the faults, in one line without quotes."""
    faults = _UNSAFE.sub("?", reason_of(isolation))
    return f"nodevitals {isolation.id}: {faults}"[:MAX_REASON].strip()


class SlurmScheduler(Scheduler):
    """One Slurm cluster."""

    def __init__(self, settings: OutOfServiceSettings) -> None:
        self._scontrol = settings.slurm.scontrol
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that it has, of these. Raises SchedulerError."""
        names = list(dict.fromkeys(nodes))
        answers = await asyncio.gather(*map(self._show, names), return_exceptions=True)
        known: dict[str, NodeState] = {}
        for name, answer in zip(names, answers):
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None:
                known[name] = NodeState(answer.in_service, answer.mark)
        return known

    async def isolate(self, isolation: Isolation) -> None:
        """Drain the node, with our mark. Raises SchedulerError."""
        node = await self._known(isolation.node)
        if node.mark == isolation.id and node.in_service:
            raise SchedulerError("taken", f"{node.name}: a person has returned it to service")
        if node.mark != isolation.id and node.taken:
            raise SchedulerError("taken", f"{node.name}: out of service already: {node.reason}")
        if node.in_service and node.reason and not node.mark:
            # For example of a requested reboot, after which Slurm removes the reason.
            text = f"{node.name}: in service with a reason of another: {node.reason}"
            raise SchedulerError("conflict", text)
        if node.mark != isolation.id:
            await self._update(node.name, "State=DRAIN", f"Reason={reason_words(isolation)}")
            after = await self._known(node.name)
            if after.mark != isolation.id or after.in_service:
                raise SchedulerError("conflict", f"{node.name}: changed by another meanwhile")

    async def describe(self, isolation: Isolation) -> None:
        """Bring the reason up to date. Raises SchedulerError."""
        node = await self._known(isolation.node)
        if node.mark != isolation.id:
            raise SchedulerError("taken", f"{node.name}: our mark was changed")
        if node.reason != reason_words(isolation):
            await self._update(node.name, f"Reason={reason_words(isolation)}")

    async def drain(self, isolation: Isolation) -> DrainProgress:
        """What still runs: jobs end by themselves. Raises SchedulerError."""
        node = await self._known(isolation.node)
        busy = node.cpus > 0 or "COMPLETING" in node.states
        return DrainProgress(int(busy), "jobs end by themselves" if busy else "")

    async def running(self, isolation: Isolation) -> DrainProgress:
        """As `drain`, which ends nothing. Raises SchedulerError."""
        return await self.drain(isolation)

    async def restore(self, isolation: Isolation) -> None:
        """Resume the node. Raises SchedulerError."""
        node = await self._known(isolation.node)
        if node.mark != isolation.id:
            raise SchedulerError("taken", f"{node.name}: it does not carry our mark")
        if not node.in_service:
            await self._update(node.name, "State=RESUME")
            after = await self._known(node.name)
            if "DRAIN" in after.states:
                raise SchedulerError("conflict", f"{node.name}: still drained")

    async def close(self) -> None:
        """Nothing: a program ends with the call that started it."""

    async def _known(self, name: str) -> SlurmNode:
        node = await self._show(name)
        if node is None:
            raise SchedulerError("unknown_node", f"Slurm has no node {name}")
        return node

    async def _show(self, name: str) -> SlurmNode | None:
        _check_name(name)
        ended = await self._run("show", "node", name, "--oneliner")
        if ended.status == 1 and ended.text.strip() == f"Node {name} not found":
            return None
        try:
            node = parse_node(self._good(ended))
        except ValueError as error:
            raise SchedulerError("refused", f"scontrol show node {name}: {error}") from None
        if node.name != name:
            raise SchedulerError("refused", f"scontrol show node {name}: another node")
        return node

    async def _update(self, name: str, *words: str) -> None:
        _check_name(name)
        self._good(await self._run("update", f"NodeName={name}", *words))

    async def _run(self, *words: str) -> processes.Ended:
        for variable in FORBIDDEN_ENVIRONMENT:
            if variable in os.environ:
                text = f"{variable} is set: the hub must not run in a job, a prolog or an epilog"
                raise SchedulerError("refused", text)
        async with self._room:
            return await processes.run([self._scontrol, *words], SECONDS)

    def _good(self, ended: processes.Ended) -> str:
        """The output of a program that ended with 0. Raises SchedulerError."""
        if ended.status == 0:
            return ended.text
        if ended.timed_out:
            raise SchedulerError("unreachable", f"scontrol: not ended within {SECONDS:g} s")
        text = " ".join(ended.text.split())[:200]
        kinds = [kind for words, kind in _FAILURES if words in ended.text]
        kind: FailureKind = kinds[0] if kinds else "refused"
        raise SchedulerError(kind, f"scontrol: status {ended.status}: {text}")


def _check_name(name: str) -> None:
    """Refuse a name that Slurm would expand to several nodes, such as gpu-[1-9] or a,b."""
    if not _NODE.match(name):
        raise SchedulerError("refused", f"{name[:60]!r} is not the name of one node")
