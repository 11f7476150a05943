"""The search for what makes a collective fail or slow: which groups to run next.

A generator, so that it reads as the procedure that it is: it yields batches of groups without a
node in common, is sent their answers, and returns its conclusion. It starts from a collective over
all nodes that was bad.

1. Halves of each bad group, down to two or three nodes; good groups are known good nodes.
2. Where all groups are bad, what they share may be a rail: one group per device.
3. Each node that is left with a known good one. Two that are good so: the link between them.
4. Where both halves are good, quarters of both together: the link between two of them. Where these
   are good as well and the whole is bad again, it is only the number of nodes.

What is named was bad twice.
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
"""Number of bad groups without a good one from which on it is no matter of nodes."""


def search(
    nodes: Sequence[str], rails: Sequence[str], share: float
) -> Generator[Batch, Answers, Conclusion]:
    """The procedure above; a rail is slow below `share` of the other rails."""
    knowledge = Knowledge(rails, share)
    found = yield from _halve([tuple(nodes)], knowledge)
    if found:
        return Conclusion(tuple(found))
    reason, text = knowledge.doubts[0] if knowledge.doubts else ("harness", "no group is bad")
    return Conclusion((), reason, text)


def _halve(bad: list[Nodes], knowledge: Knowledge) -> Steps:
    """From bad groups without a node in common."""
    found: list[NodeVerdict] = []
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
    found += yield from singles(small, knowledge)
    for one, other in crossed:
        found += yield from _cross(one, other, knowledge, Answer(False))
    return found


def _halves(group: Nodes) -> tuple[Nodes, Nodes]:
    middle = len(group) // 2
    return group[:middle], group[middle:]


def _cross(one: Nodes, other: Nodes, knowledge: Knowledge, answer: Answer) -> Steps:
    """Two good groups that are bad together: the link between two of their parts."""
    pairs = _parts(one, other)
    groups = [Group((*first, *second)) for first, second in pairs]
    if len(groups) == 1:
        again = yield from confirmed(groups, knowledge)
        return [found_by(answer, " - ".join(group.nodes), "link") for group in again]
    answers = yield from ask(groups)
    worse = [place for place, group in enumerate(groups) if not answers[group].good]
    if not worse:
        return (yield from _again((*one, *other), knowledge))
    if len(worse) == len(groups):
        subject = f"{_range(one)} - {_range(other)}"
        return [found_by(answers[groups[worse[0]]], subject, "link")]
    found: list[NodeVerdict] = []
    for place in worse:
        found += yield from _cross(*pairs[place], knowledge, answers[groups[place]])
    return found


def _parts(one: Nodes, other: Nodes) -> list[tuple[Nodes, Nodes]]:
    """Each half of one with each half of the other; those without a node in common first."""
    ones = [half for half in _halves(one) if half]
    others = [half for half in _halves(other) if half]
    return [
        (first, others[(place + turn) % len(others)])
        for turn in range(len(others))
        for place, first in enumerate(ones)
    ]


def _again(nodes: Nodes, knowledge: Knowledge) -> Steps:
    """The whole group once more, as all of its parts are good."""
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
