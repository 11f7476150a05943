"""The BMC as its Redfish service shows it: a `Source`.

In: the client. Out: what the probe exposes. All paths are links that begin at the service's root; a
resource that a service lacks is unknown. Where a chassis has the resources of both kinds, the old
ones (Power, Thermal) are read: they have all parts in two answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from nodevitals.probes.bmc import redfish_parts as parse
from nodevitals.probes.bmc.parts import LogEvent, LogInfo, Part, PartError
from nodevitals.probes.bmc.redfish_client import ROOT, Client
from nodevitals.probes.bmc.redfish_json import Json, inner, link, links, objects, path, text
from nodevitals.probes.bmc.redfish_log import EventLog
from nodevitals.probes.bmc.settings import RedfishSettings
from nodevitals.probes.bmc.state import BmcState

# Systems, managers or chassis of a node: a board of GPUs may be a second system.
_MAX_OWNERS = 8


class RedfishSource:
    """Reads what the links of one run lead to."""

    def __init__(self, settings: RedfishSettings, until: float) -> None:
        self._client = Client(settings, until)
        self._log = EventLog(self._client)
        self._root: Json = {}

    @property
    def failed(self) -> Optional[PartError]:
        """The first resource of this part that could not be read."""
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
        versions = [text(one, "FirmwareVersion") for one in managers]
        vendors = [text(root, "Vendor"), *(text(one, "Manufacturer") for one in managers)]
        return next(filter(None, versions), ""), next(filter(None, vendors), "")

    def log_info(self) -> LogInfo:
        """Of the first event log of the hardware, of a system or of a manager."""
        return self._log.find([*self._owners("Systems"), *self._owners("Managers")])

    def newest(self, state: BmcState, /) -> BmcState:
        """Where the log ends."""
        return self._log.newest(state)

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """What the log has since then."""
        return self._log.new_entries(state)

    def power(self) -> Optional[float]:
        """Of the first chassis that measures it."""
        for chassis in self._chassis():
            found = parse.watts(self._resource(chassis, "Power"))
            if found is None:
                found = parse.metric_watts(self._resource(chassis, "EnvironmentMetrics"))
            if found is not None:
                return found
        return None

    def parts(self) -> list[Part]:
        """Of all chassis."""
        found: list[Part] = []
        for chassis in self._chassis():
            found += self._supplies(chassis)
            found += self._cooling(chassis)
        if not found and self.failed is None:
            raise PartError("malformed", "no chassis with power supplies, fans or temperatures")
        return found

    def _owners(self, key: str) -> list[Json]:
        return self._client.members(self._root, key, _MAX_OWNERS)

    def _chassis(self) -> list[Json]:
        """Those that the systems are in; all, where no system says so."""
        found = dict.fromkeys(
            one
            for system in self._owners("Systems")
            for one in links(inner(system, "Links"), "Chassis")
        )
        if found:
            return [self._client.find(one) for one in list(found)[:_MAX_OWNERS]]
        return self._owners("Chassis")

    def _resource(self, document: Json, key: str) -> Json:
        return self._client.find(link(document, key))

    def _supplies(self, chassis: Json) -> list[Part]:
        power = self._resource(chassis, "Power")
        found = [parse.power_supply(one) for one in objects(power, "PowerSupplies")]
        found += [parse.redundancy(one, "power") for one in objects(power, "Redundancy")]
        found += [parse.battery(one) for one in objects(power, "Voltages")]
        if objects(power, "PowerSupplies"):
            return found
        new = self._resource(chassis, "PowerSubsystem")
        members = self._client.members(new, "PowerSupplies")
        found += [parse.power_supply(one) for one in members]
        groups = objects(new, "PowerSupplyRedundancy")
        return found + [parse.redundancy(one, "power") for one in groups]

    def _cooling(self, chassis: Json) -> list[Part]:
        thermal = self._resource(chassis, "Thermal")
        fans, temperatures = objects(thermal, "Fans"), objects(thermal, "Temperatures")
        found = [parse.fan(one) for one in fans]
        found += [parse.temperature(one) for one in temperatures]
        found += [parse.redundancy(one, "fan") for one in objects(thermal, "Redundancy")]
        if fans or temperatures:
            return found
        new = self._resource(chassis, "ThermalSubsystem")
        found += [parse.fan(one) for one in self._client.members(new, "Fans")]
        found += [parse.redundancy(one, "fan") for one in objects(new, "FanRedundancy")]
        return found + self._temperatures(chassis, new)

    def _temperatures(self, chassis: Json, subsystem: Json) -> list[Part]:
        """Readings in one answer, each with a link to its sensor, which has the state."""
        metrics = self._resource(subsystem, "ThermalMetrics")
        readings = objects(metrics, "TemperatureReadingsCelsius")
        if not readings:
            sensors = self._client.members(chassis, "Sensors")
            shown = [one for one in sensors if text(one, "ReadingType") == "Temperature"]
            return [parse.temperature(one) for one in shown]
        found: list[Part] = []
        for one in readings:
            sensor = self._client.find(path(one.get("DataSourceUri")))
            found.append(parse.temperature(sensor) if sensor else parse.reading(one))
        return found
