"""Reads systemd's units from its manager, and reports them.

In: an open connection and the settings. Out: `nodevitals_services_*`. No call changes anything, and
none loads a unit: a client that follows systemd's signals would get two for each.
https://www.freedesktop.org/software/systemd/man/org.freedesktop.systemd1.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Optional

import msgspec
from jeepney.wrappers import DBusAddress

from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.services import families
from nodevitals.probes.services.bus import Bus, ReplyError
from nodevitals.probes.services.unit_names import Watch, is_unit_name
from nodevitals.wire import one_line

_NAME = "org.freedesktop.systemd1"
_MANAGER = DBusAddress("/org/freedesktop/systemd1", _NAME, f"{_NAME}.Manager")
_PROPERTIES = "org.freedesktop.DBus.Properties"
_PATH = re.compile(r"/org/freedesktop/systemd1/unit/[A-Za-z0-9_]{1,1024}")
# Errors for a unit that ended since, and for a property that this version does not have.
_GONE = tuple(
    f"org.freedesktop.{name}"
    for name in (
        "systemd1.NoSuchUnit",
        "DBus.Error.UnknownObject",
        "DBus.Error.UnknownProperty",
        "DBus.Error.UnknownInterface",
        "DBus.Error.UnknownMethod",
    )
)
_REASONS = {
    "org.freedesktop.DBus.Error.AccessDenied": "permission",
    "org.freedesktop.DBus.Error.ServiceUnknown": "no_systemd",
    "org.freedesktop.DBus.Error.NameHasNoOwner": "no_systemd",
    "org.freedesktop.DBus.Error.NoReply": "timeout",
}


class Row(msgspec.Struct, array_like=True, frozen=True):
    """What ListUnits returns of a unit."""

    name: str
    description: str
    load: str
    active: str
    sub: str
    following: str
    path: str
    job: int
    job_type: str
    job_path: str


class Unit(msgspec.Struct, frozen=True):
    """A loaded unit by its own name, with its object's path."""

    name: str
    active: str
    path: str


class Manager:
    """Queries systemd's manager. Raises ProbeError, also for the errors of `Bus`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def units(self, names: Iterable[str]) -> list[Unit]:
        """The loaded units among these: units that run, failed, or start at boot."""
        # fnmatch(3) would interpret the backslash of an escaped name.
        patterns = [name.replace("\\", "\\\\") for name in names]
        return self._rows("ListUnitsByPatterns", "asas", ([], patterns))

    def failed(self) -> list[str]:
        """The names of the units in state failed."""
        rows = self._rows("ListUnitsFiltered", "as", (["failed"],))
        return [unit.name for unit in rows if unit.active == "failed"]

    def find(self, name: str) -> Optional[Unit]:
        """A loaded unit by any of its names; None if none is loaded."""
        reply = self._ask(_MANAGER, "GetUnit", "s", (name,))
        path = self._converted(reply, tuple[str])[0] if reply is not None else ""
        if not _PATH.fullmatch(path):
            return None
        unit = Unit(name, "", path)
        own, active = self.text(unit, "Unit", "Id"), self.text(unit, "Unit", "ActiveState")
        return Unit(own, active or "", path) if own and is_unit_name(own) else None

    def text(self, unit: Unit, interface: str, name: str) -> Optional[str]:
        """A property that is a text; None if the unit does not have it."""
        value = self._property(unit, interface, name)
        return value if isinstance(value, str) else None

    def number(self, unit: Unit, interface: str, name: str) -> Optional[int]:
        """A property that is a number or a truth value; None if the unit does not have it."""
        value = self._property(unit, interface, name)
        return int(value) if isinstance(value, int) else None

    def _property(self, unit: Unit, interface: str, name: str) -> Any:
        address = DBusAddress(unit.path, _NAME, _PROPERTIES)
        reply = self._ask(address, "Get", "ss", (f"{_NAME}.{interface}", name))
        if reply is None:
            return None
        return self._converted(reply, tuple[tuple[str, Any]])[0][1]

    def _rows(self, method: str, signature: str, body: tuple[Any, ...]) -> list[Unit]:
        try:
            reply = self._bus.call(_MANAGER, method, signature, body)
        except ReplyError as error:
            raise _problem(error, method) from None
        rows = self._converted(reply, tuple[list[Row]])[0]
        return [
            Unit(row.name, row.active, row.path)
            for row in rows
            if is_unit_name(row.name) and _PATH.fullmatch(row.path)
        ]

    def _ask(
        self, address: DBusAddress, method: str, signature: str, body: tuple[Any, ...]
    ) -> Optional[tuple[Any, ...]]:
        try:
            return self._bus.call(address, method, signature, body)
        except ReplyError as error:
            if error.name in _GONE:
                return None
            raise _problem(error, method) from None

    def _converted(self, body: tuple[Any, ...], kind: Any) -> Any:
        try:
            return msgspec.convert(body, kind)
        except msgspec.ValidationError as error:
            raise ProbeError("protocol", f"systemd's reply has another type: {error}") from None


def _problem(error: ReplyError, method: str) -> ProbeError:
    reason = _REASONS.get(error.name, "refused")
    return ProbeError(reason, one_line(f"systemd: {method}: {error.name}: {error.text}"))


_ACTIVE = ("active", "reloading", "refreshing")
_ENABLED = {
    "enabled": True,
    "enabled-runtime": True,
    "disabled": False,
    "masked": False,
    "masked-runtime": False,
}


def report_units(
    manager: Manager, watch: Watch, restarts: dict[str, int], readings: Readings
) -> None:
    """Report each watched unit. `restarts` are the counts of the last run, by unit; they are
    replaced by those of this one.
    """
    wanted = watch.names()
    loaded = {unit.name: unit for unit in manager.units(wanted) if unit.name in wanted}
    required = dict(_required(manager, watch, loaded))
    counts: dict[str, int] = {}
    for name, unit in {**loaded, **required}.items():
        if unit is None:
            _report_missing(name, readings)
        else:
            readings.at(name, "org.freedesktop.systemd1")
            count = _report(manager, unit, name in required, restarts.get(name), readings)
            if count is not None:
                counts[name] = count
    restarts.clear()
    restarts.update(counts)


def report_failed(manager: Manager, watch: Watch, readings: Readings) -> None:
    """Report the number of all failed units."""
    failed = [name for name in manager.failed() if not watch.ignores(name)]
    readings.add(families.FAILED, len(failed))


def _required(
    manager: Manager, watch: Watch, loaded: dict[str, Unit]
) -> Iterator[tuple[str, Optional[Unit]]]:
    """The configured units by their own name; None for a unit that is not loaded."""
    seen = set()
    for name in watch.expected:
        unit = loaded.get(name) or manager.find(name)  # the name may be an alias
        own = name if unit is None else unit.name
        if own not in seen:
            seen.add(own)
            yield own, unit


def _report_missing(name: str, readings: Readings) -> None:
    readings.add(families.ACTIVE, 0, name)
    readings.add(families.EXPECTED, 1, name)
    readings.condition(name, "not loaded")


def _report(
    manager: Manager, unit: Unit, required: bool, before: Optional[int], readings: Readings
) -> Optional[int]:
    """Report a unit, and return its number of restarts."""
    name = unit.name
    active = unit.active in _ACTIVE
    enabled = _ENABLED.get(manager.text(unit, "Unit", "UnitFileState") or "")
    expected = required or (bool(enabled) and (active or _conditions_met(manager, unit)))
    if unit.active in families.STATES:
        readings.add(families.ACTIVE, active, name)
        readings.add(families.STATE, 1, name, unit.active)
        readings.condition(name, unit.active)
    readings.add(families.ENABLED, enabled, name)
    readings.add(families.EXPECTED, expected, name)
    if not name.endswith(".service"):
        return None
    count = manager.number(unit, "Service", "NRestarts")
    if count is None:
        return before
    readings.increment(families.RESTARTS, new_restarts(before, count), name)
    return count


def _conditions_met(manager: Manager, unit: Unit) -> bool:
    """Whether the conditions of a unit are met: a unit that does not fit the machine
    (ConditionPathExists, ConditionVirtualization) may be enabled, and is correctly inactive.
    """
    tried = manager.number(unit, "Unit", "ConditionTimestampMonotonic")
    return not tried or manager.number(unit, "Unit", "ConditionResult") != 0


def new_restarts(before: Optional[int], now: int) -> int:
    """The restarts since the last run: systemd counts from 0 again when a person starts the unit.
    None were seen before the first run.
    """
    if before is None:
        return 0
    return now - before if now >= before else now
