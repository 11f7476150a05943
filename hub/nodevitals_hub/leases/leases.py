"""Second-level monitoring on demand: renews the agents' leases until they end.

In: requests of people, programs and alerts. Out: a request to each agent every 15 s, and the
targets of a second scrape job. Leases are in a file of the state directory, so a restarted hub
continues them; without a hub they end on the agents within a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nodevitals.checks.deadlines import within
from nodevitals.checks.model import Requester
from nodevitals.linux.host import Clock
from nodevitals.wire import MAX_LEASE_SECONDS, LeaseState
from nodevitals_hub import families
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.leases.lease_book import (
    AgentError,
    HubLease,
    LeaseBook,
    LeasedNode,
    LeaseWanted,
)
from nodevitals_hub.settings.hub import LeasesSettings
from nodevitals_hub.store.state_file import StateFile

RENEW_SECONDS = 15.0
AT_A_TIME = 128
FILE_NAME = "leases.json"

log = logging.getLogger(__name__)
Send = Callable[[Member, tuple[str, ...], float], Awaitable[dict[str, LeaseState]]]
"""Sends a lease for probes and seconds to an agent; without probes, ends it. Raises AgentError."""


class Leases:
    """All leases of this hub. Methods run in the event loop and do not block it."""

    def __init__(
        self,
        settings: Callable[[], LeasesSettings],
        directory: str,
        members: Callable[[], Sequence[Member]],
        send: Send,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._file = StateFile(Path(directory, FILE_NAME), tuple[HubLease, ...])
        self._members = members
        self._send = send
        self._book = LeaseBook(clock or Clock())
        self._nodes: dict[str, LeasedNode] = {}
        self._changed = asyncio.Event()

    def all(self) -> tuple[HubLease, ...]:
        """The leases, the newest first."""
        return self._book.all()

    def nodes(self) -> tuple[LeasedNode, ...]:
        """The nodes under leases, by name."""
        names = sorted(self._book.wanted())
        return tuple(self._nodes.get(name, LeasedNode(name=name)) for name in names)

    async def ask(self, wanted: LeaseWanted, requester: Requester) -> HubLease:
        """Begin a lease. Raises RefusedError."""
        if requester.role == "read":
            raise RefusedError("forbidden", "a lease needs the role run")
        lease = self._book.add(wanted, requester, self._by_name(), self._settings())
        await self._file.write(self._book.all())
        self._changed.set()
        log.info(
            "lease %s for %s %s: %s on %d nodes for %.0f s",
            *(lease.id, requester.trigger, requester.name),
            *(",".join(lease.probes), len(lease.nodes), wanted.seconds),
        )
        return lease

    async def ask_for_alert(self, alertname: str, nodes: Iterable[str]) -> HubLease | None:
        """Begin the lease that the settings have for an alert; None where they have none. If the
        same alert comes again for the same nodes, the lease is renewed. Raises RefusedError.
        """
        settings = self._settings()
        probes = settings.alerts.get(alertname)
        if not probes:
            return None
        seconds = min(settings.alert_duration, settings.max_duration)
        wanted = LeaseWanted(probes=probes, nodes=tuple(sorted(nodes)), seconds=seconds)
        return await self.ask(wanted, Requester(trigger="alert", name=alertname))

    async def end(self, identity: str, requester: Requester) -> HubLease:
        """End a lease now. Raises RefusedError."""
        if requester.role == "read":
            raise RefusedError("forbidden", "to end a lease needs the role run")
        lease = self._book.remove(identity)
        await self._file.write(self._book.all())
        self._changed.set()
        return lease

    async def run(self) -> None:
        """Renew leases until cancelled."""
        await self._load()
        while True:
            self._changed.clear()
            await self._renew()
            pause = min(RENEW_SECONDS, self._book.next_end() + 0.1) if self._nodes else None
            try:
                await within(self._changed.wait(), pause)
            except TimeoutError:
                continue

    def scrape_targets(self, port: int, scheme: str) -> list[dict[str, object]]:
        """Targets in the format of Prometheus' http_sd: nodes whose agent has confirmed a lease,
        scraped every second for those probes alone.
        """
        members = self._by_name()
        targets: list[dict[str, object]] = []
        for node in self.nodes():
            active = sorted(name for name, state in node.probes.items() if state == "active")
            member = members.get(node.name)
            if member is None or not active:
                continue
            labels = {
                "__scheme__": scheme,
                "__scrape_interval__": "1s",
                "__scrape_timeout__": "1s",
                "__param_collect": ",".join(active),
                "__meta_nodevitals_node": node.name,
            }
            targets.append({"targets": [f"{member.url_host}:{port}"], "labels": labels})
        return targets

    def samples(self) -> Iterator[Sample]:
        """What /metrics shows."""
        states = Counter(node.state for node in self.nodes())
        for state in ("active", "refused", "unreachable"):
            yield families.LEASED, (state,), states[state]

    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self._members()}

    async def _renew(self) -> None:
        """Send each agent one request: for all wanted probes of its node, or to end its lease."""
        wanted, members = self._book.wanted(), self._by_name()
        room = asyncio.Semaphore(AT_A_TIME)

        async def ask(name: str) -> None:
            async with room:
                probes = tuple(sorted(wanted.get(name, ())))
                self._nodes[name] = await self._asked(members.get(name), name, probes)

        await asyncio.gather(*(ask(name) for name in wanted.keys() | self._nodes.keys()))
        for name in self._nodes.keys() - wanted.keys():
            del self._nodes[name]

    async def _asked(self, member: Member | None, name: str, probes: tuple[str, ...]) -> LeasedNode:
        if member is None:
            return LeasedNode(name=name, state="unreachable", error="no longer on the hub's lists")
        seconds = min(MAX_LEASE_SECONDS, max(1.0, self._book.left(name)))
        try:
            states = await self._send(member, probes, seconds)
        except AgentError as error:
            return LeasedNode(name=name, state="unreachable", error=str(error))
        active = "active" in states.values()
        return LeasedNode(name=name, state="active" if active else "refused", probes=states)

    async def _load(self) -> None:
        """Continue the leases of the file."""
        stored = await asyncio.to_thread(self._file.read)
        self._book.restore(stored or (), self._settings().max_duration)
