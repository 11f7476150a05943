"""A scheduler of the site's own commands: argv lists, never through a shell.

In: isolations. Out: commands, each with a deadline and a bounded output; the parsed `status`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from nodevitals.checks import processes
from nodevitals_hub.isolation.schedulers.schedulers import (
    DrainProgress,
    NodeState,
    Scheduler,
    SchedulerError,
)
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import CommandSettings, OutOfServiceSettings

AT_A_TIME = 4
MAX_STATUS = 200
MAX_REASON = 200
UNKNOWN = "unknown"
# A word of an argv: no option, no control character, nothing special in a path or a shell.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}\Z")
_MARK = re.compile(r"isolated ([0-9]{8}-[0-9]{6}-[a-z0-9]{6})\Z")
_NAMES = re.compile(r"\{(?:node|id|reason)\}")
_UNSAFE = re.compile(r"[^\w .,:/()%+-]")


def parse_status(text: str) -> NodeState | None:
    """Parse the output of the command `status`; None for an unknown node. Raises ValueError."""
    words = text.strip()
    if words == "in service":
        return NodeState(in_service=True)
    if words == "out of service":
        return NodeState(in_service=False)
    if words == UNKNOWN:
        return None
    match = _MARK.match(words)
    if match is None:
        raise ValueError(
            f"{words[:60]!r}: it has to print in service, isolated ID, out of service or unknown"
        )
    return NodeState(in_service=False, mark=match[1])


def words_of(command: Sequence[str], node: str, identity: str = "", reason: str = "") -> list[str]:
    """A command with its placeholders replaced, each within its word. Raises SchedulerError."""
    if not _NODE.match(node):
        raise SchedulerError("refused", f"{node[:60]!r} is no name that a command is given")
    said = _UNSAFE.sub("?", reason)[:MAX_REASON].strip()
    values = {"{node}": node, "{id}": identity, "{reason}": f"nodevitals {identity}: {said}"}
    return [_NAMES.sub(lambda match: values[match[0]], word) for word in command]


class CommandScheduler(Scheduler):
    """The commands of one configuration."""

    def __init__(self, settings: OutOfServiceSettings) -> None:
        if settings.command is None:
            raise ValueError("out_of_service.command: missing, as the scheduler is `command`")
        self._commands: CommandSettings = settings.command
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that it has, of these. Raises SchedulerError."""
        answers = await asyncio.gather(*map(self._state, nodes), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return {
            node: state
            for node, state in zip(nodes, answers)
            if state is not None and not isinstance(state, BaseException)
        }

    async def isolate(self, isolation: Isolation) -> None:
        """Take a node out of service. Raises SchedulerError."""
        state = await self._known(isolation.node)
        if state.mark == isolation.id:
            return
        if not state.in_service:
            raise SchedulerError("taken", f"{isolation.node} is out of service already")
        await self._run(
            words_of(self._commands.isolate, isolation.node, isolation.id, isolation.reason)
        )
        after = await self._known(isolation.node)
        if after.mark != isolation.id:
            raise SchedulerError("conflict", "`isolate` ended well, but `status` has no mark of it")

    async def describe(self, isolation: Isolation) -> None:
        """Nothing: `isolate` has already passed the reason to the site's command."""

    async def drain(self, isolation: Isolation) -> DrainProgress:  # noqa: ARG002
        """Nothing: the site's command `isolate` decides what to do with jobs."""
        return DrainProgress(0)

    async def restore(self, isolation: Isolation) -> None:
        """Return a node to service. Raises SchedulerError."""
        state = await self._known(isolation.node)
        if state.mark != isolation.id:
            raise SchedulerError(
                "taken", f"{isolation.node} does not carry the mark {isolation.id}"
            )
        await self._run(words_of(self._commands.restore, isolation.node, isolation.id))
        after = await self._known(isolation.node)
        if not after.in_service:
            raise SchedulerError("conflict", "`restore` ended well, but `status` is not in service")

    async def close(self) -> None:
        """Nothing: a command ends with the call that started it."""

    async def _known(self, node: str) -> NodeState:
        state = await self._state(node)
        if state is None:
            raise SchedulerError("unknown_node", f"`status` does not know {node}")
        return state

    async def _state(self, node: str) -> NodeState | None:
        text = await self._run(words_of(self._commands.status, node))
        try:
            return parse_status(text[:MAX_STATUS])
        except ValueError as error:
            raise SchedulerError("refused", f"`status` of {node}: {error}") from None

    async def _run(self, argv: Sequence[str]) -> str:
        """The output of a command that ended with 0. Raises SchedulerError."""
        seconds = self._commands.timeout
        async with self._room:
            ended = await processes.run(argv, seconds)
        if ended.status == 0:
            return ended.text
        if ended.timed_out:
            raise SchedulerError("unreachable", f"{argv[0]}: not ended within {seconds:g} s")
        last = " ".join(ended.text[-MAX_STATUS:].split())
        raise SchedulerError("refused", f"{argv[0]}: status {ended.status}: {last}")
