"""The procedure of the bisection: which groups to run next.

A generator: it yields batches of groups without a node in common, receives their answers, and
returns its conclusion. It starts after a collective over all nodes was bad.

1. Run the halves of each bad group, down to two or three nodes; the nodes of good groups are good.
2. Where all groups are bad, the cause may be a rail: run one group per device.
3. Run each remaining node with a good one. Where two such nodes are good, their link is bad.
4. Where both halves of a bad group are good, run quarters of both together to find a bad link.
   Where these are good too and the whole group is bad again, the cause is the number of nodes.

A finding is named only after it was bad twice.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from nodevitals.checks.isolation.steps import (
    SMALL,
    Answer,
    Answers,
    Batch,
    Conclusion,
    Group,
    Knowledge,
    Nodes,
    Steps,
    ask,
    bad_rails,
    confirmed,
    found_by,
    singles,
)
from nodevitals.checks.model import NodeVerdict

COMMON = 4
"""Number of bad groups without a good one from which on what they share is looked for."""
MANY = 16
"""From this number of bad groups without a good one, single nodes are not the cause."""


def search(
    nodes: Sequence[str], rails: Sequence[str], share: float
) -> Generator[Batch, Answers, Conclusion]:
    """Search as described above; a rail is slow below `share` of the other rails."""
    knowledge = Knowledge(rails, share)
    findings = yield from _halve([tuple(nodes)], knowledge)
    if findings:
        return Conclusion(tuple(findings))
    reason, text = knowledge.doubts[0] if knowledge.doubts else ("harness", "no group is bad")
    return Conclusion((), reason, text)


def _halve(bad: list[Nodes], knowledge: Knowledge) -> Steps:
    """Halve bad groups, which have no node in common, until they are small."""
    findings: list[NodeVerdict] = []
    small: list[Nodes] = []
    crossed: list[tuple[Nodes, Nodes]] = []
    common = bool(knowledge.rails)
    while bad:
        small += [group for group in bad if len(group) <= SMALL]
        halves = [_halves(group) for group in bad if len(group) > SMALL]
        if common and not knowledge.good and (len(bad) >= COMMON or not halves):
            common = False
            rail = yield from bad_rails(bad, knowledge)
            if rail:
                return rail
        if len(bad) >= MANY and not knowledge.good:
            text = f"all of {len(bad)} groups are bad, and no single device is"
            knowledge.doubts.append(("harness", text))
            return []
        if not halves:
            break
        answers = yield tuple(Group(half) for pair in halves for half in pair)
        bad = []
        for pair in halves:
            worse = [half for half in pair if not answers[Group(half)].good]
            for half in pair:
                if half not in worse:
                    knowledge.good.update(dict.fromkeys(half))
            bad += worse
            if not worse:
                crossed.append(pair)
    findings += yield from singles(small, knowledge)
    for left, right in crossed:
        findings += yield from _cross(left, right, knowledge, Answer(False))
    return findings


def _halves(group: Nodes) -> tuple[Nodes, Nodes]:
    middle = len(group) // 2
    return group[:middle], group[middle:]


def _cross(left: Nodes, right: Nodes, knowledge: Knowledge, answer: Answer) -> Steps:
    """Find the bad link between two groups that are good alone and bad together."""
    pairs = _parts(left, right)
    groups = [Group((*first, *second)) for first, second in pairs]
    if len(groups) == 1:
        again = yield from confirmed(groups, knowledge)
        return [found_by(answer, " - ".join(group.nodes), "link") for group in again]
    answers = yield from ask(groups)
    worse = [place for place, group in enumerate(groups) if not answers[group].good]
    if not worse:
        return (yield from _again((*left, *right), knowledge))
    if len(worse) == len(groups):
        subject = f"{_range(left)} - {_range(right)}"
        return [found_by(answers[groups[worse[0]]], subject, "link")]
    findings: list[NodeVerdict] = []
    for place in worse:
        findings += yield from _cross(*pairs[place], knowledge, answers[groups[place]])
    return findings


def _parts(left: Nodes, right: Nodes) -> list[tuple[Nodes, Nodes]]:
    """Pairs of each half of `left` with each half of `right`; pairs that follow each other have no
    node in common where possible.
    """
    lefts = [half for half in _halves(left) if half]
    rights = [half for half in _halves(right) if half]
    return [
        (first, rights[(place + turn) % len(rights)])
        for turn in range(len(rights))
        for place, first in enumerate(lefts)
    ]


def _again(nodes: Nodes, knowledge: Knowledge) -> Steps:
    """Run the whole group once more, as all of its parts are good."""
    group = Group(nodes, repeated=True)
    answer = (yield (group,))[group]
    if answer.good:
        text = f"{len(nodes)} nodes were bad once, and then good"
        knowledge.doubts.append(("harness", text))
    else:
        text = f"{len(nodes)} nodes together are bad ({answer.text}), and all parts of them good"
        knowledge.doubts.append((answer.reason or "harness", text))
    return []


def _range(nodes: Nodes) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}"
