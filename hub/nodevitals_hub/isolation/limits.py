"""Which nodes are taken out of service, and which may come back.

In: the open isolations, what Prometheus says, the nodes on the lists, settings, what is remembered.
Out: isolations that are new or have changed, and why. Pure: nothing is done here, and without a
usable answer of Prometheus nothing is decided.

Durations are counted by the monotonic clock (Seen.elapsed): a jump of the wall clock makes no grace
and no clean period shorter. When a dry run is switched off, its isolations end and are refused
under new ids: the faults are old, and acting on all of them at once is the backlog that the breaker
holds back as well. A person may approve each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_states import chosen, is_intent, is_watched
from nodevitals_hub.isolation.ledger import Ledger, advanced
from nodevitals_hub.isolation.steps_of_isolations import Scene
from nodevitals_hub.records import OPEN_STATES, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings


class History(NamedTuple):
    """What decisions need besides the open isolations."""

    ledger: Ledger
    new_identity: Callable[[], str]


class Decisions(NamedTuple):
    """What changes."""

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
    """What a usable answer changes. `isolations`: the open ones, and the watched ones."""
    faults = [fault for fault in seen.faults if fault.service in settings.services]
    limits = settings.limits
    ledger = advanced(history.ledger, seen, faults, len(nodes), limits, now)
    scene = Scene(seen, nodes, settings, now, faults, isolations, ledger)
    changed: list[Isolation] = []
    for isolation in sorted(isolations, key=lambda one: (one.created, one.node, one.id)):
        after = scene.follow(isolation)
        if after != isolation:
            changed.append(after)
            if after.state == "ended" and _was_dry_run_only(after, settings):
                changed.append(scene.refused_after_dry_run(after, history.new_identity()))
    following = {one.id: one for one in (*isolations, *changed)}.values()
    busy = {one.node for one in following if one.state in OPEN_STATES}
    watched = {fault.identity for one in following if is_watched(one) for fault in one.present}
    for node in sorted(scene.by_node.keys() - busy):
        new = tuple(f for f in scene.by_node[node] if f.identity not in watched)
        if new and (node not in nodes or chosen(node, nodes, settings)):
            changed.append(scene.begin(node, new, history.new_identity()))
    return Decisions(tuple(changed), scene.ledger)


def may_act(
    isolation: Isolation,
    seen: Seen,
    nodes: Mapping[str, Member],
    settings: OutOfServiceSettings,
    ledger: Ledger,
) -> bool:
    """Whether an intent may be done now, by an answer that was asked for it."""
    if not is_intent(isolation) or isolation.withdrawn:
        return False
    if settings.dry_run and not isolation.dry_run:
        return False
    if isolation.approved_by:
        return any(fault.identity in seen.lasting for fault in isolation.faults)
    present = {one.identity for one in seen.faults if one.service in settings.services}
    return (
        chosen(isolation.node, nodes, settings)
        and not ledger.breaker.open
        and any(fault.identity in present for fault in isolation.faults)
    )


def _was_dry_run_only(isolation: Isolation, settings: OutOfServiceSettings) -> bool:
    return isolation.dry_run and not settings.dry_run and bool(isolation.present)
