"""Block devices and NVMe controllers in sysfs: what each is, and the counts of its I/O.

In: /sys/block and /sys/class/nvme. Out: `Disk` and `IoCounts`. Nothing is sent to a disk.

The inventory combines the disks of a run with the known ones: which local disks the node has had
since the boot, and which of them are gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Optional

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import (
    exists,
    link_name,
    list_names,
    list_names_or_fail,
    parse_integer,
    read_bytes,
    read_integer,
    read_label,
    read_text,
)

SECTOR_BYTES = 512  # always in sysfs, whatever the disk uses
_CONTROLLER = re.compile(r"nvme\d+")
_NAMESPACE = re.compile(r"nvme\d+(?:c\d+)?n\d+")
_HIDDEN_PATH = re.compile(r"nvme\d+c\d+n\d+")
_SCSI = re.compile(r"sd[a-z]+")
# Optical and floppy drives; the others have no device behind them.
_NOT_DISKS = re.compile(r"(?:sr|scd|fd|loop|ram|zram|dm-|md|nbd|rbd|zd|drbd)\d+.*")
_NAME = re.compile(r"[A-Za-z0-9_.:!-]{1,64}")
# Parts of a device's path in sysfs, checked in this order: a SATA disk behind a SAS adapter is
# `sas`, and the path of a USB disk also has the number of a SCSI host.
_PLACES = (
    ("/usb", "usb"),
    ("/virtio", "virtio"),
    ("/session", "iscsi"),
    ("/rport-", "fc"),
    ("/end_device-", "sas"),
    ("/ata", "ata"),
)
LOCAL = ("pcie", "ata", "sas")
# Cloud volumes are NVMe on PCIe, and Kubernetes detaches them as needed.
_DETACHABLE = ("Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")


class KnownDisk(msgspec.Struct, frozen=True, array_like=True):
    """A disk by its name; '' if its serial number or its place is unknown."""

    name: str
    serial: str = ""
    place: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The disks of this boot: present ones, gone ones, and the highest number of disks at a time,
    without forgotten disks.
    """

    boot_id: str = ""
    present: tuple[KnownDisk, ...] = ()
    gone: tuple[KnownDisk, ...] = ()
    highest: int = 0

    def seen(self, disks: Iterable[Disk], forgotten: AbstractSet[str], boot_id: str) -> Inventory:
        """The inventory after a run that found these disks. While the boot is unknown (''), the
        same boot is assumed.
        """
        same = boot_id in ("", self.boot_id)
        before = (*self.present, *self.gone) if same else ()
        known = {(disk.name, disk.serial): disk for disk in before}
        now = [KnownDisk(disk.name, disk.serial, disk.place) for disk in disks]
        serials = {disk.serial for disk in now} - {""}
        names, places = {disk.name for disk in now}, {disk.place for disk in now} - {""}
        gone = [
            entry
            for entry in known.values()
            # A disk is replaced by another one in its slot, or with its name unless that disk moved
            # there.
            if entry.serial not in serials and entry.place not in places and entry.name not in names
        ]
        retired = [disk for disk in gone if {disk.serial, disk.name} & forgotten]
        gone = [disk for disk in gone if disk not in retired]
        highest = max(self.highest if same else 0, len(now)) - len(retired)
        highest = max(highest, len(now))
        if len(now) >= highest:
            gone = []
        return Inventory(
            boot_id=boot_id or self.boot_id,
            present=tuple(now),
            gone=tuple(gone),
            highest=highest,
        )


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """An NVMe controller or another disk. `counted`: it belongs to the node, so it can be
    missing.
    """

    name: str
    transport: str
    counted: bool
    place: str = ""
    model: str = ""
    serial: str = ""
    firmware: str = ""
    namespaces: Optional[int] = None


class IoCounts(msgspec.Struct, frozen=True):
    """/sys/block/NAME/stat: per operation the requests, bytes and seconds; None for what an older
    kernel does not count.
    """

    operations: dict[str, int]
    bytes: dict[str, int]
    seconds: dict[str, float]
    in_flight: int
    busy_seconds: float


def parse_stat(text: str) -> Optional[IoCounts]:
    """The 11, 15 or 17 numbers of a device's `stat`; None for anything else."""
    numbers = [parse_integer(word) for word in text.split()]
    fields = [number for number in numbers if number is not None]
    if len(fields) < 11 or len(fields) != len(numbers):
        return None
    starts = {"read": 0, "write": 4} | ({"discard": 11} if len(fields) >= 15 else {})
    operations = {name: fields[at] for name, at in starts.items()}
    seconds = {name: fields[at + 3] / 1000 for name, at in starts.items()}
    if len(fields) >= 17:
        operations["flush"], seconds["flush"] = fields[15], fields[16] / 1000
    transferred = {name: fields[at + 2] * SECTOR_BYTES for name, at in starts.items()}
    return IoCounts(operations, transferred, seconds, fields[8], fields[9] / 1000)


def list_block_devices(host: Host) -> list[str]:
    """The names of all block devices. Raises ProbeError where they cannot be listed."""
    names = list_names_or_fail(str(host.sys("block")), host.sysfs)
    return [name for name in names if _NAME.fullmatch(name) and not _HIDDEN_PATH.fullmatch(name)]


def is_physical(host: Host, name: str) -> bool:
    """Whether a block device has hardware behind it, and no medium that people change."""
    directory = host.sys(f"block/{name}")
    if _NOT_DISKS.fullmatch(name) or not exists(directory / "device"):
        return False
    return read_text(directory / "removable") != "1"


def list_disks(host: Host, names: list[str]) -> list[Disk]:
    """NVMe controllers, and the disks among these block devices. Raises ProbeError where the
    controllers cannot be listed.
    """
    controllers = list_names_or_fail(str(host.sys("class/nvme")), host.sysfs)
    disks = [_controller(host, name) for name in controllers if _CONTROLLER.fullmatch(name)]
    disks += [
        _disk(host, name)
        for name in names
        if not _NAMESPACE.fullmatch(name) and is_physical(host, name)
    ]
    return disks


def _controller(host: Host, name: str) -> Disk:
    directory = host.sys(f"class/nvme/{name}")
    transport = read_text(directory / "transport") or "pcie"  # the only one before Linux 4.5
    local = transport == "pcie"
    model = read_label(directory / "model") or ""
    return Disk(
        name=name,
        transport="pcie" if local else "network",
        counted=local and not model.startswith(_DETACHABLE),
        place=link_name(directory / "device") or "",
        model=model,
        serial=read_label(directory / "serial") or "",
        firmware=read_label(directory / "firmware_rev") or "",
        namespaces=sum(_NAMESPACE.fullmatch(name) is not None for name in list_names(directory)),
    )


def _disk(host: Host, name: str) -> Disk:
    directory = host.sys(f"block/{name}")
    try:
        target = os.readlink(directory)
    except OSError:
        target = ""
    transport = next((kind for part, kind in _PLACES if part in target), "other")
    is_scsi = _SCSI.fullmatch(name) is not None
    words = (read_label(directory / "device" / file) or "" for file in ("vendor", "model"))
    return Disk(
        name=name,
        transport=transport,
        counted=is_scsi and transport in LOCAL,
        place=link_name(directory / "device") or "",
        # The vendor of a SATA disk is `ATA`.
        model=" ".join(word for word in words if word and word != "ATA"),
        serial=_scsi_serial(host, name) or read_label(directory / "serial") or "",
        firmware=read_label(directory / "device/rev") or "",
    )


def _scsi_serial(host: Host, name: str) -> str:
    """The unit serial number, SCSI VPD page 0x80: four bytes of header, then text."""
    try:
        page = read_bytes(host.sys(f"block/{name}/device/vpd_pg80"))
    except OSError:
        return ""
    text = page[4:].decode("ascii", "replace").strip(" \0")
    return text if text.isascii() and text.isprintable() and len(text) <= 128 else ""


def read_counts(host: Host, name: str) -> Optional[IoCounts]:
    """The counts of a block device's I/O; None where they cannot be read."""
    return parse_stat(read_text(host.sys(f"block/{name}/stat")) or "")


def read_size(host: Host, name: str) -> Optional[int]:
    """The size in bytes; None where it cannot be read."""
    sectors = read_integer(host.sys(f"block/{name}/size"))
    return None if sectors is None else sectors * SECTOR_BYTES
