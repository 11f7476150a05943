"""Finds slow nodes and slow pairs by comparing the speeds of many pairs.

In: the speed of each pair, in one direction or in both. Out: nodes that are slow with nearly all of
their partners, nodes that are slow in one direction, and slow pairs of other nodes.

A node is slow where at least three quarters of its pairs are slow, with at least three partners
that are not slow themselves, and where chance would explain that in fewer than one of 1,000 checks:
a shared network makes pairs slow as well, and the other pairs show how many
(docs/adr/0035-verdicts.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, Optional

import msgspec

MIN_PARTNERS = 3
MOST = 0.75
CHANCE = 0.001
"""Chance per check that any node is named for pairs that are slow independently."""
LEAST_BACKGROUND = 0.02
"""Share of slow pairs that any network is taken to have, however few the others have."""
NEAR = 0.8
"""Pairs above this share of the fast ones give the median and its spread."""
MIN_NODES_OF_SPREAD = 16
"""With fewer nodes the spread is not known well enough to be a limit."""
SPREADS = 1.5
LEAST_LOSS = 0.05
"""A loss of speed that matters to no job, however small the spread."""

Direction = Literal["", "sending", "receiving"]


class Measured(msgspec.Struct, frozen=True):
    """The speed of a pair; larger is better."""

    sender: str
    receiver: str
    speed: float


class SlowNode(msgspec.Struct, frozen=True):
    """A slow node, and the ratio of its median to the usual speed."""

    name: str
    ratio: float
    direction: Direction = ""


class SlowPair(msgspec.Struct, frozen=True):
    """A slow pair of nodes that are not slow themselves."""

    sender: str
    receiver: str
    ratio: float


class Found(msgspec.Struct, frozen=True):
    """The slow nodes and pairs."""

    usual: float
    """The expected speed, or the median."""
    median: float
    """The median speed of the pairs that are not slow."""
    nodes: tuple[SlowNode, ...] = ()
    pairs: tuple[SlowPair, ...] = ()
    well: int = 0
    """Number of pairs of nodes that are not slow."""
    unproven: tuple[str, ...] = ()
    """Nodes that are slow with most partners, which may be chance."""


def find(
    measured: Iterable[Measured],
    share: float,
    expected: Optional[float] = None,
    directed: bool = True,
) -> Optional[Found]:
    """The nodes and pairs that are slow: below `share` of the usual speed, or outside the spread of
    the others. None where nothing was measured.
    """
    pairs = sorted(measured, key=lambda pair: (pair.sender, pair.receiver, pair.speed))
    if not pairs:
        return None
    median = _usual(pairs)
    usual = expected or median
    each = [Measured(pair.sender, pair.receiver, pair.speed / usual) for pair in pairs]
    table = _Table(_combined(each, statistics.fmean))
    slow: dict[str, SlowNode] = {}
    if directed:
        ways = _Table(each)
        slow_both_ways = _Table(_combined(each, max)).suspects(share)
        for name, direction in ways.slow_directions(share, slow_both_ways).items():
            slow[name] = _slow(ways, name, direction)
    limits = [(share, expected is None)]
    limit = table.limit_of_spread(median / usual)
    if limit is not None and limit > share:
        limits.append((limit, True))
    for least, compared in limits:
        for name in table.slow_nodes(least, compared):
            slow.setdefault(name, _slow(table, name, ""))
    others = each if directed else table.pairs
    well = [pair for pair in others if not {pair.sender, pair.receiver} & slow.keys()]
    return Found(
        usual,
        median,
        tuple(slow[name] for name in sorted(slow)),
        tuple(
            SlowPair(pair.sender, pair.receiver, pair.speed) for pair in well if pair.speed < share
        ),
        len(well),
        tuple(sorted(table.suspects(share) - slow.keys())),
    )


def _combined(
    pairs: Iterable[Measured], combine: Callable[[Iterable[float]], float]
) -> list[Measured]:
    """One speed for each two nodes, of both directions."""
    speeds: dict[tuple[str, str], list[float]] = {}
    for pair in pairs:
        other_way = (pair.receiver, pair.sender)
        nodes = other_way if other_way in speeds else (pair.sender, pair.receiver)
        speeds.setdefault(nodes, []).append(pair.speed)
    return [Measured(*nodes, combine(both)) for nodes, both in speeds.items()]


def _slow(table: _Table, name: str, direction: Direction) -> SlowNode:
    pairs = [
        pair
        for pair in table.of[name]
        if not direction or name == (pair.sender if direction == "sending" else pair.receiver)
    ]
    return SlowNode(name, statistics.median(pair.speed for pair in pairs), direction)


def _usual(pairs: Sequence[Measured]) -> float:
    """The median of the pairs that are not slow. Pairs are compared with the speed that most nodes
    reach with a quarter of their partners: one slow node of four is in half of all pairs.
    """
    best = sorted(upper(pair.speed for pair in own) for own in by_node(pairs).values())
    fast = statistics.median_high(best)
    return statistics.median(pair.speed for pair in pairs if pair.speed >= NEAR * fast)


def upper(values: Iterable[float]) -> float:
    """The third quartile: three quarters of the values do not exceed it."""
    ordered = sorted(values)
    return ordered[math.ceil(MOST * len(ordered)) - 1]


def by_node(pairs: Iterable[Measured]) -> dict[str, list[Measured]]:
    """The pairs of each node."""
    pairs_of: dict[str, list[Measured]] = {}
    for pair in pairs:
        for name in (pair.sender, pair.receiver):
            pairs_of.setdefault(name, []).append(pair)
    return pairs_of


class _Table:
    """The pairs, with their speeds relative to the usual speed."""

    def __init__(self, pairs: Sequence[Measured]) -> None:
        self.pairs = pairs
        self.of = by_node(pairs)

    def limit_of_spread(self, median: float) -> Optional[float]:
        """The ratio below which a pair is outside the spread of the others."""
        if len(self.of) < MIN_NODES_OF_SPREAD:
            return None
        near = [pair.speed / median for pair in self.pairs if pair.speed >= NEAR * median]
        spread = 1.4826 * statistics.median(abs(ratio - 1) for ratio in near)
        return median * (1 - max(LEAST_LOSS, SPREADS * spread))

    def suspects(self, limit: float) -> set[str]:
        """Nodes of which most pairs are below the limit."""
        return {
            name
            for name, own in self.of.items()
            if len(own) >= MIN_PARTNERS and _below(own, limit) >= MOST * len(own)
        }

    def slow_nodes(self, limit: float, compared: bool) -> list[str]:
        """Suspects that are slow themselves. `compared`: with other nodes, where chance must be
        excluded; against an expected rate, all nodes may be slow.
        """
        suspects = self.suspects(limit)
        if not compared:
            # A pair that is well clears both nodes: others may be slow only with slow partners.
            firm = {name for name in suspects if _below(self.of[name], limit) == len(self.of[name])}
            others = ((name, self._with_others(name, firm)) for name in suspects - firm)
            slow = {name for name, own in others if _below(own, limit) >= MOST * len(own)}
            return sorted(firm | slow)
        background = self._background(limit, suspects)
        return [
            name
            for name in sorted(suspects)
            if self._is_no_chance(self._with_others(name, suspects), limit, background)
        ]

    def slow_directions(
        self, limit: float, named: Collection[str]
    ) -> Mapping[str, Literal["sending", "receiving"]]:
        """Nodes that are slow with every partner in one direction, with none in the other."""
        directions: dict[str, Literal["sending", "receiving"]] = {}
        for name in sorted(self.of.keys() - set(named)):
            own = self._with_others(name, named)
            sent = [pair for pair in own if pair.sender == name]
            received = [pair for pair in own if pair.receiver == name]
            if min(len(sent), len(received)) < MIN_PARTNERS:
                continue
            if _below(sent, limit) == len(sent) and not _below(received, limit):
                directions[name] = "sending"
            elif _below(received, limit) == len(received) and not _below(sent, limit):
                directions[name] = "receiving"
        background = self._background(limit, {*directions, *named})
        return {
            name: direction
            for name, direction in directions.items()
            if self._is_no_chance(
                [
                    pair
                    for pair in self._with_others(name, {*directions, *named})
                    if name == (pair.sender if direction == "sending" else pair.receiver)
                ],
                limit,
                background,
            )
        }

    def _with_others(self, name: str, others: Collection[str]) -> list[Measured]:
        """A node's pairs, except those with these others."""
        return [
            pair
            for pair in self.of[name]
            if (pair.receiver if pair.sender == name else pair.sender) not in others
        ]

    def _background(self, limit: float, suspects: Collection[str]) -> float:
        """The share of slow pairs among the pairs without suspects."""
        rest = [pair for pair in self.pairs if not {pair.sender, pair.receiver} & set(suspects)]
        return max(LEAST_BACKGROUND, _below(rest, limit) / len(rest) if rest else 1.0)

    def _is_no_chance(self, own: Sequence[Measured], limit: float, background: float) -> bool:
        slow = _below(own, limit)
        if len(own) < MIN_PARTNERS or slow < MOST * len(own):
            return False
        return at_least(slow, len(own), background) * len(self.of) <= CHANCE


def _below(pairs: Iterable[Measured], limit: float) -> int:
    return sum(pair.speed < limit for pair in pairs)


def at_least(count: int, trials: int, chance: float) -> float:
    """The probability of at least `count` successes in `trials` (binomial)."""
    return math.fsum(
        math.comb(trials, hits) * chance**hits * (1 - chance) ** (trials - hits)
        for hits in range(count, trials + 1)
    )
