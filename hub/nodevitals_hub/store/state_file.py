"""A value in a JSON file of the state directory, which is written as a whole.

In: a value. Out: the same value after a restart. A failure is only logged: the process keeps the
value, and only a restart loses it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

Value = TypeVar("Value")

log = logging.getLogger(__name__)


class StateFile(Generic[Value]):
    """One file with one value."""

    def __init__(self, path: Path, kind: type[Value]) -> None:
        self._path = path
        self._decode = msgspec.json.Decoder(kind).decode
        self._writing = asyncio.Lock()

    def read(self) -> Value | None:
        """The value; None without a file, or for a damaged one."""
        try:
            return self._decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("%s: %s; it counts as empty", self._path, error)
            return None

    async def write(self, value: Value) -> None:
        """Replace the file."""
        data = msgspec.json.encode(value)
        async with self._writing:
            try:
                await asyncio.to_thread(self._replace, data)
            except OSError as error:
                log.warning("%s: %s; not written", self._path, error.strerror)

    def _replace(self, data: bytes) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_bytes(data)
        beside.replace(self._path)
