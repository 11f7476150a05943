"""Conditions of isolations that several modules use.

In: an isolation, an answer of Prometheus, settings. Out: a boolean or a text. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.records import Fault, Isolation, IsolationState, Step
from nodevitals_hub.settings.response import OutOfServiceSettings

OUT_STATES: tuple[IsolationState, ...] = ("isolated", "testing", "kept")
MAX_STEPS = 100


def with_step(isolation: Isolation, now: float, text: str, by: str = "hub") -> Isolation:
    """With one more step, and the reason for its state."""
    steps = (*isolation.steps, Step(now, text, by))
    return replace(isolation, reason=text, steps=steps[-MAX_STEPS:])


def is_watched(isolation: Isolation) -> bool:
    """Whether it is canceled, and its faults have not ended."""
    return isolation.state == "canceled" and bool(isolation.present)


def is_intent(isolation: Isolation) -> bool:
    """Whether its node is to be taken out of service, and is not yet."""
    return isolation.state in OUT_STATES and isolation.acted is None and not isolation.restoring


def chosen(node: str, nodes: Mapping[str, Member], settings: OutOfServiceSettings) -> bool:
    """Whether `where` chooses a node; empty, it chooses none."""
    member = nodes.get(node)
    return member is not None and any(
        bool(labels) and labels.items() <= member.labels.items() for labels in settings.where
    )


def is_clean(isolation: Isolation, seen: Seen) -> bool:
    """Whether a node has none of its faults, and the data about it are fresh."""
    node = isolation.node
    return node in seen.fresh_nodes and not (
        lasts(isolation.faults, seen)
        or node in seen.critical
        or any(fault.node == node for fault in seen.faults)
    )


def lasts(faults: Sequence[Fault], seen: Seen) -> bool:
    """Whether any of these faults is still present, confirmed or as an alert."""
    return any(
        fault.identity in seen.lasting or (fault.node, fault.fault) in seen.alerting
        for fault in faults
    )


def named(faults: Sequence[Fault]) -> str:
    """Up to three faults as text, and the number of the others."""
    names = [f"{fault.fault} {fault.device_id}".strip() for fault in faults]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def ordinal(number: int) -> str:
    """`third` for 3."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
    return words[number - 1] if number <= len(words) else f"{number}th"
