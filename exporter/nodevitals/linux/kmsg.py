r"""Reads /dev/kmsg. In: bytes. Out: typed records, and the number of lost ones.

A record is `priority,sequence,microseconds,flags;text\n`, then lines of properties that begin
with a space: https://docs.kernel.org/admin-guide/abi-testing.html (dev-kmsg).
"""

from __future__ import annotations

import errno
import os
import re

import msgspec

# The kernel's own limit on one record is 8 KiB (CONSOLE_EXT_LOG_MAX); a smaller buffer is EINVAL.
READ_BYTES = 16 * 1024
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_FACILITY_SHIFT = 3


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record that the kernel itself wrote; `seconds` is the kernel's clock, since boot."""

    sequence: int
    seconds: float
    text: str


def parse_record(line: bytes) -> tuple[int, Record | None] | None:
    """A record's sequence number, and the record where the kernel wrote it.

    User space may write into the log too, but not with facility 0, which is the kernel's.
    None for anything else: a property, half a line.
    """
    match = _RECORD.fullmatch(line)
    if match is None:
        return None
    priority, sequence = int(match[1]), int(match[2])
    if priority >> _FACILITY_SHIFT:
        return sequence, None
    raw = _ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 16)]), match[4])
    text = raw.decode("utf-8", "replace")
    return sequence, Record(sequence, int(match[3]) / 1e6, text)


class Follower:
    """Reads the records after `sequence`, which is the number of the last record that was read.
    `lost` counts the records that were overwritten before they were read; the caller may reset it.
    """

    def __init__(self, path: str, sequence: int = -1) -> None:
        """Open the log. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self.sequence = sequence
        self.lost = 0

    def fileno(self) -> int:
        """The descriptor, readable when there is a new record."""
        return self._descriptor

    def close(self) -> None:
        """Close the log."""
        os.close(self._descriptor)

    def read(self, limit: int) -> tuple[list[Record], bool]:
        """The new records of the kernel, and whether these were all; about `limit` at most.

        Raises OSError.
        """
        records: list[Record] = []
        for _ in range(limit):
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                return records, True
            except OSError as error:
                if error.errno == errno.EPIPE:  # the record was overwritten before it was read
                    continue
                raise
            if not data:  # the end, for now, of a captured log in a file or pipe
                return records, True
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()[-READ_BYTES:]
            for line in lines:
                self._take(line, records)
            if len(records) >= limit:
                break
        return records, False

    def _take(self, line: bytes, records: list[Record]) -> None:
        parsed = parse_record(line)
        if parsed is None or parsed[0] <= self.sequence:
            return
        sequence, record = parsed
        self.lost += sequence - self.sequence - 1
        self.sequence = sequence
        if record is not None:
            records.append(record)
