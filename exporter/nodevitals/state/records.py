"""The records between the agent and the history's worker, and in the database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from nodevitals.exposition import Source
from nodevitals.wire import encode

FORGOTTEN = "forgotten"
# Limit for a batch's rows, totals and states each, so that together they fit into one frame. The
# limits of `wire.py` keep each record smaller.
MAX_PART_BYTES = 1280 * 1024
Record = TypeVar("Record", bound=msgspec.Struct)


class Row(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A change of state of a device; `time` is in seconds since the epoch."""

    time: float
    probe: str
    device: str
    state: str
    detail: str = ""


class Total(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The value of a counter; `probe`, `target` and `part` are its Source."""

    probe: str
    target: str
    part: str
    family: str
    labels: tuple[str, ...]
    value: float

    @property
    def counter(self) -> tuple[Source, tuple[str, tuple[str, ...]]]:
        """The identity of the counter: the source, and the family with its labels."""
        return Source(self.probe, self.target, self.part), (self.family, self.labels)


class SavedState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The state of a persistent probe's target: the probe's State in msgpack."""

    probe: str
    target: str
    state: bytes


class Batch(msgspec.Struct, frozen=True):
    """To the history's worker. `load`: the Reply must contain what earlier agents wrote. `replace`:
    the counters of earlier agents could not be loaded, and these replace them.
    """

    boot_id: str = ""
    rows: tuple[Row, ...] = ()
    totals: tuple[Total, ...] = ()
    states: tuple[SavedState, ...] = ()
    load: bool = False
    replace: bool = False


class Reply(msgspec.Struct, frozen=True):
    """From the history's worker.

    `totals` (of this boot), `states` and `latest` (the last row of each device) are a part of the
    reply to `load`; `more`: it is not the last part. `forgotten` are the (probe, device)
    pairs that `history forget` has retired since the last reply; `opened`: the file was opened for
    this batch, and may lack what was written before; `lost`: a line where the file was lost.
    """

    totals: tuple[Total, ...] = ()
    states: tuple[SavedState, ...] = ()
    latest: tuple[Row, ...] = ()
    more: bool = False
    forgotten: tuple[tuple[str, str], ...] = ()
    opened: bool = False
    lost: str = ""


def fitting(records: Iterable[Record]) -> tuple[Record, ...]:
    """The first of these records, of at most MAX_PART_BYTES together."""
    first, left = [], MAX_PART_BYTES
    for record in records:
        left -= len(encode(record))
        if left < 0:
            break
        first.append(record)
    return tuple(first)
