"""Phrases for verdicts in a language, made from the fields of the verdict.

In: a check with its verdict, and a function that returns translated texts. Out: phrases.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from nodevitals.checks.model import Check, NodeVerdict

Texts = Callable[..., str]
SHOWN_FINDINGS = 2
SHOWN_SUSPECTS = 2
ALL_DEVICES = "all devices"


def headline(check: Check, t: Texts) -> str:
    """The verdict in one phrase, without its outcome."""
    verdict = check.verdict
    if verdict is None:
        return ""
    if check.phase == "canceled":
        return t("it was canceled before it could tell")
    if verdict.findings:
        parts = [phrase(finding, check, t) for finding in verdict.findings[:SHOWN_FINDINGS]]
        left = len(verdict.findings) - len(parts)
        if left:
            parts.append(t("{count} more finding|{count} more findings", count=left))
        return t("; ").join(parts)
    return t("no_fault" if verdict.outcome == "ok" else f"unknown_{verdict.reason or 'none'}")


def detail(check: Check) -> str:
    """The message of a verdict, where it has more than the headline."""
    verdict = check.verdict
    if verdict is None:
        return ""
    if verdict.outcome == "ok":
        return verdict.message.removeprefix("no fault found").removeprefix("; ")
    parts = [
        f"{finding.subject}: {finding.message}" for finding in verdict.findings[:SHOWN_FINDINGS]
    ]
    return "" if verdict.message == "; ".join(parts) else verdict.message


def subject(finding: NodeVerdict, t: Texts) -> str:
    """The node, link or rail."""
    if finding.scope == "rail" and finding.subject == ALL_DEVICES:
        return t("all devices of all nodes")
    return t(f"subject_{finding.scope}", name=finding.subject)


def phrase(finding: NodeVerdict, check: Check, t: Texts) -> str:
    """A finding."""
    name = subject(finding, t)
    if finding.reason != "threshold":
        return t(f"failed_{finding.reason}", subject=name)
    if finding.ratio is None:
        return t("{subject}: slower than it should be", subject=name)
    usual = t(_usual(finding, check))
    percent = f"{100 * finding.ratio:.0f}"
    text = t("{subject}: slow, {percent} % of {usual}", subject=name, percent=percent, usual=usual)
    if "," in check.request.test.device and 0 < len(finding.suspects) <= SHOWN_SUSPECTS:
        suspects = t("comma").join(suspect(one, t) for one in finding.suspects)
        return t("{text}, at {suspects}", text=text, suspects=suspects)
    return text


def to_do(finding: NodeVerdict, t: Texts) -> str:
    """The next step."""
    if finding.reason in ("harness", "workload"):
        return t(f"do_{finding.reason}")
    return t(f"do_{finding.reason}_{finding.scope}")


def suspect(text: str, t: Texts) -> str:
    """A suspect; in `port mlx5_3, sending`, the two words are translated."""
    name, comma, direction = text.partition(", ")
    if name.startswith("port "):
        name = t("port {name}", name=name[len("port ") :])
    if direction in ("sending", "receiving"):
        direction = t(direction)
    return f"{name}{comma}{direction}"


def _usual(finding: NodeVerdict, check: Check) -> str:
    request = check.request
    if request.expected_bytes_per_second:
        return "usual_expected"
    if request.kind == "matrix" and finding.scope != "rail":
        return "usual_median"
    # A rail found by the groups of a collective is slower than the other rails.
    whole = (ALL_DEVICES, *(request.nodes if len(request.nodes) == 1 else ()))
    one_rail = request.kind == "collective" and finding.subject not in whole
    if check.bus is not None and check.figure is not None and not one_rail:
        share = check.figure / check.bus.bytes_per_second
        if math.isclose(share, finding.ratio or 0.0, rel_tol=1e-6):
            return "usual_bus"
    return "usual_any" if one_rail else "usual_last"
