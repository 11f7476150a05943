"""Facts of the devices and the system. In: sysfs. Out: texts by fact and device.

The kernel itself provides the files that are read here, without a driver; only the configuration
space of bridges is read from the bus.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Optional

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import link_name, list_names, read_integer, read_label, read_text
from nodevitals.probes.common.facts import Values

Facts = dict[str, Values]

_NVME = re.compile(r"nvme[0-9]+")
_BRIDGE = "0x0604"
# PCI Express Base Specification: extended capabilities begin at 256; ACS is number 13, and its
# control register has the bit P2P Request Redirect.
_FIRST_EXTENDED = 256
_ACS = 13
_ACS_CONTROL = 6
_REQUEST_REDIRECT = 0x4
_CONFIG_BYTES = 4096


def read_system(host: Host) -> Facts:
    """The firmware's facts of the system, without serial numbers, which differ on each node."""
    files = {
        "system.vendor": "sys_vendor",
        "system.product": "product_name",
        "bios.version": "bios_version",
    }
    texts = {fact: read_label(host.sys(f"class/dmi/id/{file}")) for fact, file in files.items()}
    facts: Facts = {fact: {"": text} for fact, text in texts.items() if text}
    if os.path.isdir(host.sys("class")):
        used = bool(list_names(host.sys("class/iommu")))
        facts["iommu"] = {"": "on" if used else "off"}
    return facts


def read_rdma(host: Host) -> Facts:
    """RDMA devices, without virtual functions."""
    root = host.sys("class/infiniband")
    facts: Facts = {}
    physical = {name: link_name(root / name / "device/physfn") for name in list_names(root)}
    devices = [name for name, link in physical.items() if link == ""]
    if not devices or None in physical.values():
        return facts
    facts["rdma.devices"] = {"": str(len(devices))}
    _by_device(facts, "rdma.firmware", {name: root / name / "fw_ver" for name in devices})
    _by_device(facts, "rdma.board", {name: root / name / "board_id" for name in devices})
    _pcie(facts, "nic", {name: root / name / "device" for name in devices})
    return facts


def read_nvme(host: Host) -> Facts:
    """NVMe controllers."""
    root = host.sys("class/nvme")
    facts: Facts = {}
    names = filter(_NVME.fullmatch, list_names(root))
    devices = [name for name in names if read_label(root / name / "transport") in (None, "pcie")]
    if not devices:
        return facts
    facts["nvme.count"] = {"": str(len(devices))}
    _by_device(facts, "nvme.model", {name: root / name / "model" for name in devices})
    _by_device(facts, "nvme.firmware", {name: root / name / "firmware_rev" for name in devices})
    _pcie(facts, "nvme", {name: root / name / "device" for name in devices})
    return facts


def _pcie(facts: Facts, kind: str, folders: dict[str, Path]) -> None:
    """Links and NUMA nodes; missing for a device that is not on a PCI bus."""
    widths = {name: read_integer(path / "current_link_width") for name, path in folders.items()}
    known = {name: str(width) for name, width in widths.items() if width}
    if known:
        facts[f"pcie.{kind}.width"] = known
    speeds = {name: path / "current_link_speed" for name, path in folders.items()}
    _by_device(facts, f"pcie.{kind}.speed", speeds)
    _by_device(facts, f"pcie.{kind}.numa_node", {n: p / "numa_node" for n, p in folders.items()})
    for name in (f"pcie.{kind}.speed", f"pcie.{kind}.numa_node"):
        known = {k: v for k, v in facts.get(name, {}).items() if v not in ("Unknown", "-1")}
        facts.pop(name, None)
        if known:
            facts[name] = known


def read_accelerator_nodes(host: Host) -> Facts:
    """The NUMA node of each GPU (NVIDIA) and NPU (Huawei), by PCI address."""
    root = host.sys("bus/pci/devices")
    numa_nodes: Values = {}
    for name in filter(BUS_ID.fullmatch, list_names(root)):
        place = (read_text(root / name / "vendor"), (read_text(root / name / "class") or "")[:6])
        if place in (("0x10de", "0x0302"), ("0x10de", "0x0300"), ("0x19e5", "0x1200")):
            node = read_label(root / name / "numa_node")
            if node not in (None, "-1") and link_name(root / name / "physfn") == "":
                numa_nodes[name] = str(node)
    return {"pcie.accelerator.numa_node": numa_nodes} if numa_nodes else {}


def read_acs(host: Host) -> Facts:
    """Whether a bridge redirects requests between peers, which makes GPUDirect slow; missing if a
    bridge's configuration cannot be read completely (users other than root).
    """
    root = host.sys("bus/pci/devices")
    redirects: list[bool] = []
    for name in filter(BUS_ID.fullmatch, list_names(root)):
        if not (read_text(root / name / "class") or "").startswith(_BRIDGE):
            continue
        redirect = acs_redirects(_config(root / name / "config"))
        if redirect is None:
            return {}
        redirects.append(redirect)
    return {"pcie.acs": {"": "on" if any(redirects) else "off"}} if redirects else {}


def acs_redirects(config: bytes) -> Optional[bool]:
    """Whether ACS request redirect is on in a configuration space; None if the space is truncated:
    users other than root read 64 bytes. A bridge of conventional PCI has 256 bytes and no ACS.
    """
    if len(config) < _FIRST_EXTENDED:
        return None
    place, seen = _FIRST_EXTENDED, set()
    while _FIRST_EXTENDED <= place <= len(config) - 8 and place not in seen:
        seen.add(place)
        (header,) = struct.unpack_from("<I", config, place)
        if header in (0, 0xFFFFFFFF):
            return False
        if header & 0xFFFF == _ACS:
            (control,) = struct.unpack_from("<H", config, place + _ACS_CONTROL)
            return bool(control & _REQUEST_REDIRECT)
        place = header >> 20
    return False


def _config(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_CONFIG_BYTES)
    except OSError:
        return b""


def _by_device(facts: Facts, fact: str, files: dict[str, Path]) -> None:
    texts = {name: read_label(path) for name, path in files.items()}
    known = {name: text for name, text in texts.items() if text}
    if known:
        facts[fact] = known
