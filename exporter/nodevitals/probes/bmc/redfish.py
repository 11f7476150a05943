"""Reads the BMC through its Redfish service (DMTF DSP0268): a `Source`.

In: the client. Out: what the probe exposes. All paths are links that begin at the service's root; a
resource that a service lacks is unknown. Where a chassis has the resources of both kinds, the old
ones (Power, Thermal) are read: they have all parts in two answers. Health is the assessment of the
BMC; a part without one, and a part that is off, is missing: neither good nor failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from nodevitals.probes.bmc.parts import (
    BmcState,
    LogEvent,
    LogInfo,
    Part,
    PartError,
    is_inlet,
    shown_name,
)
from nodevitals.probes.bmc.redfish_client import (
    ROOT,
    Client,
    Json,
    inner,
    link,
    links,
    number,
    objects,
    path,
    text,
)
from nodevitals.probes.bmc.redfish_log import EventLog
from nodevitals.probes.bmc.sensors import BATTERY_NAME
from nodevitals.probes.bmc.settings import RedfishSettings

# Values of Status.State. With others, such as Enabled, Updating or InTest, the part is in use.
_STANDBY = ("StandbySpare", "StandbyOffline", "Disabled", "UnavailableOffline", "Deferring")
_OFF = ("Disabled", "UnavailableOffline", "StandbyOffline", "Absent")
_NO_INPUT_VOLTS = 10.0
# A limit of 0 degrees is no limit.
_LIMITS = (
    ("critical", ("UpperThresholdFatal", "UpperThresholdCritical")),
    ("warning", ("UpperThresholdNonCritical",)),
)
_READING_LIMITS = (("critical", ("UpperFatal", "UpperCritical")), ("warning", ("UpperCaution",)))


def power_supply(document: Json) -> Part:
    """An element of Power.PowerSupplies, or a resource PowerSupply."""
    return Part(
        kind="power supply",
        name=_name(document),
        number=_number(document),
        state=_supply_state(document),
    )


def _supply_state(document: Json) -> Optional[str]:
    state, health = _status(document)
    if state == "Absent":
        return "absent"
    # The state that names the action comes first: a supply without input is often Critical, too.
    if text(document, "LineInputStatus") in ("LossOfInput", "OutOfRange"):
        return "input_lost"
    if health in ("Critical", "Warning"):
        volts = number(document, "LineInputVoltage")
        if volts is not None and 0 <= volts < _NO_INPUT_VOLTS:
            return "input_lost"
        return "failed" if health == "Critical" else "predictive_failure"
    if state in _STANDBY:
        return "inactive"
    return "ok" if health == "OK" else None


def fan(document: Json) -> Part:
    """An element of Thermal.Fans, or a resource Fan."""
    state = _status(document)[0]
    value, unit = _speed(document)
    return Part(
        kind="fan",
        name=_name(document) or shown_name(text(document, "FanName")),
        number=_number(document),
        state="absent" if state == "Absent" else _by_health(document, ("ok", "warning", "failed")),
        value=None if state in _OFF else value,
        unit=unit,
    )


def _speed(document: Json) -> tuple[Optional[float], str]:
    speed = inner(document, "SpeedPercent")
    rpm, percent = number(speed, "SpeedRPM"), number(speed, "Reading")
    if not speed:
        reading, unit = number(document, "Reading"), text(document, "ReadingUnits")
        rpm, percent = reading if unit == "RPM" else None, reading if unit == "Percent" else None
    if rpm is not None and rpm >= 0:
        return rpm, "rpm"
    if percent is not None and 0 <= percent <= 100:
        return percent / 100, "ratio"
    return None, ""


def temperature(document: Json) -> Part:
    """An element of Thermal.Temperatures, or a resource Sensor of that type."""
    is_new = "Reading" in document
    value = number(document, "Reading" if is_new else "ReadingCelsius")
    state = _by_health(document, ("ok", "warning", "critical"))
    if state is None and value is not None and not _status(document)[1]:
        state = _reading_limits(document, value) if is_new else _by_limits(document, value)
    name = _name(document)
    is_off = _status(document)[0] in _OFF
    return Part(
        kind="temperature",
        name=name,
        number=_number(document),
        # The health of a sensor without a reading means nothing.
        state=None if value is None or is_off else state,
        value=None if is_off else value,
        inlet=is_inlet(name, text(document, "PhysicalContext") == "Intake"),
    )


def reading(document: Json) -> Part:
    """An element of ThermalMetrics.TemperatureReadingsCelsius, which has no state."""
    name = _name(document) or shown_name(text(document, "DeviceName"))
    inlet = is_inlet(name, text(document, "PhysicalContext") == "Intake")
    value = number(document, "Reading")
    return Part(kind="temperature", name=name, state=None, value=value, inlet=inlet)


def _by_limits(document: Json, value: float) -> Optional[str]:
    limits = [(state, [number(document, name) for name in names]) for state, names in _LIMITS]
    return _over(limits, value)


def _reading_limits(document: Json, value: float) -> Optional[str]:
    thresholds = inner(document, "Thresholds")
    limits = [
        (state, [number(inner(thresholds, name), "Reading") for name in names])
        for state, names in _READING_LIMITS
    ]
    return _over(limits, value)


def _over(limits: Iterable[tuple[str, list[Optional[float]]]], value: float) -> Optional[str]:
    known = [
        (state, limit)
        for state, values in limits
        for limit in values
        if limit is not None and limit > 0
    ]
    for state, limit in known:
        if value >= limit:
            return state
    return "ok" if known else None


def redundancy(document: Json, of: str) -> Part:
    """An element of Power.Redundancy, Thermal.Redundancy, or of a subsystem's redundancy."""
    modes = (text(document, "Mode"), text(document, "RedundancyType"))
    state = _by_health(document, ("full", "degraded", "lost"))
    if "NotRedundant" in modes or document.get("RedundancyEnabled") is False:
        state = None  # built or configured so
    name = _name(document) or shown_name(text(document, "GroupName"))
    return Part(
        kind="redundancy",
        name=name or f"{of} redundancy",
        number=_number(document),
        state=state,
        of=of,
    )


def battery(document: Json) -> Part:
    """An element of Power.Voltages; without a state if it does not measure a battery."""
    name = _name(document)
    is_one = BATTERY_NAME.search(name) is not None and number(document, "ReadingVolts") is not None
    state = _by_health(document, ("ok", "low", "failed")) if is_one else None
    return Part(kind="battery", name=name, number=_number(document), state=state)


def watts(document: Json) -> Optional[float]:
    """Watts of a resource Power: its first control is the chassis. 0 W is no reading."""
    readings = [
        number(control, "PowerConsumedWatts") for control in objects(document, "PowerControl")[:1]
    ]
    return next((value for value in readings if value is not None and value > 0), None)


def metric_watts(document: Json) -> Optional[float]:
    """Watts of a resource EnvironmentMetrics."""
    power = number(inner(document, "PowerWatts"), "Reading")
    return power if power is not None and power > 0 else None


def _status(document: Json) -> tuple[str, str]:
    status = inner(document, "Status")
    return text(status, "State"), text(status, "Health")


def _by_health(document: Json, words: tuple[str, str, str]) -> Optional[str]:
    state, health = _status(document)
    if state in _OFF and not (state == "UnavailableOffline" and health == "Critical"):
        return None
    return dict(zip(("OK", "Warning", "Critical"), words)).get(health)


def _name(document: Json) -> str:
    return shown_name(text(document, "Name"))


def _number(document: Json) -> str:
    return shown_name(text(document, "MemberId") or text(document, "Id"))


# Systems, managers or chassis of a node: a board of GPUs may be a second system.
_MAX_OWNERS = 8


class RedfishSource:
    """Follows the links of the service, for one run."""

    def __init__(self, settings: RedfishSettings, until: float) -> None:
        self._client = Client(settings, until)
        self._log = EventLog(self._client)
        self._root: Json = {}

    @property
    def failed(self) -> Optional[PartError]:
        """The failure of the first resource of this part that could not be read."""
        return self._client.failed

    @failed.setter
    def failed(self, error: Optional[PartError]) -> None:
        self._client.failed = error

    @property
    def log(self) -> Optional[str]:
        """The path of the log's entries."""
        return self._log.path or None

    def close(self) -> None:
        """Close the connection; there is no session."""
        self._client.close()

    def controller(self) -> tuple[str, str]:
        """Firmware of the first manager, and the vendor."""
        root = self._client.get(ROOT)
        if root is None or not any(link(root, key) for key in ("Chassis", "Systems", "Managers")):
            raise PartError("malformed", f"{ROOT}: no Redfish service")
        self._root = root
        query = inner(root, "ProtocolFeaturesSupported", "ExpandQuery")
        self._client.expands = query.get("NoLinks") is True
        managers = self._owners("Managers")
        versions = [text(manager, "FirmwareVersion") for manager in managers]
        vendors = [text(root, "Vendor"), *(text(manager, "Manufacturer") for manager in managers)]
        return next(filter(None, versions), ""), next(filter(None, vendors), "")

    def log_info(self) -> LogInfo:
        """State of the first event log for hardware, of a system or a manager."""
        return self._log.find([*self._owners("Systems"), *self._owners("Managers")])

    def newest(self, state: BmcState, /) -> BmcState:
        """The state at the end of the log."""
        return self._log.newest(state)

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """The entries of the log after `state`."""
        return self._log.new_entries(state)

    def power(self) -> Optional[float]:
        """Power of the first chassis that measures it."""
        for chassis in self._chassis():
            power = watts(self._resource(chassis, "Power"))
            if power is None:
                power = metric_watts(self._resource(chassis, "EnvironmentMetrics"))
            if power is not None:
                return power
        return None

    def parts(self) -> list[Part]:
        """The parts of all chassis."""
        parts: list[Part] = []
        for chassis in self._chassis():
            parts += self._supplies(chassis)
            parts += self._cooling(chassis)
        if not parts and self.failed is None:
            raise PartError("malformed", "no chassis with power supplies, fans or temperatures")
        return parts

    def _owners(self, key: str) -> list[Json]:
        return self._client.members(self._root, key, _MAX_OWNERS)

    def _chassis(self) -> list[Json]:
        """The chassis of the systems; all chassis if no system names its own."""
        paths = dict.fromkeys(
            place
            for system in self._owners("Systems")
            for place in links(inner(system, "Links"), "Chassis")
        )
        if paths:
            return [self._client.find(place) for place in list(paths)[:_MAX_OWNERS]]
        return self._owners("Chassis")

    def _resource(self, document: Json, key: str) -> Json:
        return self._client.find(link(document, key))

    def _supplies(self, chassis: Json) -> list[Part]:
        power = self._resource(chassis, "Power")
        parts = [power_supply(supply) for supply in objects(power, "PowerSupplies")]
        parts += [redundancy(group, "power") for group in objects(power, "Redundancy")]
        parts += [battery(voltage) for voltage in objects(power, "Voltages")]
        if objects(power, "PowerSupplies"):
            return parts
        new = self._resource(chassis, "PowerSubsystem")
        members = self._client.members(new, "PowerSupplies")
        parts += [power_supply(member) for member in members]
        groups = objects(new, "PowerSupplyRedundancy")
        return parts + [redundancy(group, "power") for group in groups]

    def _cooling(self, chassis: Json) -> list[Part]:
        thermal = self._resource(chassis, "Thermal")
        fans, temperatures = objects(thermal, "Fans"), objects(thermal, "Temperatures")
        parts = [fan(member) for member in fans]
        parts += [temperature(member) for member in temperatures]
        parts += [redundancy(group, "fan") for group in objects(thermal, "Redundancy")]
        if fans or temperatures:
            return parts
        new = self._resource(chassis, "ThermalSubsystem")
        parts += [fan(member) for member in self._client.members(new, "Fans")]
        parts += [redundancy(group, "fan") for group in objects(new, "FanRedundancy")]
        return parts + self._temperatures(chassis, new)

    def _temperatures(self, chassis: Json, subsystem: Json) -> list[Part]:
        """The temperatures: one answer has all readings, each with a link to its sensor and
        state.
        """
        metrics = self._resource(subsystem, "ThermalMetrics")
        readings = objects(metrics, "TemperatureReadingsCelsius")
        if not readings:
            sensors = self._client.members(chassis, "Sensors")
            shown = [sensor for sensor in sensors if text(sensor, "ReadingType") == "Temperature"]
            return [temperature(sensor) for sensor in shown]
        parts: list[Part] = []
        for item in readings:
            sensor = self._client.find(path(item.get("DataSourceUri")))
            parts.append(temperature(sensor) if sensor else reading(item))
        return parts
