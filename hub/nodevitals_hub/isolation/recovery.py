"""Decides by what other nodes see whether a fault of logins or connections is that of a node.

In: for each observer, which peers it reaches. Out: a verdict with its reason. Pure. One report
about another node decides nothing: several observers must agree, and each must reach most of its
other peers, as the fault would otherwise be its own. Of its units, a node's own agent knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nodevitals_hub.checks.peer_sights import Plane, Sights
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings


class Verdict(NamedTuple):
    """The result of checks; `ok` is None where they have none."""

    ok: bool | None
    text: str
    check_id: str = ""
    """The last check."""


def takes_out(fault: Fault, settings: OutOfServiceSettings) -> bool:
    """Whether a fault may take its node out of service."""
    return fault.fault in settings.recoverable or fault.service in settings.services


def unconfirmed(isolation: Isolation, seen: Seen, settings: OutOfServiceSettings) -> list[Fault]:
    """The faults for which other nodes must be asked before the act; [] where another fault, or a
    person, decides.
    """
    own = {fault.identity for fault in isolation.faults}
    present = [f for f in seen.faults if f.identity in own and takes_out(f, settings)]
    if isolation.approved_by or any(f.fault not in settings.recoverable for f in present):
        return []
    return present


def confirmed(node: str, faults: Sequence[Fault], sights: Sights, observers: int) -> Verdict:
    """Whether other nodes confirm that one of these faults is that of this node."""
    verdicts = [_confirmed(node, fault, sights, observers) for fault in faults]
    order = (True, None, False)
    return min(verdicts, key=lambda verdict: order.index(verdict.ok))


def _confirmed(node: str, fault: Fault, sights: Sights, observers: int) -> Verdict:
    if fault.fault == "service_down":
        runs = _runs(node, fault, sights)
        return Verdict(None if runs is None else not runs, _of_unit(node, fault, runs))
    fit = _fit(node, _on(_plane(fault), sights))
    if len(fit) < observers:
        return Verdict(None, _too_few(fit, observers))
    if fault.fault == "node_reaches_nobody":
        return Verdict(True, f"{_count(fit)} reach their peers: it is {node} that does not")
    reaching, failing = _split(node, fit)
    text = _named(node, reaching, failing)
    if len(failing) >= observers and len(failing) > len(reaching):
        return Verdict(True, text)
    return Verdict(False if reaching else None, text)


def reached(node: str, faults: Sequence[Fault], sights: Sights, observers: int) -> Verdict:
    """Whether other nodes reach a node again; None where they do not, which may pass."""
    text = ""
    units = [fault for fault in faults if fault.fault == "service_down"]
    for fault in units:
        runs = _runs(node, fault, sights)
        text = _of_unit(node, fault, runs)
        if not runs:
            return Verdict(None, text)
    for plane in sorted({_plane(fault) for fault in faults if fault not in units}):
        fit = _fit(node, _on(plane, sights))
        reaching, failing = _split(node, fit)
        text = _named(node, reaching, failing) if reaching or failing else _too_few(fit, observers)
        if len(reaching) < observers or len(failing) >= len(reaching):
            return Verdict(None, text)
    return Verdict(True, text)


def _runs(node: str, fault: Fault, sights: Sights) -> bool | None:
    """Whether the unit of a fault runs, as its node's own agent says; None where it does not."""
    own = (one for one in sights.get(node, ()) if one.plane == "units")
    return next((one.reached for one in own if one.peer == fault.device_id), None)


def _of_unit(node: str, fault: Fault, runs: bool | None) -> str:
    unit = fault.device_id
    if runs is None:
        return f"the agent of {node} says nothing about {unit}"
    return f"{unit} {'runs' if runs else 'does not run'} on {node}"


def _plane(fault: Fault) -> Plane:
    return "fabric" if fault.fault == "node_fabric_unreachable" else "peers"


def _on(plane: Plane, sights: Sights) -> Sights:
    return {name: [one for one in seen if one.plane == plane] for name, seen in sights.items()}


def _fit(node: str, sights: Sights) -> Sights:
    """The observers that reach most of their peers beside this node, and at least one."""
    fit = {}
    for observer, seen in sights.items():
        others = {one.peer: one.reached for one in seen if one.peer not in (node, observer)}
        if observer != node and sum(others.values()) * 2 > len(others):
            fit[observer] = seen
    return fit


def _split(node: str, fit: Sights) -> tuple[dict[str, str], dict[str, str]]:
    """Of the observers that have this node as a peer: who reaches it, and who does not, and why."""
    reaching, failing = {}, {}
    for observer, seen in fit.items():
        own = [one for one in seen if one.peer == node]
        wrong = [one for one in own if not one.reached]
        if wrong:
            failing[observer] = wrong[0].reason
        elif own:
            reaching[observer] = ""
    return reaching, failing


def _named(node: str, reaching: Mapping[str, str], failing: Mapping[str, str]) -> str:
    reasons = sorted({reason for reason in failing.values() if reason})[:3]
    why = f" ({', '.join(reasons)})" if reasons else ""
    all_of = len(reaching) + len(failing)
    return f"of {all_of} other nodes, {len(failing)} do not reach {node}{why}"


def _too_few(fit: Mapping[str, object], observers: int) -> str:
    return f"{_count(fit)} can say it; {observers} are needed (recovery.observers)"


def _count(fit: Mapping[str, object]) -> str:
    return f"{len(fit)} other nodes"
