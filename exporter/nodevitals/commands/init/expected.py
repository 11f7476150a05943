"""Decides what the configuration expects of a node. In: its hardware. Out: YAML lines and remarks.

No I/O. Unknown values stay unset. Hardware that seems incomplete is reported, and its number or
rate is not expected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Optional

import msgspec

from nodevitals.commands.init.node import Node
from nodevitals.probes import network
from nodevitals.probes.ascend import families as ascend
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.links import SLOW_SHARE
from nodevitals.probes.disks import families as disks
from nodevitals.probes.nvidia import families as nvidia
from nodevitals.probes.rdma import reader as rdma

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# YAML 1.1 reads these as booleans and null.
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def spelled(rate: float) -> str:
    """Bytes per second as the configuration spells them: 400Gb/s."""
    return f"{rate * 8 / 1e9:g}Gb/s"


def key(name: str) -> str:
    """A name as a key of YAML."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else quoted(name)


def quoted(text: str) -> str:
    """A text as a YAML value."""
    return msgspec.json.encode(text).decode()


MAX_MOUNTS = 100


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a key in a probe's section, a summary, and warnings: one line each.

    Without lines the key stays commented out, with `remark` above it.
    """

    probe: str
    key: str
    title: str
    summary: str
    lines: tuple[str, ...] = ()
    remark: str = ""
    warnings: tuple[str, ...] = ()


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A port or an interface; those of one model have an equal `kind`. None is unknown."""

    name: str
    up: Optional[bool]
    rate: Optional[float]
    kind: str = ""
    broken: str = ""
    """Why its rate is not the one to expect."""


def expected_of(node: Node) -> list[Expected]:
    """What to expect of this node, by probe."""
    return [
        *(_gpus(node), _npus(node), _ports(node), _interfaces(node)),
        *(_disks(node), _mounts(node)),
    ]


def _gpus(node: Node) -> Expected:
    listed = node.values("nvidia", nvidia.DEVICES.name).get(("nvml",), 0)
    present = node.values("nvidia", accelerators.PRESENT.name).get(("nvidia",))
    number = max(node.gpus_on_bus, int(listed), int(present or 0))
    expected = _count("nvidia", "NVIDIA GPUs", number or None, node)
    if number and present != number:
        answer = "none" if not present else f"{present:.0f}"
        return _warned(
            msgspec.structs.replace(expected, summary=f"{number}, of which {answer} can be read"),
            f"{number} GPUs on the PCI bus, {answer} can be read{_why(node, 'nvidia')}; expected: "
            f"{number} is written, and the agent reports the others",
        )
    return expected


def _npus(node: Node) -> Expected:
    counts = {
        labels[0]: int(count)
        for labels, count in node.values("ascend", ascend.DEVICES.name).items()
    }
    devices, chips = counts.get("pci", 0), counts.get("npu_smi", 0)
    present = int(node.values("ascend", accelerators.PRESENT.name).get(("ascend",), 0))
    # A device has one chip or two; all devices of a node are of one kind.
    whole = chips > 0 and (devices == 0 or chips % devices == 0)
    expected = _count("ascend", "Ascend NPUs", chips if whole else None, node)
    if chips and whole and present == chips:
        return expected
    if not chips and not devices:
        return expected
    text = f"{devices} NPUs on the PCI bus, {chips} chips listed by npu-smi, {present} answer"
    rest = "" if whole else "; how many chips they have is unknown: set probes.ascend.expected"
    expected = msgspec.structs.replace(expected, summary=text)
    return _warned(expected, f"{text}{_why(node, 'ascend')}{rest}")


def _count(probe: str, title: str, number: int | None, node: Node) -> Expected:
    """The number of accelerators to expect."""
    if not number:
        result = node.results.get(probe)
        unknown = result is None or result.outcome not in ("ok", "absent")
        why = "could not be read" if unknown else "none found"
        warned = (f"{title}: not known whether there are any{_why(node, probe)}",) * unknown
        return Expected(
            probe=probe,
            key="expected",
            title=title,
            summary="unknown" if unknown else "none",
            remark=f"{why} {_where(node)}",
            warnings=warned,
        )
    odd = number > 1 and number % 2 == 1
    text = (
        f"{number} is an odd number of {title}: if one is missing, correct probes.{probe}.expected"
    )
    return Expected(
        probe=probe,
        key="expected",
        title=title,
        summary=str(number),
        lines=(f"expected: {number} # found {_where(node)}",),
        warnings=(text,) * odd,
    )


def _disks(node: Node) -> Expected:
    """The number of local disks: after a reboot, nothing else shows that one is missing."""
    result = node.results.get("disks")
    failed = result is None or result.outcome not in ("ok", "absent")
    number = int(node.values("disks", disks.PRESENT.name).get((), 0))
    if number:
        lines = (f"expected: {number} # found {_where(node)}",)
        return Expected(
            probe="disks", key="expected", title="disks", summary=str(number), lines=lines
        )
    return Expected(
        probe="disks",
        key="expected",
        title="disks",
        summary="unknown" if failed else "none",
        remark=f"{'could not be read' if failed else 'no local disk found'} {_where(node)}",
    )


def _ports(node: Node) -> Expected:
    kinds = {
        labels[0]: labels[4] or labels[3] for labels in node.values("rdma", rdma.DEVICE_INFO.name)
    }
    rates = node.values("rdma", rdma.RATE.name)
    links = []
    for labels, up in node.values("rdma", rdma.UP.name).items():
        device, port, _ = labels
        name = f"{device}/{port}"
        links.append(
            Link(name=name, up=bool(up), rate=rates.get(labels), kind=kinds.get(device, ""))
        )
    judged = without_slow(links)
    warnings = [f"RDMA port {link.name} is {link.broken}" for link in judged if link.broken]
    return _links("rdma", "RDMA ports", judged, node, warnings)


def _interfaces(node: Node) -> Expected:
    speeds = node.values("network", network.SPEED.name)
    members = node.values("network", network.BOND_MEMBER_UP.name)
    out = {bond: member for (bond, member), up in members.items() if not up}
    links, warnings = [], []
    for labels, up in node.values("network", network.UP.name).items():
        name = labels[0]
        broken = f"without its member {out[name]}" if name in out else "" if up else "down"
        if name in out:
            warnings.append(f"bond {name} is {broken}")
        links.append(Link(name=name, up=bool(up), rate=speeds.get(labels), broken=broken))
    return _links("network", "interfaces", links, node, warnings)


def without_slow(links: Iterable[Link]) -> list[Link]:
    """The links, marked where they are down, or slower than another of the same kind."""
    links = list(links)
    best: dict[str, float] = {}
    for link in links:
        best[link.kind] = max(best.get(link.kind, 0.0), link.rate or 0.0)
    judged = []
    for link in links:
        broken = ""
        if link.up is False:
            broken = "down"
        elif link.rate is not None and link.rate < best[link.kind] * SLOW_SHARE:
            broken = f"at {spelled(link.rate)}, others of its kind at {spelled(best[link.kind])}"
        judged.append(msgspec.structs.replace(link, broken=broken))
    return judged


def _links(
    probe: str, title: str, links: list[Link], node: Node, warnings: Iterable[str]
) -> Expected:
    """The rates to expect; those of links that are down or slow are comments."""
    result = node.results.get(probe)
    failed = result is None or result.outcome not in ("ok", "absent")
    if failed:
        warnings = [*warnings, f"{title}: not all could be read{_why(node, probe)}"]
    lines = []
    for link in sorted(links, key=lambda link: _natural(link.name)):
        if link.rate is not None and not link.broken:
            lines.append(f"  {key(link.name)}: {spelled(link.rate)}")
        else:
            lines.append(f"  #{key(link.name)}: {link.broken or 'of unknown rate'}")
    known = any(not line.startswith("  #") for line in lines)
    head = f"expected: # found {_where(node)}" if known else ""
    return Expected(
        probe=probe,
        key="expected",
        title=title,
        summary=_summary(links, failed),
        lines=(head, *lines) if known else (),
        remark="" if known else f"none that is up with a known rate {_where(node)}",
        warnings=_with_remedy(warnings, probe),
    )


def _with_remedy(warnings: Iterable[str], probe: str) -> tuple[str, ...]:
    remedy = f"repair it and set its rate in probes.{probe}.expected, or leave it out"
    return tuple(f"{text}: {remedy}" for text in warnings)


def _summary(links: list[Link], failed: bool) -> str:
    numbers: Counter[str] = Counter()
    for link in sorted(links, key=lambda link: -(link.rate or 0.0)):
        known = link.up is not False and link.rate is not None
        rate = f"at {spelled(link.rate or 0.0)}" if known else "of unknown rate"
        numbers["down" if link.up is False else rate] += 1
    return ", ".join(f"{count} {what}" for what, count in numbers.items()) or (
        "unknown" if failed else "none"
    )


def _mounts(node: Node) -> Expected:
    mounts = node.mounts[:MAX_MOUNTS]
    lines = [
        f"  - {{path: {quoted(mount.mountpoint)}, fstype: {key(mount.fstype)}"
        + (f", source: {quoted(mount.source)}}}" if mount.source.isprintable() else "}")
        for mount in mounts
    ]
    left = len(node.mounts) - len(mounts)
    text = f"{left} more network file systems are mounted: add those to watch to probes.mounts"
    return Expected(
        probe="mounts",
        key="targets",
        title="mounts",
        summary=", ".join(f"{mount.mountpoint} ({mount.fstype})" for mount in mounts) or "none",
        lines=(f"targets: # found {_where(node)}", *lines) if lines else (),
        remark="" if lines else f"no network or parallel file system found {_where(node)}",
        warnings=(text,) * (left > 0),
    )


def _warned(expected: Expected, text: str) -> Expected:
    return msgspec.structs.replace(expected, warnings=(text, *expected.warnings))


def _why(node: Node, probe: str) -> str:
    """The failure of a probe, in parentheses; '' where it has none."""
    result = node.results.get(probe)
    failed = result is not None and result.outcome != "ok"
    return f" ({result.outcome}: {result.text})" if failed and result is not None else ""


def _where(node: Node) -> str:
    return f"on {node.name}, {node.date}"


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts mlx5_2 before mlx5_10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
