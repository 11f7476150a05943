"""Changes an isolation after an answer of the scheduler, a request of a person or a check.

In: an isolation and the event. Out: the changed isolation. Pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.isolation.isolation_states import OUT_STATES, is_intent, with_step
from nodevitals_hub.isolation.schedulers.schedulers import DrainProgress, FailureKind, NodeState
from nodevitals_hub.records import OPEN_STATES, Fault, Isolation

A_PERSON = "a person"


def trying(isolation: Isolation) -> Isolation:
    """Directly before the scheduler is asked to take the node out of service."""
    return replace(isolation, tried=True) if is_intent(isolation) else isolation


def asked_others(isolation: Isolation, ok: bool | None, text: str, now: float) -> Isolation:
    """After other nodes were asked whether they confirm its faults; the hub asks again."""
    if not is_intent(isolation):
        return isolation
    reason = f"confirmed: {text}" if ok else f"not yet out of service, not confirmed: {text}"
    return isolation if isolation.reason == reason else with_step(isolation, now, reason)


def done(isolation: Isolation, now: float) -> Isolation:
    """The node is out of service; in a dry run, it would be."""
    if isolation.acted is not None or isolation.state not in OUT_STATES:
        return isolation
    text = "out of service"
    if isolation.dry_run:
        text = "dry run: would be out of service"
    if isolation.state == "kept":
        text = f"{text}; kept, {isolation.reason}"
    return replace(with_step(isolation, now, text), acted=now, withdrawn="")


def failed(isolation: Isolation, kind: FailureKind, text: str, now: float) -> Isolation:
    """The scheduler did not take the node out of service; unless this is final, the hub retries."""
    if isolation.acted is not None or isolation.state not in OUT_STATES:
        return isolation
    if kind == "taken":
        text = f"left alone: a person has it out of service ({text})"
        return _canceled(replace(isolation, tried=False, taken=True), now, text, "hub")
    if kind == "unknown_node":
        after = with_step(isolation, now, f"the scheduler has no such node: {text}")
        return replace(after, state="refused", tried=False, decided=None)
    reason = f"not yet out of service: {text}; tried again"
    return isolation if isolation.reason == reason else with_step(isolation, now, reason)


def read_back(isolation: Isolation, state: NodeState | None, now: float) -> Isolation:
    """After the scheduler has reported the node's state; None where it has no such node."""
    if isolation.dry_run or isolation.state not in OUT_STATES:
        return isolation
    has_mark = state is not None and state.mark == isolation.id
    if isolation.acted is None:
        if not isolation.tried:
            return isolation
        if not has_mark:
            return replace(isolation, tried=False)
        # The hub did not record that it was done: the steps after the cordon may be missing.
        isolation = replace(done(isolation, now), undescribed=True)
    if state is None:
        text = "the scheduler no longer has this node"
        return isolation if isolation.reason == text else with_step(isolation, now, text)
    if has_mark and (isolation.restoring or not state.in_service):
        return isolation
    if has_mark:  # restoring removes the hub's mark from the node
        after = with_step(isolation, now, "a person returned the node to service")
        return replace(after, restoring=A_PERSON)
    if isolation.restoring:
        return restored(isolation, now)
    text = "a person returned the node to service"
    if not state.in_service:
        text = "a person has taken the node: our mark is no longer there"
        isolation = replace(isolation, taken=True)
    return _canceled(isolation, now, text, "hub")


def restored(isolation: Isolation, now: float) -> Isolation:
    """The node is in service again."""
    by = isolation.restoring or "hub"
    if by == "hub":
        after = with_step(isolation, now, "returned to service")
        return replace(after, state="returned", ended=now, restoring="")
    return replace(_canceled(isolation, now, f"returned to service for {by}", "hub"), restoring="")


def not_restored(isolation: Isolation, kind: FailureKind, text: str, now: float) -> Isolation:
    """The node was not returned."""
    if kind in ("taken", "unknown_node"):
        after = _canceled(isolation, now, f"not returned: {text}", "hub")
        return replace(after, restoring="")
    reason = f"not yet returned: {text}; tried again"
    return isolation if isolation.reason == reason else with_step(isolation, now, reason)


def returned_late(isolation: Isolation, now: float) -> Isolation:
    """The mark of an ended or refused isolation was found on its node, and removed."""
    if isolation.state in OUT_STATES:
        return isolation
    text = "the scheduler executed a write after its end: the node was returned to service"
    steps = with_step(isolation, now, text).steps
    return replace(isolation, steps=steps, late_return=now)


def tested(isolation: Isolation, ok: bool, text: str, check: str, now: float) -> Isolation:
    """After the checks before the return."""
    if isolation.state != "testing" or isolation.restoring:
        return isolation
    isolation = replace(isolation, check=check)
    if ok:
        after = with_step(isolation, now, f"its checks are good: {text}")
        return replace(after, restoring="hub")
    return replace(with_step(isolation, now, f"kept: its checks failed: {text}"), state="kept")


def not_tested(isolation: Isolation, text: str, _: float) -> Isolation:
    """The checks had no result for the node."""
    reason = f"its checks gave no result, repeated: {text}"
    return replace(isolation, reason=reason) if isolation.state == "testing" else isolation


def described(isolation: Isolation, faults: tuple[Fault, ...], _: float) -> Isolation:
    """The node's reason names these faults."""
    return replace(isolation, undescribed=False) if isolation.faults == faults else isolation


def drained(isolation: Isolation, progress: DrainProgress, now: float) -> Isolation:
    """After another attempt to end what runs; `progress.left` is -1 where it is not known."""
    if isolation.state not in OUT_STATES:
        return isolation
    if progress.left == 0:
        return replace(with_step(isolation, now, "drained"), drained=now)
    left = "" if progress.left < 0 else f"{progress.left} left "
    return replace(isolation, reason=f"drain: {left}{progress.blocked}".strip())


def approved(isolation: Isolation, name: str, now: float) -> Isolation:
    """A person approves a refused isolation. Raises RefusedError."""
    if isolation.state != "refused":
        text = Wording(
            "{name} is {state}: nothing to approve", name=isolation.id, state=isolation.state
        )
        raise RefusedError("conflict", text)
    if not isolation.present:
        text = Wording("{name} has none of its faults now", name=isolation.node)
        raise RefusedError("conflict", text)
    after = with_step(isolation, now, "approved", name)
    return replace(
        after, state="isolated", approved_by=name, decided=now, clean_for=0.0, withdrawn=""
    )


def given_back(isolation: Isolation, name: str, now: float) -> Isolation:
    """A person returns a node, or cancels an isolation not yet done. Raises RefusedError."""
    if isolation.state not in OPEN_STATES:
        text = Wording("{name} is {state}: it has ended", name=isolation.id, state=isolation.state)
        raise RefusedError("conflict", text)
    if isolation.restoring:
        text = Wording("{name}: its return has begun", name=isolation.id)
        raise RefusedError("conflict", text)
    is_out = isolation.acted is not None or isolation.tried
    if isolation.dry_run or isolation.state not in OUT_STATES or not is_out:
        return _canceled(isolation, now, "canceled", name)
    return replace(with_step(isolation, now, "asked to return it", name), restoring=name)


def _canceled(isolation: Isolation, now: float, text: str, by: str) -> Isolation:
    """Cancel: the node is not taken out again for the same faults until these have ended."""
    after = with_step(isolation, now, text, by)
    return replace(
        after,
        state="canceled",
        ended=now,
        present=isolation.faults,
        clean_for=0.0,
        clean_since=None,
        undescribed=False,
    )
