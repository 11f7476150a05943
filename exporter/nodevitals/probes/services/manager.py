"""systemd's units, asked of its manager. No call changes anything, and none loads a unit: who
follows systemd's signals would get two for each.

In: an open connection. Out: typed records. https://www.freedesktop.org/software/systemd/man/org.freedesktop.systemd1.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Optional

import msgspec
from jeepney.wrappers import DBusAddress

from nodevitals.probe import ProbeError
from nodevitals.probes.services.bus import Bus, ReplyError
from nodevitals.probes.services.watch import is_unit_name
from nodevitals.wire import one_line

_NAME = "org.freedesktop.systemd1"
_MANAGER = DBusAddress("/org/freedesktop/systemd1", _NAME, f"{_NAME}.Manager")
_PROPERTIES = "org.freedesktop.DBus.Properties"
_PATH = re.compile(r"/org/freedesktop/systemd1/unit/[A-Za-z0-9_]{1,1024}")
# Of a unit that ended since, and of a property that this version does not have.
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
    """What can be asked. Raises ProbeError, also for what each call of `Bus` raises."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def units(self, names: Iterable[str]) -> list[Unit]:
        """Those of these units that are loaded: which run, failed, or are started at boot."""
        # fnmatch(3) would read the backslash of an escaped name.
        patterns = [name.replace("\\", "\\\\") for name in names]
        return self._rows("ListUnitsByPatterns", "asas", ([], patterns))

    def failed(self) -> list[str]:
        """The names of the units in state failed."""
        rows = self._rows("ListUnitsFiltered", "as", (["failed"],))
        return [unit.name for unit in rows if unit.active == "failed"]

    def find(self, name: str) -> Optional[Unit]:
        """A loaded unit by any of its names; None where none is loaded."""
        found = self._ask(_MANAGER, "GetUnit", "s", (name,))
        path = self._converted(found, tuple[str])[0] if found is not None else ""
        if not _PATH.fullmatch(path):
            return None
        unit = Unit(name, "", path)
        own, active = self.text(unit, "Unit", "Id"), self.text(unit, "Unit", "ActiveState")
        return Unit(own, active or "", path) if own and is_unit_name(own) else None

    def text(self, unit: Unit, interface: str, name: str) -> Optional[str]:
        """A property that is a text; None where the unit does not have it."""
        value = self._property(unit, interface, name)
        return value if isinstance(value, str) else None

    def number(self, unit: Unit, interface: str, name: str) -> Optional[int]:
        """A property that is a number or a truth value; None where the unit does not have it."""
        value = self._property(unit, interface, name)
        return int(value) if isinstance(value, int) else None

    def _property(self, unit: Unit, interface: str, name: str) -> Any:
        address = DBusAddress(unit.path, _NAME, _PROPERTIES)
        found = self._ask(address, "Get", "ss", (f"{_NAME}.{interface}", name))
        if found is None:
            return None
        return self._converted(found, tuple[tuple[str, Any]])[0][1]

    def _rows(self, method: str, signature: str, body: tuple[Any, ...]) -> list[Unit]:
        try:
            found = self._bus.call(_MANAGER, method, signature, body)
        except ReplyError as error:
            raise _problem(error, method) from None
        rows = self._converted(found, tuple[list[Row]])[0]
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
