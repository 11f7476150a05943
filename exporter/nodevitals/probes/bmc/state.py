"""What the probe `bmc` keeps between runs, and what a source of it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional, Protocol

import msgspec

from nodevitals.probes.bmc.parts import LogEvent, LogInfo, Part, PartError


class BmcState(msgspec.Struct):
    """Up to where the event log was read. `content` identifies the last entry: after the log was
    cleared, another one may have its record ID or its path. `read_at` is when it was read, by the
    wall clock.
    """

    started: bool = False
    record: int = 0
    content: str = ""
    read_at: float = 0.0
    source: str = ""
    """Path of the log's entries in Redfish; '' of ipmitool's."""
    page: str = ""
    """Redfish: the page that the last entry was on, where the newest ones are on the last page."""
    entry: str = ""
    """Redfish: path of the last entry."""
    time: float = 0.0
    """Redfish: the latest time of an entry so far."""


class Source(Protocol):
    """ipmitool or Redfish. All methods raise PartError, or ProbeError where a further call makes no
    sense.
    """

    failed: Optional[PartError]
    """The first failure of a part of which something was read nevertheless."""

    @property
    def log(self) -> Optional[str]:
        """After log_info(): the `BmcState.source` of the event log; None where there is no log."""

    def controller(self) -> tuple[str, str]:
        """Its firmware and its manufacturer."""

    def log_info(self) -> LogInfo:
        """Of the event log."""

    def newest(self, state: BmcState, /) -> BmcState:
        """Of a log that was not read before: where its end is; not `started` if it is further."""

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """Entries since `state`, oldest first, each with the state after it."""

    def power(self) -> Optional[float]:
        """The power that the chassis draws, in watts."""

    def parts(self) -> list[Part]:
        """Power supplies, fans, temperatures, redundancy and batteries."""

    def close(self) -> None:
        """End what the run has opened."""
