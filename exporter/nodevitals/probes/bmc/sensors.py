"""The sensors of a BMC: `ipmitool sdr elist`.

In: lines `NAME | NUMBERh | STATUS | ENTITY.INSTANCE | READING`; table 42-3 of the IPMI
specification defines the texts of discrete states. Out: `Sensor`, and the state by kind. What a
sensor does not report stays unknown: a sensor that is not scanned or has no reading reports
nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Optional

import msgspec

from nodevitals.probes.bmc.parts import MAX_PARTS, Part, is_inlet, shown_name

_NUMBER = re.compile(r"([0-9A-Fa-f]{2})h")
_ENTITY = re.compile(r"(\d{1,3})\.\d{1,3}")
_VALUE = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?) ([A-Za-z][A-Za-z ]{0,30})")
_SUPPLY_NAME = re.compile(r"ps ?\d|psu|power suppl|pwr ?suppl|pws", re.IGNORECASE)
_FAN_NAME = re.compile(r"fan|blower|cooling", re.IGNORECASE)
_POWER_NAME = re.compile(r"ps|power|pwr", re.IGNORECASE)
BATTERY_NAME = re.compile(r"bat|bbu|cmos", re.IGNORECASE)
# Entity IDs: IPMI specification, table 43-13.
_SUPPLY, _FAN, _BATTERY, _INLETS = 10, 29, 40, (55, 64)
_REDUNDANCY = {
    "fully redundant": "full",
    "redundancy lost": "lost",
    "redundancy degraded": "degraded",
    "non-redundant: sufficient from redundant": "lost",
    "non-redundant: sufficient from insufficient": "lost",
    "non-redundant: insufficient resources": "lost",
    "redundancy degraded from fully redundant": "degraded",
    "redundancy degraded from non-redundant": "degraded",
}
# The state that names the action comes first: a supply without input often reports failure, too.
_SUPPLY_WORDS = (
    ("power supply ac lost", "input_lost"),
    ("ac lost or out-of-range", "input_lost"),
    ("ac out-of-range, but present", "input_lost"),
    ("ac out-of-range", "input_lost"),
    ("failure detected", "failed"),
    ("config error", "configuration_error"),
    ("predictive failure", "predictive_failure"),
    ("power supply inactive", "inactive"),
)
_PRESENT = ("presence detected", "device present", "device inserted/device present")
_GONE = ("device absent", "device removed/device absent")
_CRITICAL, _WARNING = ("cr", "nr"), ("nc",)


class Sensor(msgspec.Struct, frozen=True, kw_only=True):
    """One sensor. `value` is None for a discrete sensor; `states` are its asserted states in lower
    case; `status` is `ok`, `nc`, `cr` or `nr`.
    """

    name: str
    number: int
    entity: int
    status: str
    value: Optional[float]
    unit: str
    states: tuple[str, ...]


def parse_sensors(text: str) -> list[Sensor]:
    """The sensors that have a reading, with unique names."""
    sensors: list[Sensor] = []
    for line in text.splitlines():
        sensor = _sensor(line)
        if sensor is not None and len(sensors) < MAX_PARTS:
            sensors.append(sensor)
    names = [sensor.name for sensor in sensors]
    unique: dict[str, Sensor] = {}
    for sensor in sensors:
        if names.count(sensor.name) > 1:
            sensor = msgspec.structs.replace(sensor, name=f"{sensor.name} {sensor.number:02X}h")
        unique.setdefault(sensor.name, sensor)
    return list(unique.values())


def _sensor(line: str) -> Optional[Sensor]:
    # Only a name may contain `|`; the other columns do not.
    parts = [part.strip() for part in line[:512].rsplit("|", 4)]
    if len(parts) != 5:
        return None
    name, shown, status, place, reading = parts
    number, entity = _NUMBER.fullmatch(shown), _ENTITY.fullmatch(place)
    if number is None or entity is None or not name:
        return None
    status = status[1:] if len(status) == 3 and status[0] in "lu" else status
    if status not in ("ok", *_CRITICAL, *_WARNING):
        return None  # ns: not scanned, or no reading
    if reading.lower() in ("disabled", "no reading", "not readable", "na"):
        return None
    first, _, rest = reading.partition(",")
    match = _VALUE.fullmatch(first.strip())
    value = float(match[1]) if match is not None else None
    words = rest if match is not None else reading
    return Sensor(
        name=shown_name(name) or shown,
        number=int(number[1], 16),
        entity=int(entity[1]),
        status=status,
        value=value if value is not None and math.isfinite(value) else None,
        unit=match[2].strip().lower() if match is not None else "",
        states=tuple(word.strip().lower() for word in words.split(", ") if word.strip()),
    )


def supply_state(sensor: Sensor) -> Optional[str]:
    """The state of a power supply; None for another sensor, or if it reports no state."""
    if sensor.entity != _SUPPLY and not _SUPPLY_NAME.search(sensor.name):
        return None
    # A power reading or a fan shows no state, unless it also asserts its presence.
    other = sensor.unit or _FAN_NAME.search(sensor.name) or redundancy(sensor) is not None
    if other and not any(state in _PRESENT for state in sensor.states):
        return None
    for words, state in _SUPPLY_WORDS:
        if any(state.startswith(words) for state in sensor.states):
            return state
    if any(state in _PRESENT for state in sensor.states):
        return "ok"
    # Nothing asserted, not even its presence: an empty slot.
    return "absent" if not sensor.states or sensor.states[0] in _GONE else None


def redundancy(sensor: Sensor) -> Optional[tuple[str, str]]:
    """The redundant component and its redundancy; None if the sensor reports none."""
    for state in sensor.states:
        if state in _REDUNDANCY:
            fan = sensor.entity == _FAN or _FAN_NAME.search(sensor.name)
            power = sensor.entity == _SUPPLY or _POWER_NAME.search(sensor.name)
            return "fan" if fan else "power" if power else "other", _REDUNDANCY[state]
    return None


def is_fan(sensor: Sensor) -> bool:
    """Whether this is a fan with a speed, a duty cycle or a state of its presence."""
    if redundancy(sensor) is not None:
        return False
    return sensor.unit == "rpm" or (
        (sensor.entity == _FAN or _FAN_NAME.search(sensor.name) is not None)
        and sensor.unit in ("", "percent", "unspecified")
    )


def fan_state(sensor: Sensor) -> Optional[str]:
    """The state of a fan; None if unknown: 0 rpm without a limit may mean that there is no fan."""
    if any(state in _GONE for state in sensor.states):
        return "absent"
    if sensor.status in _CRITICAL or any(
        state in ("failure detected", "transition to critical from less severe")
        or state.startswith("transition to non-recoverable")
        for state in sensor.states
    ):
        return "failed"
    if sensor.status in _WARNING or "predictive failure asserted" in sensor.states:
        return "warning"
    spins = sensor.value is not None and sensor.value > 0
    healthy = any(state in (*_PRESENT, "transition to ok") for state in sensor.states)
    return "ok" if spins or healthy else None


def temperature_state(sensor: Sensor) -> str:
    """The state of a temperature by the limits of the BMC."""
    if sensor.status in _CRITICAL:
        return "critical"
    return "warning" if sensor.status in _WARNING else "ok"


def battery_state(sensor: Sensor) -> Optional[str]:
    """The state of a battery; None for another sensor, or if it reports no state."""
    if sensor.entity != _BATTERY and not BATTERY_NAME.search(sensor.name):
        return None
    if "failed" in sensor.states:
        return "failed"
    if "low" in sensor.states:
        return "low"
    if sensor.unit == "volts":
        if sensor.status in _CRITICAL:
            return "failed"
        return "low" if sensor.status in _WARNING else "ok"
    return "ok" if any(state in _PRESENT for state in sensor.states) else None


def parts(sensors: Iterable[Sensor]) -> list[Part]:
    """The parts of the chassis, by their sensors."""
    all_parts = (_part(sensor) for sensor in sensors)
    return [part for part in all_parts if part is not None]


def _part(sensor: Sensor) -> Optional[Part]:
    name, redundant, supply = sensor.name, redundancy(sensor), supply_state(sensor)
    battery = battery_state(sensor)
    if redundant is not None:
        return Part(kind="redundancy", name=name, of=redundant[0], state=redundant[1])
    if supply is not None:
        return Part(kind="power supply", name=name, state=supply)
    if sensor.unit == "degrees c":
        inlet = is_inlet(name, sensor.entity in _INLETS)
        state = temperature_state(sensor)
        return Part(kind="temperature", name=name, state=state, value=sensor.value, inlet=inlet)
    if is_fan(sensor):
        value, unit = _speed(sensor)
        return Part(kind="fan", name=name, state=fan_state(sensor), value=value, unit=unit)
    if battery is not None:
        return Part(kind="battery", name=name, state=battery)
    return None


def _speed(sensor: Sensor) -> tuple[Optional[float], str]:
    value = sensor.value
    if value is not None and sensor.unit == "rpm" and value >= 0:
        return value, "rpm"
    if value is not None and sensor.unit == "percent" and 0 <= value <= 100:
        return value / 100, "ratio"
    return None, ""
