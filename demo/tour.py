"""The scripted tour through all faults."""

from __future__ import annotations

import time
from collections.abc import Mapping

from demo.faults import InjectedFault
from demo.report import Table
from testbed.webhook import Receiver

ARRIVAL_SECONDS = 120.0
REMINDER_SECONDS = 20.0


def tour(faults: list[InjectedFault], receiver: Receiver) -> list[str]:
    """Inject the faults in two waves, await each alert, repair, await that it resolves.

    Returns the alerts that did not arrive, or did not resolve, in time.
    """
    table = Table()
    *first, last = faults
    missing: list[str] = []
    for wave in (first, [last]):
        injected = {}
        for fault in wave:
            injected[fault.alert] = time.monotonic()
            fault.inject()
            table.row("fault", "", fault.title)
        missing += await_alerts(receiver, wave, injected, "firing", table)
        repaired = dict.fromkeys(injected, time.monotonic())
        for fault in wave:
            fault.repair()
        table.row("repaired", "", "all of the above")
        temporary = [fault for fault in wave if not fault.permanent]
        missing += await_alerts(receiver, temporary, repaired, "resolved", table)
    return missing


def await_alerts(
    receiver: Receiver,
    faults: list[InjectedFault],
    since: Mapping[str, float],
    status: str,
    table: Table,
) -> list[str]:
    """Print each alert as it arrives at the webhook; return those that did not arrive in time.

    `since` is the monotonic time, per alert, before which an arrival does not count.
    """
    missing = list(faults)
    began = time.monotonic()
    reminder = began + REMINDER_SECONDS
    while missing and time.monotonic() < began + ARRIVAL_SECONDS:
        for fault in list(missing):
            found = receiver.arrived(
                status, since[fault.alert], alertname=fault.alert, **fault.labels
            )
            if found is not None:
                missing.remove(fault)
                moment, alert = found
                waited = moment - since[fault.alert]
                table.alert(moment, alert, f"after {waited:.1f} s:  ")
        if missing and time.monotonic() > reminder:
            reminder += REMINDER_SECONDS
            table.row("waiting", "", ", ".join(fault.alert for fault in missing))
        time.sleep(0.1)
    for fault in missing:
        late = f"not {status} within {ARRIVAL_SECONDS:g} s"
        table.row("MISSING", fault.alert, f"{late}: {fault.title}")
    return [f"{fault.alert} not {status}" for fault in missing]
