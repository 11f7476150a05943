"""Findings and doubts, and the verdict that follows from them.

In: what the other modules find. Out: Verdict, whose reason is the gravest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Optional

import msgspec

from nodevitals.checks.model import NodeVerdict, Reason, Verdict

Scope = Literal["node", "link", "rail"]
MAX_FINDINGS = 200
GRAVITY: tuple[Reason, ...] = ("hardware", "threshold", "harness", "workload")


def gravest(findings: Iterable[NodeVerdict]) -> Sequence[NodeVerdict]:
    """The findings by gravity of their reasons: nodes before links, then by name."""
    scopes = ("node", "rail", "link")
    return sorted(
        findings,
        key=lambda one: (GRAVITY.index(one.reason), scopes.index(one.scope), one.subject),
    )


class Judgement(msgspec.Struct):
    """What is found so far."""

    findings: list[NodeVerdict] = []
    doubts: list[tuple[Reason, str]] = []
    """Why the outcome is unknown."""
    notes: list[str] = []
    """What people may want to know."""

    def verdict(self, measured: bool) -> Verdict:
        """All of it as one verdict."""
        ordered = gravest(self.findings)
        bad = any(one.reason in ("hardware", "threshold") for one in ordered)
        well = measured and not ordered and not self.doubts
        reasons = [one.reason for one in ordered] + [reason for reason, _ in self.doubts]
        parts = [f"{one.subject}: {one.message}" for one in ordered[:3]]
        if len(ordered) > 3:
            parts.append(f"{len(ordered) - 3} more findings")
        parts += [text for _, text in self.doubts]
        if not parts:
            parts = ["no fault found" if measured else "nothing was measured"]
        return Verdict(
            outcome="bad" if bad else "ok" if well else "unknown",
            reason=reasons[0] if reasons else None if well else "harness",
            message="; ".join([*parts, *self.notes]),
            findings=tuple(ordered[:MAX_FINDINGS]),
        )


def finding(
    subject: str,
    scope: Scope,
    reason: Reason,
    message: str,
    ratio: Optional[float] = None,
    suspects: tuple[str, ...] = (),
) -> NodeVerdict:
    """A finding, with its ratio rounded."""
    return NodeVerdict(
        subject=subject,
        scope=scope,
        reason=reason,
        message=message,
        ratio=None if ratio is None else round(ratio, 4),
        suspects=suspects,
    )


def percent(ratio: float) -> str:
    """For people: `41 %`."""
    return f"{100 * ratio:.0f} %"


def some(names: Sequence[str]) -> str:
    """The first names, and how many there are more."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
