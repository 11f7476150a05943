"""A cluster in memory whose nodes are taken out of service: pure decisions, any failure between.

`World.answers` is one round of isolations.py with an answer of Prometheus; `World.check` are the
bounds that hold at any time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.isolation.decisions import History, decide, may_act
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_states import OUT_STATES, chosen, is_intent, is_watched
from nodevitals_hub.isolation.ledger import Ledger
from nodevitals_hub.isolation.schedulers.schedulers import NodeState
from nodevitals_hub.records import OPEN_STATES, Fault, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings

NAMES = [f"gpu-{number}" for number in range(1, 1001)]
IN_SERVICE = NodeState(in_service=True)


def fault(node: str, name: str = "xid") -> Fault:
    """A confirmed fault of a node."""
    return Fault(
        node=node, fault=name, device_id="GPU-1", service="drain_now", action="reset_device"
    )


def isolation_settings(**more: Any) -> OutOfServiceSettings:
    """Settings for the pool `a`."""
    found = OutOfServiceSettings(scheduler="command", where=({"pool": "a"},))
    return msgspec.structs.replace(found, **more)


class World:
    """Nodes, the scheduler, and the hub's records."""

    def __init__(self, nodes: int, settings: OutOfServiceSettings) -> None:
        self.settings = settings
        self.nodes = {
            name: Member(name=name, host=name, port=1, labels={"pool": "a"})
            for name in NAMES[:nodes]
        }
        self.scheduler = dict.fromkeys(self.nodes, IN_SERVICE)
        self.isolations: dict[str, Isolation] = {}
        self.ledger = Ledger()
        self.now, self.monotonic = 1.8e9, 0.0
        self.is_reachable = True
        self.crash = ""
        """Where each act ends with a killed hub: before the scheduler has done it, or after."""
        self.unfresh: set[str] = set()
        self.alerting: set[tuple[str, str]] = set()
        self.done: list[tuple[str, str]] = []
        self._by_people: set[str] = set()
        self._held: set[str] = set()
        """Intents that were there while the breaker was open."""
        self._isolated: Counter[str] = Counter()
        self._times: list[float] = []
        self._usable = False
        self._numbers = itertools.count()

    def identity(self) -> str:
        """A new id."""
        return f"20270101-000000-{next(self._numbers):06d}"

    def put(self, isolation: Isolation) -> None:
        """Write one, with what is remembered of it."""
        before = self.isolations.get(isolation.id)
        self.isolations[isolation.id] = isolation
        if before is not None and isolation.approved_by and not before.approved_by:
            self.ledger = self.ledger.with_act(isolation, self.now)
        if before is not None and isolation.state == "returned" != before.state:
            self.ledger = self.ledger.with_return(isolation.node, self.now)

    def lasts(self, seconds: float, *faults: Fault) -> None:
        """Rounds of at most 15 seconds."""
        for _ in range(max(1, round(seconds / 15))):
            self.answers(min(15, seconds), *faults)

    def answers(self, seconds: float, *faults: Fault, incident: bool = False) -> None:
        """One round, so many seconds after the one before."""
        self.now += seconds
        self.monotonic += seconds
        self.settle()
        self._decide(seconds if self._usable else 0.0, faults, incident)
        self._usable = True
        pending = {one.id for one in self.isolations.values() if is_intent(one)}
        returning = {one.id for one in self.isolations.values() if one.restoring == "hub"}
        seen = self._decide(0.01, faults, incident)
        for one in list(self.isolations.values()):
            if one.id in pending and may_act(one, seen, self.nodes, self.settings, self.ledger):
                self._isolate(one)
            elif one.id in returning and one.restoring == "hub" and not self.settings.dry_run:
                self._restore(one)
        self.acts()

    def acts(self) -> None:
        """What people asked for, which needs no answer of Prometheus."""
        for one in list(self.isolations.values()):
            if one.restoring and one.restoring != "hub":
                self._restore(one)

    def settle(self) -> None:
        """Read the nodes' states."""
        for one in list(self.isolations.values()) if self.is_reachable else ():
            if one.state in OUT_STATES and not one.dry_run and (one.tried or one.acted):
                self.put(acts.read_back(one, self.scheduler.get(one.node), self.now))

    def cordon(self, node: str) -> None:
        """A person takes a node out of service."""
        if self.scheduler[node].in_service:
            self.scheduler[node] = NodeState(in_service=False)
            self._by_people.add(node)

    def uncordon(self, node: str) -> None:
        """A person returns a node, whose mark stays, as that of `kubectl uncordon` does."""
        self.scheduler[node] = NodeState(in_service=True, mark=self.scheduler[node].mark)
        self._by_people.discard(node)

    def give_back(self, node: str) -> None:
        """A person returns a node on the page, or cancels."""
        for one in list(self.isolations.values()):
            if one.node == node and one.state in OPEN_STATES and not one.restoring:
                self.put(acts.given_back(one, "ada", self.now))

    def approve(self, node: str) -> None:
        """A person approves what was refused."""
        for one in list(self.isolations.values()):
            if one.node == node and one.state == "refused" and one.present:
                self.put(acts.approved(one, "ada", self.now))

    def step(self, what: str, value: Any) -> None:
        """One step of a random sequence."""
        if what == "missing":
            self.now += value
            self.monotonic += value
            self._usable = False
            before = list(self.done)
            self.settle()
            self.acts()
            assert all(act == "restore" for act, _ in self.done[len(before) :])
        elif what == "jump":
            self.now += value
        elif what == "restart":
            self._usable = False
        elif what == "tests":
            for one in [one for one in self.isolations.values() if one.state == "testing"]:
                self.put(acts.tested(one, value, "", "", self.now))
        elif what == "reachable":
            self.is_reachable = value
        elif what == "dry":
            self.settings = replace(self.settings, dry_run=value)
        elif what in ("unfresh", "crash"):
            setattr(self, what, value)
        elif what == "where":
            self.settings = replace(self.settings, where=value)
        else:
            getattr(self, what)(value)

    def check(self) -> None:
        """The bounds."""
        found = self.isolations.values()
        limits = self.settings.limits
        marks = [one.mark for one in self.scheduler.values() if one.mark and not one.in_service]
        ours = [self.isolations[mark] for mark in marks]
        unasked = [one for one in ours if not one.approved_by]
        assert len(unasked) <= min(limits.nodes, max(1, int(limits.share * len(self.nodes))))
        assert all(one.state in OUT_STATES for one in ours), "a mark that no one removes"
        hour = [time for time in self._times if time > self.monotonic - 3600]
        assert len(hour) <= limits.per_hour
        assert all(count == 1 for count in self._isolated.values())
        assert not any(self.scheduler[node].mark for node in self._by_people)
        opened = Counter(one.node for one in found if one.state in OPEN_STATES)
        assert all(count == 1 for count in opened.values())

    def _decide(self, elapsed: float, faults: tuple[Fault, ...], incident: bool) -> Seen:
        seen = Seen(
            time=self.now,
            elapsed=elapsed,
            faults=faults,
            lasting=frozenset(one.identity for one in faults),
            alerting=frozenset(self.alerting),
            fresh_nodes=frozenset(self.nodes) - self.unfresh,
            incident_open=incident,
        )
        open_ones = [
            one for one in self.isolations.values() if one.state in OPEN_STATES or is_watched(one)
        ]
        history = History(self.ledger, self.identity)
        found = decide(open_ones, seen, self.nodes, self.settings, self.now, history)
        self.ledger = found.ledger
        self.isolations.update({one.id: one for one in found.isolations})
        if self.ledger.breaker.open:
            self._held |= {one.id for one in self.isolations.values() if is_intent(one)}
        return seen

    def _isolate(self, one: Isolation) -> None:
        if one.dry_run:
            state = self.scheduler[one.node]
            taken = acts.failed(one, "taken", one.node, self.now)
            self.put(acts.done(one, self.now) if state.in_service else taken)
            return
        assert not self.settings.dry_run
        assert one.approved_by or not self.ledger.breaker.open
        assert one.present
        assert one.approved_by or chosen(one.node, self.nodes, self.settings)
        one = acts.trying(one)
        self.put(one)
        if not self.is_reachable or self.crash == "before":
            if not self.crash:
                self.put(acts.failed(one, "unreachable", "no answer", self.now))
            return
        state = self.scheduler[one.node]
        if not state.in_service and state.mark != one.id:
            self.put(acts.failed(one, "taken", one.node, self.now))
            return
        if state.mark != one.id:
            assert one.approved_by or one.id not in self._held, "the backlog of the breaker"
            self.scheduler[one.node] = NodeState(in_service=False, mark=one.id)
            self.done.append(("isolate", one.node))
            self._isolated[one.id] += 1
            if not one.approved_by:
                self._times.append(self.monotonic)
        if self.crash != "after":
            self.put(acts.done(one, self.now))

    def _restore(self, one: Isolation) -> None:
        if not self.is_reachable:
            self.put(acts.not_restored(one, "unreachable", "no answer", self.now))
        elif self.scheduler[one.node].mark != one.id:
            self.put(acts.not_restored(one, "taken", one.node, self.now))
        else:
            if not self.scheduler[one.node].in_service:
                self.done.append(("restore", one.node))
            self.scheduler[one.node] = IN_SERVICE
            self.put(acts.restored(one, self.now))
