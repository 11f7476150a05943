"""The output of `lldpctl -f json0`, and of `-f json`: the neighbours of each interface. Pure.

json0 has a list wherever there may be several values; json has a list only where there are, and
the names of interfaces and systems as keys. https://lldpd.github.io/usage.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from nodevitals.probes.switches.ports import Neighbour, Port, is_name, parse_port

# Of the types of a port's identifier, those that are its name; others are numbers or addresses.
_NAMES = ("ifname", "ifalias")
_FORWARDS = ("Bridge", "Router")


def parse_neighbours(text: str) -> dict[Port, list[Neighbour]]:
    """The switches seen at each interface, those that LLDP reports before those of other protocols.

    Raises ValueError where the text has no such document.
    """
    # Warnings are printed before it or behind it.
    start, end = text.find("{"), text.rfind("}") + 1
    try:
        document = msgspec.json.decode(text[max(start, 0) : end])
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("no JSON document") from None
    if not isinstance(document, dict) or "lldp" not in document:
        raise ValueError("no document of lldpctl")
    seen: dict[Port, list[tuple[bool, Neighbour]]] = {}
    for top in _items(document["lldp"]):
        for name, interface in _named(top.get("interface"), "via"):
            port, neighbour = parse_port(name), _neighbour(interface)
            if port is not None and not port.number and neighbour is not None:
                other = interface.get("via") != "LLDP"
                seen.setdefault(port, []).append((other, neighbour))
    return {
        port: [one for _, one in sorted(found, key=lambda one: one[0])]
        for port, found in seen.items()
    }


def _neighbour(interface: dict[str, Any]) -> Neighbour | None:
    """The switch at an interface; None where the neighbour is none, such as the processor of a
    network adapter, or has no name.
    """
    for name, chassis in _named(interface.get("chassis"), "id"):
        capabilities = [*_items(chassis.get("capability"))]
        if capabilities and not any(
            one.get("type") in _FORWARDS and one.get("enabled") in (True, "on")
            for one in capabilities
        ):
            continue
        switch = name or _text(chassis.get("name")) or _text(chassis.get("id"))
        if is_name(switch):
            port = _port_name(next(_items(interface.get("port")), {}))
            return Neighbour(switch, port if is_name(port) else "")
    return None


def _port_name(port: dict[str, Any]) -> str:
    """The name of the switch's port: the identifier, or the description where that is a number or
    an address.
    """
    identifier = next(_items(port.get("id")), {})
    value, description = _text(identifier), _text(port.get("descr"))
    named = identifier.get("type") in _NAMES or (
        identifier.get("type") == "local" and not value.isdecimal()
    )
    return value if named else description or value


def _items(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list, or the one object that stands for a list of one."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _named(value: Any, inner: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects with their names: `{"name": …, inner: …}` in json0, `{NAME: {inner: …}}` in json."""
    for item in _items(value):
        if inner in item and not (isinstance(item[inner], dict) and inner in item[inner]):
            yield _text(item.get("name")), item
        else:
            yield from ((name, one) for name, one in item.items() if isinstance(one, dict))


def _text(value: Any) -> str:
    """The text in `"…"`, `{"value": "…"}` or `[{"value": "…"}]`; '' in anything else."""
    if isinstance(value, list):
        value = value[0] if value else ""
    if isinstance(value, dict):
        value = value.get("value")
    return value.strip() if isinstance(value, str) else ""
