"""Plans the pair tests of a check in rounds; in a round, a node is in at most one test.

In: a resolved request. Out: rounds, which are computed on access. The same nodes give the same
plan, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Union, overload

from nodevitals.checks.model import CheckRequest
from nodevitals.probes.fabric.members import Pairing, Roster, rounds

Round = tuple[Pairing, ...]


class Plan(Sequence[Round]):
    """The rounds of a check; none for kinds without pairs."""

    def __init__(self, request: CheckRequest) -> None:
        """Plan the rounds of a resolved request."""
        self._pair = tuple(request.nodes) if request.kind == "pair" else ()
        names = request.nodes if request.kind == "matrix" else ()
        self._roster = Roster((name, "") for name in names)
        every = rounds(len(self._roster)) if len(self._roster) > 1 else 0
        wanted = every if request.rounds is None else min(request.rounds, every)
        # The rounds are chosen evenly from all rounds: nodes with neighbouring names are often in
        # one rack, and successive rounds of the circle method pair the same racks.
        self._numbers = [number * every // wanted for number in range(wanted)] if wanted else []

    def __len__(self) -> int:
        return 1 if self._pair else len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Round: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Round]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Round, Sequence[Round]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        if self._pair:
            return (Pairing(*self._pair),)
        return tuple(self._roster.pairings(self._numbers[index]))

    @property
    def runs(self) -> int:
        """Number of pair tests in all rounds."""
        return 1 if self._pair else len(self._numbers) * (len(self._roster) // 2)

    def numbered(self) -> Iterator[tuple[int, int, Pairing]]:
        """For each test: its round, the number of its run (from 0), and its pairing."""
        number = 0
        for place in range(len(self)):
            for pairing in self[place]:
                yield place, number, pairing
                number += 1
