"""Steps of the bisection: the nodes of small groups, and their ports.

Each step is a generator as in search.py: it yields batches of groups, receives their answers, and
returns findings.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from typing import Optional

import msgspec

from nodevitals.checks.model import NodeVerdict, Reason
from nodevitals.checks.verdicts.findings import Scope, finding, percent

SMALL = 3
"""Groups of so many nodes are not halved: a collective takes two."""


class Group(msgspec.Struct, frozen=True):
    """Nodes to run the collective over, and the one device to use (all where empty)."""

    nodes: tuple[str, ...]
    rail: str = ""
    repeated: bool = False
    """Whether it is run a second time."""


class Answer(msgspec.Struct, frozen=True):
    """The result of a group."""

    good: bool
    """Of a single rail: that it did not fail. How fast rails are, they show each other."""
    reason: Optional[Reason] = None
    text: str = ""
    ratio: Optional[float] = None
    figure: Optional[float] = None


class Conclusion(msgspec.Struct, frozen=True):
    """The findings of a search; without any, the reason."""

    findings: tuple[NodeVerdict, ...] = ()
    reason: Reason = "harness"
    message: str = ""


Batch = tuple[Group, ...]
Answers = dict[Group, Answer]
Nodes = tuple[str, ...]
Steps = Generator[Batch, Answers, list[NodeVerdict]]


class Knowledge:
    """The facts that the search has learned."""

    def __init__(self, rails: Sequence[str], share: float) -> None:
        self.rails = tuple(rails)
        self.share = share
        self.good: dict[str, None] = {}
        """Nodes of good groups, in the order in which they were found."""
        self.doubts: list[tuple[Reason, str]] = []


def bad_rails(bad: Sequence[Nodes], knowledge: Knowledge) -> Steps:
    """The devices that are bad in all groups, if any: each is tested with one group."""
    groups = [Group(bad[place % len(bad)], rail) for place, rail in enumerate(knowledge.rails)]
    answers = yield from ask(groups)
    return [
        found_by(answer, group.rail, "rail")
        for group, answer in _worse_rails(groups, answers, knowledge.share)
    ]


def _worse_rails(
    groups: Sequence[Group], answers: Answers, share: float
) -> list[tuple[Group, Answer]]:
    """Rails that fail, or are slower than the other rails; none where most are bad."""
    figures = [answer.figure for answer in answers.values() if answer.figure is not None]
    usual = statistics.median_high(figures) if figures else 0.0
    worse = []
    for group in groups:
        answer = answers[group]
        if answer.figure is None:
            worse.append((group, answer))
        elif answer.figure < share * usual:
            ratio = answer.figure / usual
            text = f"{percent(ratio)} of the other rails"
            worse.append((group, Answer(False, "threshold", text, ratio)))
    return worse if 2 * len(worse) < len(groups) else []


def singles(small: Sequence[Nodes], knowledge: Knowledge) -> Steps:
    """Test each node of small bad groups together with a node that is known to be good."""
    if not knowledge.good:
        yield from _look_for_good(small, knowledge)
    good = list(knowledge.good)
    suspects = [name for nodes in small for name in nodes if name not in knowledge.good]
    findings: list[NodeVerdict] = []
    named: set[str] = set()
    if good:
        groups = [Group((name, good[place % len(good)])) for place, name in enumerate(suspects)]
        answers = yield from ask(groups)
        bad = yield from confirmed(
            [group for group in groups if not answers[group].good], knowledge
        )
        for group in bad:
            named.add(group.nodes[0])
            ports = yield from _ports(group, knowledge)
            findings.append(found_by(answers[group], group.nodes[0], "node", ports))
    for nodes in small:
        if not named & set(nodes):
            findings += yield from _among(nodes, knowledge)
    return findings


def _look_for_good(small: Sequence[Nodes], knowledge: Knowledge) -> Generator[Batch, Answers, None]:
    """Test pairs of nodes from neighbouring groups, until a pair is good."""
    neighbours = list(zip(small[::2], small[1::2]))
    for place in range(SMALL * SMALL):
        groups = [
            Group((left[place // SMALL], right[place % SMALL]))
            for left, right in neighbours
            if place // SMALL < len(left) and place % SMALL < len(right)
        ]
        if not groups or knowledge.good:
            continue
        answers = yield tuple(groups)
        for group in groups:
            if answers[group].good:
                knowledge.good.update(dict.fromkeys(group.nodes))


def _ports(group: Group, knowledge: Knowledge) -> Generator[Batch, Answers, tuple[str, ...]]:
    """The bad ports of a bad node: each device is tested alone."""
    groups = [Group(group.nodes, rail) for rail in knowledge.rails]
    answers = yield from ask(groups)
    worse = _worse_rails(groups, answers, knowledge.share)
    return tuple(f"port {group.rail}" for group, _ in worse)


def _among(nodes: Nodes, knowledge: Knowledge) -> Steps:
    """Test the pairs of two or three nodes that are bad together."""
    if len(nodes) == 1:
        knowledge.doubts.append(("harness", f"{nodes[0]} alone is bad, and no other node to test"))
        return []
    pairs = [
        Group((node, other), repeated=len(nodes) == 2)
        for place, node in enumerate(nodes)
        for other in nodes[place + 1 :]
    ]
    answers = yield from ask(pairs)
    worse = yield from confirmed([pair for pair in pairs if not answers[pair].good], knowledge)
    if not worse:
        knowledge.doubts.append(("harness", f"{' and '.join(nodes)} were bad once, and then good"))
        return []
    if len(worse) == 1 and (len(nodes) > 2 or knowledge.good):
        return [found_by(answers[worse[0]], " - ".join(worse[0].nodes), "link")]
    shared = set(worse[0].nodes).intersection(*(pair.nodes for pair in worse))
    if len(worse) == 2 and shared:
        return [found_by(answers[worse[0]], shared.pop(), "node")]
    text = f"no node among {', '.join(nodes)} is good: {answers[worse[0]].text}"
    knowledge.doubts.append((answers[worse[0]].reason or "harness", text))
    return []


def confirmed(
    groups: Sequence[Group], knowledge: Knowledge
) -> Generator[Batch, Answers, list[Group]]:
    """The bad groups that are bad a second time: one bad figure is not enough to name a node."""
    again = {group: msgspec.structs.replace(group, repeated=True) for group in groups}
    answers = yield from ask(list(again.values()))
    for group, second in again.items():
        if answers[second].good:
            text = f"{' and '.join(group.nodes)} were bad once, and then good"
            knowledge.doubts.append(("harness", text))
    return [group for group in groups if not answers[again[group]].good]


def ask(groups: Sequence[Group]) -> Generator[Batch, Answers, Answers]:
    """Run groups, in their order, in as few batches as possible."""
    answers: Answers = {}
    left = list(dict.fromkeys(groups))
    while left:
        used: set[str] = set()
        batch, later = [], []
        for group in left:
            if used & set(group.nodes):
                later.append(group)
            else:
                used |= set(group.nodes)
                batch.append(group)
        answers.update((yield tuple(batch)))
        left = later
    return answers


def found_by(
    answer: Answer, subject: str, scope: Scope, ports: tuple[str, ...] = ()
) -> NodeVerdict:
    """The finding that follows from an answer."""
    return finding(subject, scope, answer.reason or "harness", answer.text, answer.ratio, ports)
