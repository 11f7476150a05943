"""A hub in this process that takes nodes out of service, its time moved by tests.

Its scheduler is a site's commands on a folder with one file per node, or a recording one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.context import Hub
from nodevitals_hub.isolation.schedulers.schedulers import (
    DrainProgress,
    NodeState,
    Scheduler,
    SchedulerError,
)
from nodevitals_hub.out_of_service.isolations import Isolations
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.settings.response import OutOfServiceSettings
from nodevitals_hub.store.check_store import Store
from testbed.faultprometheus import FaultPrometheus, StoppedClock

SCRIPT = """#!/bin/sh
# Usage: node-switch isolate|restore|status FOLDER NODE [TEXT]. A node is a file of FOLDER.
file="$2/$3"
echo "$1 $3 $4" >> "$2/log"
[ -e "$2/fail" ] && { echo "no connection"; exit 1; }
case "$1" in
isolate) [ -e "$2/hang" ] && sleep 600; echo "isolated $5" > "$file" ;;
restore) echo "in service" > "$file" ;;
status) if [ -e "$file" ]; then cat "$file"; else echo unknown; fi ;;
esac
"""


class Site:
    """Commands, and the files that they work on."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder = folder / "site"
        self.folder.mkdir()
        self.script = folder / "node-switch"
        self.script.write_text(SCRIPT)
        self.script.chmod(0o755)
        for node in nodes:
            self.set(node, "in service")

    def commands(self, **more: Any) -> dict[str, Any]:
        """The section `command`."""
        words = {"isolate": ["{node}", "{reason}", "{id}"], "restore": ["{node}", "{id}"]}
        words["status"] = ["{node}"]
        return {
            name: [str(self.script), name, str(self.folder), *rest] for name, rest in words.items()
        } | more

    def set(self, node: str, text: str) -> None:
        """Change a node, as a person does."""
        (self.folder / node).write_text(f"{text}\n")

    def get(self, node: str) -> str:
        """How a node is."""
        return (self.folder / node).read_text().strip()

    def log(self, what: str) -> list[str]:
        """The nodes of all calls of a kind."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1] for line in lines if line.startswith(f"{what} ")]


class Recorder(Scheduler):
    """A scheduler that records; `failure` is raised by all it is asked."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = dict.fromkeys(nodes, NodeState(in_service=True))
        self.failure: SchedulerError | None = None
        self.calls: list[tuple[str, str]] = []
        self.left = 0
        self.jobs = 0
        """Number of jobs on each node."""

    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """Of these, those that it has."""
        self._fail()
        return {node: self.nodes[node] for node in nodes if node in self.nodes}

    async def isolate(self, isolation: Isolation) -> None:
        """Mark a node."""
        self._fail()
        state = self.nodes.get(isolation.node)
        if state is None:
            raise SchedulerError("unknown_node", isolation.node)
        if state.mark == isolation.id:
            return
        if not state.in_service:
            raise SchedulerError("taken", f"{isolation.node} is out of service already")
        self.calls.append(("isolate", isolation.node))
        self.nodes[isolation.node] = NodeState(in_service=False, mark=isolation.id)
        await asyncio.sleep(0)

    async def describe(self, isolation: Isolation) -> None:
        """Record it."""
        self._fail()
        self.calls.append(("describe", isolation.node))

    async def drain(self, isolation: Isolation) -> DrainProgress:
        """One less at each call."""
        self._fail()
        self.calls.append(("drain", isolation.node))
        self.left = max(0, self.left - 1)
        return DrainProgress(self.left, "a budget" if self.left else "")

    async def running(self, isolation: Isolation) -> DrainProgress:
        """The jobs."""
        self._fail()
        return DrainProgress(self.jobs)

    async def restore(self, isolation: Isolation) -> None:
        """Remove the mark."""
        self._fail()
        if self.nodes[isolation.node].mark != isolation.id:
            raise SchedulerError("taken", f"{isolation.node} does not carry our mark")
        self.calls.append(("restore", isolation.node))
        self.nodes[isolation.node] = NodeState(in_service=True)

    async def close(self) -> None:
        """Nothing."""

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class Responding:
    """A hub with its isolations, and all around it."""

    def __init__(
        self, hub: Hub, prometheus: FaultPrometheus, clock: StoppedClock, **more: Any
    ) -> None:
        self.hub, self.servers = hub, Servers(hub)
        self.prometheus, self.clock = prometheus, clock
        self.isolations = self.made(**more)

    def made(self, **more: Any) -> Isolations:
        """Other isolations of this hub."""
        return Isolations(self.hub, self.servers, self.clock, **more)

    @property
    def settings(self) -> OutOfServiceSettings:
        """As they are now."""
        found = self.hub.settings.out_of_service
        assert found is not None
        return found

    def change(self, **more: Any) -> None:
        """Change settings, as SIGHUP does."""
        found = msgspec.structs.replace(self.settings, **more)
        self.hub.settings = msgspec.structs.replace(self.hub.settings, out_of_service=found)

    async def rounds(
        self, seconds: float, *faults: tuple[str, str], every: float | None = None
    ) -> None:
        """Rounds every 15 seconds, or every minute of a long time, with these faults."""
        self.prometheus.faults = set(faults)
        step = every or (15 if seconds < 600 else 60)
        for _ in range(max(1, round(seconds / step))):
            self.clock.advance(step)
            await self.isolations.round(self.settings)
            await asyncio.sleep(0)

    async def states(self) -> dict[str, str]:
        """The state of each node's newest isolation, and those before it left out."""
        opened, ended = await self.isolations.book.listed(1000)
        return {one.node: one.state for one in (*reversed(ended), *opened)}


@asynccontextmanager
async def responding(
    folder: Path, nodes: Sequence[str], scheduler: Scheduler | None = None, **settings: Any
) -> AsyncIterator[Responding]:
    """A hub on a folder, which may be one that an earlier hub has left. `runner`: makes what runs
    its checks; without it, none is run.
    """
    clock = StoppedClock()
    with FaultPrometheus(clock.time) as prometheus:
        prometheus.nodes = tuple(nodes)
        section = {"scheduler": "command", "where": [{"pool": "a"}], "dry_run": False, **settings}
        test = section.pop("test", None)
        runner: Callable[[Members], Runner] | None = section.pop("runner", None)
        found = msgspec.convert(
            {
                "state_directory": str(folder / "state"),
                "nodes": {"static": [{"targets": list(nodes), "labels": {"pool": "a"}}]},
                "prometheus": {"url": prometheus.url},
                "out_of_service": section,
            },
            HubSettings,
        )
        store, members = Store(found.state_directory), Members()
        members.read(found.nodes)
        coordinator = Coordinator(found, store, members, runner(members) if runner else Runner())
        hub = Hub(found, store, members, coordinator)
        more: dict[str, Any] = {} if scheduler is None else {"scheduler": lambda _: scheduler}
        if test is not None:
            more["test"] = test
        made = Responding(hub, prometheus, clock, **more)
        running: asyncio.Future[None] | None = None
        if runner is not None:
            await coordinator.start()
            running = asyncio.ensure_future(coordinator.run())
        try:
            yield made
        finally:
            if running is not None:
                running.cancel()
                await coordinator.stop()
            await made.isolations.close()
            await made.servers.close()
            with suppress(RuntimeError):  # killed: its database is closed
                await hub.database.close()
            await store.close()
