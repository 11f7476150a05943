"""The event log in Redfish (LogEntry of DMTF DSP0268): which one, and what is new in it.

In: the client. Out: entries, oldest first, each with the state after it. Services list the newest
entry first or last, on one page or on many, with the entries or with links to them. The BMC reports
the severity; the kind follows from the sensor type. An entry without a sensor type has the kind
`other`, as in many vendor formats.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.probes.bmc.parts import BmcState, LogEvent, LogInfo, PartError
from nodevitals.probes.bmc.redfish_client import (
    MAX_PAGES,
    Client,
    Json,
    link,
    number,
    objects,
    path,
    text,
)

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(?:Z|([+-])(\d\d):?(\d\d))",
    re.ASCII,
)
# An earlier time comes from a clock that was not set.
_EARLIEST = 0x20000000
# Sensor types in lower case and without punctuation: services spell them differently.
_KINDS = {
    "temperature": "temperature",
    "voltage": "voltage",
    "current": "voltage",
    "fan": "fan",
    "coolingdevice": "fan",
    "processor": "processor",
    "powersupplyconverter": "power_supply",
    "powersupply": "power_supply",
    "powerunit": "power_unit",
    "memory": "memory",
    "driveslotbay": "drive",
    "driveslot": "drive",
    "criticalinterrupt": "bus",
    "chipset": "board",
    "moduleboard": "board",
    "slotconnector": "slot",
    "battery": "battery",
}
_SEVERITIES = {"Critical": "critical", "Warning": "warning"}
# Words of an EntryCode that reports the end or the absence of a fault.
_END = re.compile(
    r"deassert|not exceeded|performance met|transition to ok|transition to (?:running|on ?line)"
    r"|fully redundant|from more severe"
    r"|lower [a-z -]{1,20}going high|upper [a-z -]{1,20}going low",
    re.IGNORECASE,
)
_OTHER = re.compile(r"[^a-z]")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `identity` is unique, also after the log was cleared; `number` is its Id, None if
    that is no number. `event` is None if the entry reports no fault.
    """

    identity: str
    path: str
    number: Optional[int]
    time: float
    event: Optional[LogEvent]


def parse_entry(document: Json) -> LogEntry:
    """A member of the collection of entries."""
    name, message = text(document, "Id"), text(document, "MessageId")
    time = parse_time(text(document, "Created"))
    where = path(document.get("@odata.id"))
    return LogEntry(
        identity=f"{name[:64]} {time:.0f} {message[:64]}",
        path=where,
        number=int(name) if name.isascii() and name.isdecimal() and len(name) < 18 else None,
        time=time,
        event=_event(document, time),
    )


def _event(document: Json, time: float) -> Optional[LogEvent]:
    severity = _SEVERITIES.get(text(document, "Severity"), "")
    if not severity or _END.search(text(document, "EntryCode")):
        return None
    sensor = text(document, "SensorType")
    kind = _KINDS.get(_OTHER.sub("", sensor.lower()), "") if sensor else "other"
    if not kind:
        return None
    code = number(document, "SensorNumber")
    what = f"sensor 0x{int(code):02x}" if code is not None else text(document, "MessageId")[:64]
    return LogEvent(kind=kind, severity=severity, time=time, detail=f"event of {what or 'no name'}")


def parse_time(created: str) -> float:
    """Seconds since the epoch; 0 if unknown: no time zone, or the clock was not set."""
    match = _TIME.fullmatch(created)
    if match is None:
        return 0.0
    year, month, day, hour, minute, second = (int(group) for group in match.groups()[:6])
    if not (
        year >= 1970
        and 1 <= month <= 12
        and 1 <= day <= 31
        and hour < 24
        and minute < 60
        and second < 61
    ):
        return 0.0
    zone = int(match[8]) * 3600 + int(match[9]) * 60 if match[7] else 0
    seconds = timegm((year, month, day, hour, minute, second)) - (
        -zone if match[7] == "-" else zone
    )
    return float(seconds) if _EARLIEST <= seconds < 0xFFFFFFFF else 0.0


def is_newest_first(first: LogEntry, last: LogEntry) -> bool:
    """Whether a page with this first and last entry lists the newest entry first."""
    if first.time and last.time and first.time != last.time:
        return first.time > last.time
    if first.number is not None and last.number is not None:
        return first.number > last.number
    return False


# New entries per run, each of which may take a request; the next runs read the others.
MAX_ENTRIES = 32
_MAX_SERVICES = 8
# Identifiers of hardware event logs, the best first: Dell and OpenBMC, HPE, Supermicro and Huawei,
# Lenovo.
_LOGS = ("sel", "iml", "log1", "platformlog", "eventlog")
# An entry, its page, and whether the last entry of the previous run was found.
_Found = tuple[LogEntry, str, bool]


class EventLog:
    """The log of a system, or else of a manager."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.path = ""
        """Of its entries; '' where there is no log."""

    def find(self, owners: list[Json]) -> LogInfo:
        """Look for the log. `owners` are the systems, then the managers."""
        services: list[Json] = []
        for owner in owners:
            services += self._client.members(owner, "LogServices", _MAX_SERVICES)
            if any(_rank(service) == 0 for service in services):
                break
        services = [
            service
            for service in services
            if _rank(service) <= len(_LOGS) and link(service, "Entries")
        ]
        if not services:
            if self._client.failed is not None:
                raise self._client.failed
            return LogInfo(None, None, None)
        service = min(services, key=_rank)
        where = link(service, "Entries")
        first = self._client.get(where)
        if first is None:
            return LogInfo(None, None, None)
        self.path = where
        entries, most = number(first, "Members@odata.count"), number(service, "MaxNumberOfRecords")
        used = entries / most if entries is not None and most and 0 <= entries <= most else None
        whole = None if entries is None or entries < 0 else int(entries)
        return LogInfo(whole, used, None)

    def newest(self, state: BmcState) -> BmcState:
        """The end of the log; not `started` if it is on a later page."""
        known = state if state.source == self.path else BmcState(source=self.path)
        where, members = self._start(known)
        if not members:
            return BmcState(started=True, source=self.path)
        following = ""
        if self._is_newest_first(members):
            return self._after(BmcState(), self._entry(members[0]), self.path)
        for at in range(MAX_PAGES):
            where = following if at else where
            page = self._page(where)
            members = objects(page, "Members") or members
            following = path(page.get("Members@odata.nextLink"))
            if not following:
                break
        last = self._after(BmcState(), self._entry(members[-1]), where)
        return msgspec.structs.replace(last, started=not following)

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """Entries after `state`. If the log was cleared, all entries are new except those older
        than the last one read: the service may have only renamed them.
        """
        where, members = self._start(state)
        if not members:
            yield BmcState(started=True, source=self.path), None
            return
        if self._is_newest_first(members):
            entries = self._backwards(members, state)
        else:
            entries = self._onwards(where, state)
        for entry, page, is_known in entries:
            if entry.identity == state.content:
                continue
            before = state.time if state.content else 0.0
            state = self._after(state, entry, page)
            is_old = not is_known and 0 < entry.time <= before
            yield state, None if is_old else entry.event

    def _start(self, state: BmcState) -> tuple[str, list[Json]]:
        """The page to begin with: the page of the last entry, if it still exists."""
        if state.page not in ("", self.path):
            members = objects(self._client.find(state.page), "Members")
            if any(path(member.get("@odata.id")) == state.entry for member in members):
                return state.page, members
        return self.path, objects(self._page(self.path), "Members")

    def _backwards(self, members: list[Json], state: BmcState) -> list[_Found]:
        """Read from the newest entry back to the known one; return them oldest first."""
        entries: dict[str, LogEntry] = {}
        is_known = False
        for member in self._all(members):
            if len(entries) >= MAX_ENTRIES and "Id" not in member:
                break
            entry = self._entry(member)
            is_known = bool(state.content) and entry.identity == state.content
            if is_known:
                break
            entries.setdefault(entry.identity, entry)
        return [(entry, self.path, is_known) for entry in reversed(entries.values())]

    def _onwards(self, where: str, state: BmcState) -> list[_Found]:
        """Read from the known entry, or else from the oldest one, to the newest."""
        entries: dict[str, tuple[LogEntry, str]] = {}
        is_known = False
        for _ in range(MAX_PAGES):
            page = self._page(where)
            for member in self._after_known(objects(page, "Members"), state):
                if len(entries) >= MAX_ENTRIES and "Id" not in member:
                    return [(entry, on, is_known) for entry, on in entries.values()]
                entry = self._entry(member)
                if state.content and entry.identity == state.content:
                    is_known = True
                    entries.clear()
                else:
                    entries.setdefault(entry.identity, (entry, where))
            where = path(page.get("Members@odata.nextLink"))
            if not where:
                break
        return [(entry, on, is_known) for entry, on in entries.values()]

    def _after_known(self, members: list[Json], state: BmcState) -> list[Json]:
        """The members from the known one on, if it is among them; earlier ones need no request."""
        for at, member in enumerate(members):
            if state.entry and path(member.get("@odata.id")) == state.entry:
                return members[at:]
        return members

    def _all(self, members: list[Json]) -> Iterator[Json]:
        yield from members
        where = self.path
        for _ in range(MAX_PAGES - 1):
            where = path(self._page(where).get("Members@odata.nextLink"))
            if not where:
                return
            yield from objects(self._page(where), "Members")

    def _is_newest_first(self, members: list[Json]) -> bool:
        if len(members) < 2:
            return False
        return is_newest_first(self._entry(members[0]), self._entry(members[-1]))

    def _entry(self, member: Json) -> LogEntry:
        if "Id" not in member:
            where = path(member.get("@odata.id"))
            document = self._client.get(where) if where else None
            if not document:
                raise PartError("malformed", f"{self.path}: a member without an entry")
            member = {"@odata.id": where, **document}
        return parse_entry(member)

    def _page(self, where: str) -> Json:
        page = self._client.get(where)
        if page is None:
            raise PartError("no_answer", f"{where}: not there")
        return page

    def _after(self, state: BmcState, entry: LogEntry, page: str) -> BmcState:
        return BmcState(
            started=True,
            content=entry.identity,
            source=self.path,
            page=page,
            entry=entry.path,
            time=max(state.time, entry.time),
        )


def _rank(service: Json) -> int:
    """Rank of a log service, lowest first; more than the length of _LOGS if it does not fit."""
    if text(service, "LogEntryType") == "SEL":
        return 0
    name = text(service, "Id").lower()
    return 1 + _LOGS.index(name) if name in _LOGS else len(_LOGS) + 1
