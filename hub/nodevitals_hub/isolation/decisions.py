"""Decides which nodes are taken out of service, and which may return.

In: the open isolations, an answer of Prometheus, the nodes on the lists, settings, the ledger.
Out: new and changed isolations, with the reasons. Pure: nothing is done here, and without a usable
answer of Prometheus nothing is decided.

Durations are counted by the monotonic clock (Seen.elapsed): a jump of the wall clock shortens
neither the grace nor a clean period. When a dry run is switched off, its isolations end and are
refused under new ids: the faults are old, and the hub must not act on all of them at once, for the
same reason as with the breaker. A person may approve each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_states import chosen, is_intent, is_watched
from nodevitals_hub.isolation.ledger import Ledger, advanced
from nodevitals_hub.isolation.recovery import takes_out
from nodevitals_hub.isolation.transitions import Transitions
from nodevitals_hub.records import OPEN_STATES, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings


class History(NamedTuple):
    """What a decision needs beside the open isolations."""

    ledger: Ledger
    new_identity: Callable[[], str]


class Decisions(NamedTuple):
    """The result of one decision."""

    isolations: tuple[Isolation, ...]
    """New ones, and changed ones."""
    ledger: Ledger


def decide(
    isolations: Sequence[Isolation],
    seen: Seen,
    nodes: Mapping[str, Member],
    settings: OutOfServiceSettings,
    now: float,
    history: History,
) -> Decisions:
    """Decide by a usable answer. `isolations`: the open ones, and the watched ones."""
    faults = [fault for fault in seen.faults if takes_out(fault, settings)]
    limits = settings.limits
    ledger = advanced(history.ledger, seen, faults, len(nodes), limits, now)
    transitions = Transitions(seen, nodes, settings, now, faults, isolations, ledger)
    changed: list[Isolation] = []
    for isolation in sorted(
        isolations, key=lambda isolation: (isolation.created, isolation.node, isolation.id)
    ):
        after = transitions.follow(isolation)
        if after != isolation:
            changed.append(after)
            if after.state == "ended" and _was_dry_run_only(after, settings):
                changed.append(transitions.refused_after_dry_run(after, history.new_identity()))
    current = {isolation.id: isolation for isolation in (*isolations, *changed)}.values()
    busy = {isolation.node for isolation in current if isolation.state in OPEN_STATES}
    watched = {
        fault.identity
        for isolation in current
        if is_watched(isolation)
        for fault in isolation.present
    }
    for node in sorted(transitions.by_node.keys() - busy):
        new = tuple(f for f in transitions.by_node[node] if f.identity not in watched)
        if new and (node not in nodes or chosen(node, nodes, settings)):
            changed.append(transitions.begin(node, new, history.new_identity()))
    return Decisions(tuple(changed), transitions.ledger)


def may_act(
    isolation: Isolation,
    seen: Seen,
    nodes: Mapping[str, Member],
    settings: OutOfServiceSettings,
    ledger: Ledger,
) -> bool:
    """Whether an intent may be executed now, by an answer that was queried for this."""
    if not is_intent(isolation) or isolation.withdrawn:
        return False
    if settings.dry_run and not isolation.dry_run:
        return False
    if isolation.approved_by:
        return any(fault.identity in seen.lasting for fault in isolation.faults)
    present = {fault.identity for fault in seen.faults if takes_out(fault, settings)}
    return (
        chosen(isolation.node, nodes, settings)
        and not ledger.breaker.open
        and any(fault.identity in present for fault in isolation.faults)
    )


def _was_dry_run_only(isolation: Isolation, settings: OutOfServiceSettings) -> bool:
    return isolation.dry_run and not settings.dry_run and bool(isolation.present)
