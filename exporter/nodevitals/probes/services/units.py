"""What is reported of each unit.

In: systemd's manager and the settings. Out: `nodevitals_services_*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from nodevitals.probe import Readings
from nodevitals.probes.services import families
from nodevitals.probes.services.manager import Manager, Unit
from nodevitals.probes.services.watch import Watch

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
    """Report the number of failed units, whatever they are."""
    failed = [name for name in manager.failed() if not watch.ignores(name)]
    readings.add(families.FAILED, len(failed))


def _required(
    manager: Manager, watch: Watch, loaded: dict[str, Unit]
) -> Iterator[tuple[str, Optional[Unit]]]:
    """The configured units by their own name; None where one is not loaded."""
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
    """Whether systemd would start it: a unit that does not fit the machine (ConditionPathExists,
    ConditionVirtualization) is enabled, and rightly inactive.
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
