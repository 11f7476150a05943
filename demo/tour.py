"""The scripted tour through all faults, and the menu of single faults."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Mapping

from demo.faults import InjectedFault
from demo.report import Table
from testbed.webhook import Receiver

ARRIVAL_SECONDS = 120.0


def tour(faults: list[InjectedFault], receiver: Receiver) -> bool:
    """Inject the faults in two waves, await each alert, repair, await that it resolves.

    Returns whether every alert arrived and resolved in time.
    """
    table = Table()
    *first, last = faults
    complete = True
    for wave in (first, [last]):
        injected = {}
        for fault in wave:
            injected[fault.alert] = time.monotonic()
            fault.inject()
            table.row("fault", "", fault.title)
        complete &= await_alerts(receiver, wave, injected, "firing", table)
        repaired = dict.fromkeys(injected, time.monotonic())
        for fault in wave:
            fault.repair()
        table.row("repaired", "", "all of the above")
        temporary = [fault for fault in wave if not fault.permanent]
        complete &= await_alerts(receiver, temporary, repaired, "resolved", table)
    return complete


def await_alerts(
    receiver: Receiver,
    faults: list[InjectedFault],
    since: Mapping[str, float],
    status: str,
    table: Table,
) -> bool:
    """Print each alert as it arrives at the webhook; return whether all arrived in time.

    `since` is the monotonic time, per alert, before which an arrival does not count.
    """
    missing = list(faults)
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while missing and time.monotonic() < deadline:
        for fault in list(missing):
            began = since[fault.alert]
            found = receiver.arrived(status, began, alertname=fault.alert, **fault.labels)
            if found is not None:
                missing.remove(fault)
                moment, alert = found
                table.alert(moment, alert, f"after {moment - began:.1f} s:  ")
        time.sleep(0.1)
    for fault in missing:
        table.row("MISSING", fault.alert, f"{fault.title}: not {status}")
    return not missing


def interact(faults: list[InjectedFault], receiver: Receiver) -> None:
    """Inject and repair faults by key, and print alerts, until q, end of input or ^C."""
    by_key = {fault.key: fault for fault in faults}
    injected: set[str] = set()
    table, printed = Table(), len(receiver.alerts)
    statuses = {alert["fingerprint"]: alert["status"] for _, alert in receiver.alerts}
    print("\nType a key and Enter to inject a fault, and again to repair it:")
    for key, fault in by_key.items():
        print(f"  {key}  {fault.title}")
    print("  q  quit", flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], 0.5)
        printed = print_changes(receiver, printed, statuses, table)
        if not ready:
            continue
        line = sys.stdin.readline()
        if not line or line.strip() == "q":
            return
        chosen = by_key.get(line.strip())
        if chosen is not None:
            repair = chosen.key in injected
            (chosen.repair if repair else chosen.inject)()
            table.row("repaired" if repair else "fault", "", chosen.title)
            injected ^= {chosen.key}


def print_changes(receiver: Receiver, printed: int, statuses: dict[str, str], table: Table) -> int:
    """Print the alerts after the first `printed` ones whose status has changed.

    `statuses` has the last status of each alert by its fingerprint: each tier of escalation gets
    the same alert. Returns how many alerts have arrived.
    """
    alerts = receiver.alerts[printed:]
    for moment, alert in alerts:
        changed = statuses.get(alert["fingerprint"]) != alert["status"]
        if changed and alert["labels"]["alertname"] != "Watchdog":
            table.alert(moment, alert)
        statuses[alert["fingerprint"]] = alert["status"]
    return printed + len(alerts)
