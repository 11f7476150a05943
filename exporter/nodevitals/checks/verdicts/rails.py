"""Joins the judgements on the series of a check: a node that is slow on all of its devices, or on
one, is one finding; a device that is slow on all nodes is a rail.

In: a request, and the judgement on each series. Out: one judgement.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, NodeVerdict, Reason
from nodevitals.checks.requests.runs import Series, request_of, words_of
from nodevitals.checks.verdicts.comparison import amount
from nodevitals.checks.verdicts.findings import GRAVITY, Judgement, finding

MIN_RAILS = 3
"""Fewer rails are not compared with each other."""
MAX_NAMED = 3
MAX_SUSPECTS = 8
Part = tuple[Series, Judgement]


def joined(request: CheckRequest, parts: Sequence[Part]) -> Judgement:
    """The judgement on all series."""
    if len(parts) == 1:
        return parts[0][1]
    _name_dead_rails(parts)
    _compare_rails(request, parts)
    whole = Judgement(measured=any(judgement.measured for _, judgement in parts))
    findings: dict[tuple[str, str], list[tuple[Series, NodeVerdict]]] = {}
    doubts: dict[tuple[Reason, str], list[Series]] = {}
    notes: dict[str, list[Series]] = {}
    for series, judgement in parts:
        for found in judgement.findings:
            findings.setdefault((found.scope, found.subject), []).append((series, found))
        for doubt in judgement.doubts:
            doubts.setdefault(doubt, []).append(series)
        for note in judgement.notes:
            notes.setdefault(note, []).append(series)
    whole.findings = [_joined(request, parts, each) for each in findings.values()]
    whole.doubts = [
        (reason, f"{text} ({_where(request, parts, each)})")
        for (reason, text), each in doubts.items()
    ]
    lacking = [(series, judgement.lacking) for series, judgement in parts if judgement.lacking]
    if lacking:
        where = _where(request, parts, [series for series, _ in lacking])
        whole.lacking = f"{lacking[0][1]} ({where})"
    whole.notes = [f"{text} ({_where(request, parts, each)})" for text, each in notes.items()]
    return whole


def _joined(
    request: CheckRequest, parts: Sequence[Part], found: Sequence[tuple[Series, NodeVerdict]]
) -> NodeVerdict:
    """One finding of those on the same node, link or rail: the gravest and worst, with the devices
    that have any.
    """
    _, worst = min(found, key=lambda each: (GRAVITY.index(each[1].reason), each[1].ratio or 0.0))
    texts = []
    for operation in dict.fromkeys(series.operation for series, _ in found):
        own = [(series, each) for series, each in found if series.operation == operation]
        _, first = min(own, key=lambda each: (GRAVITY.index(each[1].reason), each[1].ratio or 0.0))
        where = _where(request, parts, [series for series, _ in own], worst.scope == "rail")
        texts.append(f"{first.message} ({where})" if where else first.message)
    suspects = dict.fromkeys(suspect for _, each in found for suspect in each.suspects)
    return replace(worst, message="; ".join(texts), suspects=tuple(suspects)[:MAX_SUSPECTS])


def _where(
    request: CheckRequest, parts: Sequence[Part], found: Iterable[Series], of_rail: bool = False
) -> str:
    """The series for people: `write_bw, all 8 devices`; of a rail, whose name is known, the
    operation.
    """
    found = list(found)
    operations = dict.fromkeys(series.operation for series in found)
    words = [", ".join(operations)] if len(words_of(request.test.operation)) > 1 else []
    devices = list(dict.fromkeys(series.devices for series in found if series.devices))
    count = len({series.devices for series, _ in parts})
    if of_rail or not devices:
        pass
    elif len(devices) == count > 1:
        words.append(f"all {count} devices")
    elif len(devices) <= MAX_NAMED:
        words.append(", ".join(devices))
    else:
        words.append(f"{len(devices)} of {count} devices")
    return ", ".join(words)


def _name_dead_rails(parts: Sequence[Part]) -> None:
    """Where no pair reaches another on one device, and others do on their devices, it is no fault
    of the request.
    """
    if not any(judgement.measured for _, judgement in parts):
        return
    for series, judgement in parts:
        if judgement.unreachable and series.device:
            judgement.findings.append(
                finding(series.devices, "rail", "hardware", judgement.unreachable)
            )
            judgement.doubts.clear()


def _compare_rails(request: CheckRequest, parts: Sequence[Part]) -> None:
    """Add a finding on each rail whose usual speed is below that of the other rails: its nodes are
    alike, and slow.
    """
    for operation in words_of(request.test.operation):
        rails = [
            (series, judgement)
            for series, judgement in parts
            if series.operation == operation and judgement.median and not series.peer_device
        ]
        if len(rails) < MIN_RAILS:
            continue
        usual = statistics.median(judgement.median or 0.0 for _, judgement in rails)
        for series, judgement in rails:
            ratio = (judgement.median or usual) / usual
            named = any(found.scope == "rail" for found in judgement.findings)
            if ratio < request.share and not named:
                text = amount(request_of(request, series), ratio, "other rails")
                judgement.findings.append(finding(series.device, "rail", "threshold", text, ratio))
