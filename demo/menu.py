"""The menu: faults by key, and the alerts that they cause, as they arrive."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from demo.faults import InjectedFault
from demo.hub import Cluster
from demo.pictures import draw
from demo.pipeline import Pipeline
from demo.report import GRAFANA, Changes, Table
from testbed.webhook import Receiver

FIRES = " (its alert still fires since the tour)"
PICTURES, QUIT = "i", "q"
CHECK, SLOW = "k", "w"
OTHER_NODE = "gpu-3"
TICK_SECONDS = 0.5


class Menu:
    """The faults by key, those that are injected, and the alerts that were printed."""

    def __init__(
        self, faults: list[InjectedFault], receiver: Receiver, cluster: Cluster | None
    ) -> None:
        self._cluster = cluster
        self._by_key = {fault.key: fault for fault in faults}
        self._injected: set[str] = set()
        self._receiver = receiver
        self._changes, self._printed = Changes(), 0
        self._table = Table()
        for _, alert in self._new():
            self._changes.is_news(alert)

    def _new(self) -> list[tuple[float, dict[str, Any]]]:
        found = self._receiver.alerts[self._printed :]
        self._printed += len(found)
        return found

    def print(self) -> None:
        """Print the keys."""
        print(f"\nstill firing: {', '.join(self._changes.firing()) or 'no alert'}")
        print("Type a key, then Enter; the key of a fault once more repairs it:")
        firing = self._changes.firing()
        for key, fault in self._by_key.items():
            print(f"  {key}  {fault.title}{FIRES if fault.alert in firing else ''}")
        if self._cluster is not None:
            print(f"  {SLOW}  hub: the link of {OTHER_NODE} becomes slow, or as fast as before")
            print(f"  {CHECK}  hub: start a check of all pairs at {self._cluster.url}/")
        print(f"  {PICTURES}  draw three dashboards as pictures, which takes half a minute")
        print(f"  {QUIT}  quit", flush=True)

    def print_changes(self) -> None:
        """Print what has begun or ended."""
        for moment, alert in self._new():
            if self._changes.is_news(alert):
                self._table.alert(moment, alert)

    def toggle(self, key: str) -> None:
        """Inject or repair a fault."""
        if self._cluster is not None and key in (CHECK, SLOW):
            self._act(self._cluster, key)
            return
        fault = self._by_key.get(key)
        if fault is None:
            own = () if self._cluster is None else (SLOW, CHECK)
            keys = ", ".join([*self._by_key, *own, PICTURES, QUIT])
            print(f"no key {key!r}; the keys are {keys}", flush=True)
            return
        repair = key in self._injected
        try:
            (fault.repair if repair else fault.inject)()
        except (OSError, subprocess.SubprocessError, AssertionError) as error:
            self._table.row("FAILED", "", f"{fault.title}: {error}")
            return
        self._table.row("repaired" if repair else "fault", "", fault.title)
        if repair and fault.permanent:
            self._table.row("", "", "its alert stays: the damage is permanent")
        elif not repair and fault.alert in self._changes.firing():
            self._table.row("", fault.alert, "fires already, so no message follows; see Prometheus")
        self._injected ^= {key}

    def _act(self, cluster: Cluster, key: str) -> None:
        try:
            if key == SLOW:
                self._table.row("hub", "", cluster.toggle(OTHER_NODE))
            else:
                cluster.check()
        except (OSError, subprocess.SubprocessError) as error:
            self._table.row("FAILED", "", f"the hub: {error}")


def interact(faults: list[InjectedFault], pipeline: Pipeline, cluster: Cluster | None) -> None:
    """Inject and repair faults by key, and print alerts, until q, end of input or ^C."""
    menu = Menu(faults, pipeline.receiver, cluster)
    menu.print()
    for key in lines(sys.stdin.fileno()):
        menu.print_changes()
        if key == QUIT:
            return
        if key == PICTURES:
            draw(pipeline.prometheus.url)
            print(GRAFANA, flush=True)
        elif key:
            menu.toggle(key)


def lines(descriptor: int) -> Iterator[str]:
    """Yield the lines of the input until its end, and '' whenever there is none for a while."""
    typed = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], TICK_SECONDS)
        if not ready:
            yield ""
            continue
        read = os.read(descriptor, 4096)
        *whole, typed = (typed + read).split(b"\n")
        yield from (line.decode(errors="replace").strip() for line in whole)
        if not read:
            return
