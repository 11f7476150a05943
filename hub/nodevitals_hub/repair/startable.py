"""Finds repairs that can never start, before the hub does: no node is out of service for their
faults.

In: settings; what each shipped fault takes from a node (startable.json, from rules/faults/). Out:
problems, and warnings where a site's own severities decide. Faults of a site's own are not known
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from nodevitals.document import Problem
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.settings.response import OutOfServiceSettings, RecoverableFault

PLACE = "out_of_service.repairs"


Services = dict[str, tuple[str, ...]]
"""Services by action."""


class Shipped(msgspec.Struct, frozen=True):
    """A fault of the shipped rules. `possible` are its services with any severity."""

    scopes: tuple[str, ...]
    severities: tuple[str, ...]
    services: Services
    possible: Services

    @property
    def labels(self) -> str:
        """What decides, in words."""
        of = {"scope": self.scopes, "severity": self.severities, "action": self.services}
        return ", ".join(f"{name} {' or '.join(values)}" for name, values in of.items())


_SHIPPED = msgspec.json.decode(
    Path(__file__).with_suffix(".json").read_bytes(), type=dict[str, Shipped]
)


def problems(settings: OutOfServiceSettings) -> Iterator[Problem]:
    """Repairs, or faults of repairs, for which no node is ever out of service."""
    for number, repair in enumerate(settings.repairs):
        place = f"{PLACE}[{number}]"
        for index, fault in enumerate(repair.faults):
            text = _never(fault, repair, settings)
            if text:
                yield Problem(f"{place}.faults[{index}]", text)
        if not repair.faults and not any(
            _takes_out(fault, shipped.possible, repair, settings)
            for fault, shipped in _SHIPPED.items()
        ):
            services = ", ".join(settings.services)
            text = f"no fault with the action {repair.action} has the service {services}"
            yield Problem(f"{place}.action", f"{text}: {_more_services(settings)}")


def warnings(settings: OutOfServiceSettings) -> Iterator[Problem]:
    """Faults that take a node out of service only with another severity than the shipped one."""
    for number, repair in enumerate(settings.repairs):
        for index, fault in enumerate(repair.faults):
            shipped = _SHIPPED.get(fault)
            if shipped is None or _never(fault, repair, settings):
                continue
            if not _takes_out(fault, shipped.services, repair, settings):
                text = f"{fault} starts it only where your rules have another severity"
                place = f"{PLACE}[{number}].faults[{index}]"
                yield Problem(place, f"{text} (shipped: {shipped.labels}){_recover(fault)}")


def _never(fault: str, repair: RepairSettings, settings: OutOfServiceSettings) -> str:
    """Why a repair never starts for a fault, and what to write; '' where it may."""
    shipped = _SHIPPED.get(fault)
    if shipped is None:
        return ""
    if repair.action is not None and repair.action not in shipped.services:
        return f"{fault} never has the action {repair.action}: remove one of both"
    if _takes_out(fault, shipped.possible, repair, settings):
        return ""
    text = f"{fault} takes no node out of service ({shipped.labels})"
    may = {service for services in shipped.possible.values() for service in services}
    if may - {"keep"} and not _recover(fault):
        return f"{text}: {_more_services(settings)}"
    return f"{text}{_recover(fault) or ': remove it'}"


def _takes_out(
    fault: str, services: Services, repair: RepairSettings, settings: OutOfServiceSettings
) -> bool:
    """Whether a fault with the action of a repair takes a node out of service."""
    return any(
        fault in settings.recoverable or bool(set(found) & set(settings.services))
        for action, found in services.items()
        if repair.action in (None, action)
    )


def _recover(fault: str) -> str:
    is_recoverable = fault in get_args(RecoverableFault)
    return ": add it to out_of_service.recovery.faults" if is_recoverable else ""


def _more_services(settings: OutOfServiceSettings) -> str:
    missing = {"drain_now", "drain_when_idle"} - set(settings.services)
    named = " and ".join(sorted(missing))
    return f"add {named} to out_of_service.services, or remove it" if missing else "remove it"
