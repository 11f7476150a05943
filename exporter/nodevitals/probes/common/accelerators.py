"""What the accelerators of every vendor share: the families, also of the workloads that have them,
and the inventory of a node.

`Inventory` is pure: the devices that answer go in, those that once did and no longer do come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Literal, Optional, get_args

import msgspec

from nodevitals.probe import Families, Readings
from nodevitals.probes.common.facts import Fact

Action = Literal[
    "none", "investigate", "restart_app", "reset_device", "drain", "reboot_node", "replace"
]
ACTIONS: tuple[Action, ...] = get_args(Action)
DEVICE_LABELS = ("vendor", "device", "uuid")
# Which pod, job or user has a device. `namespace` and `pod` name the unit of work everywhere: a pod
# of Kubernetes, a job of Slurm (`slurm`, its id), the processes of a user (`user`, the name).
OWNER_LABELS = ("job_name", "owner", "queue")
WORKLOAD_LABELS = ("namespace", "pod", "container", *OWNER_LABELS)
ECC_KINDS = ("corrected", "uncorrected")
ECC_LIFETIMES = ("volatile", "aggregate")
ECC_LOCATIONS = (
    "all",
    "sram",
    "dram",
    "hbm",
    "ddr",
    "l1_cache",
    "l2_cache",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
)

counts = Families("accelerators", "vendor")
PRESENT = counts.gauge("present", "Number of accelerators that answer.")
EXPECTED = counts.gauge("expected", "Number of accelerators that the configuration expects.")
UNREADABLE = counts.gauge(
    "unreadable",
    "Number of accelerators that are listed, not lost, and cannot be identified or read.",
)
BASELINE = counts.gauge(
    "baseline",
    "Highest number of accelerators that ever answered on this node, less the forgotten ones.",
)

metrics = Families("accelerator", *DEVICE_LABELS)
INFO = metrics.gauge(
    "info",
    "Always 1; identity of the accelerator.",
    "serial",
    "pci_bus_id",
    "model",
    "driver_version",
    "firmware_version",
    "vdie_id",
)
UP = metrics.gauge(
    "up",
    "Whether an accelerator that is known on this node answers; missing where that is unknown.",
)
LOST_TIMESTAMP = metrics.gauge(
    "lost_timestamp_seconds",
    "Unix time at which a known accelerator was first found not to answer; missing while it does.",
)
ERROR_INFO = metrics.gauge(
    "error_info",
    "Always 1; the vendor's error code for an accelerator that is lost or cannot be read; `hang` "
    "where its driver does not return.",
    "code",
)
HEALTHY = metrics.gauge(
    "healthy", "Whether the vendor reports the device as OK; missing where it reports no health."
)
ECC_ERRORS = metrics.counter(
    "ecc_errors_total",
    "Number of memory errors counted by the device, since the driver was loaded or in its life.",
    kind=ECC_KINDS,
    lifetime=ECC_LIFETIMES,
    location=ECC_LOCATIONS,
)
UTILIZATION = metrics.gauge(
    "utilization_ratio", "Share of the vendor's last sampling period in which the device was busy."
)
MEMORY_USED = metrics.gauge("memory_used_bytes", "Device memory in use.")
MEMORY_TOTAL = metrics.gauge("memory_total_bytes", "Size of the device memory.")
TEMPERATURE = metrics.gauge("temperature_celsius", "Temperature of the chip.")
POWER = metrics.gauge("power_watts", "Power draw of the device.")
PROCESSES = metrics.gauge("processes", "Number of compute processes on the device.")
ACCELERATOR_INFO = Families("pod", *WORKLOAD_LABELS).open_gauge(
    "accelerator_info",
    "Always 1; the pod (or job of another scheduler) that has the accelerator; of a MIG instance, "
    "uuid is that of its GPU.",
    *DEVICE_LABELS,
)
# What the probe `profile` compares.
PROFILE_FACTS = (
    Fact("accelerator.count", PRESENT),
    Fact("accelerator.model", INFO, "model"),
    Fact("accelerator.driver", INFO, "driver_version"),
    Fact("accelerator.firmware", INFO, "firmware_version"),
    Fact("accelerator.memory_bytes", MEMORY_TOTAL),
)


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that has answered: its lasting identity, the vendor's present index, its slot (''
    if it has none), and what the manufacturer needs to take it back.
    """

    uuid: str
    index: str
    slot: str
    serial: str = ""
    model: str = ""


class KnownDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the inventory. `lost_at` is in seconds since the epoch, None while it answers;
    `withheld` means that its state is unknown, because it cannot be used or read here; `state` is
    the vendor's state if it is not healthy; `code` is the vendor's error if it is lost or cannot be
    read.
    """

    device: Device
    lost_at: Optional[float] = None
    withheld: bool = False
    state: str = ""
    code: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices known on a node; it is kept in the state directory."""

    known: tuple[KnownDevice, ...] = ()
    baseline: int = 0

    def seen(
        self,
        present: Iterable[Device],
        lost: AbstractSet[str],
        withheld: AbstractSet[str],
        forgotten: AbstractSet[str],
        states: Mapping[str, str],
        now: float,
        codes: Mapping[str, str] = MappingProxyType({}),
    ) -> Inventory:
        """The inventory after a run that found these devices.

        A known device that is not among them is lost until it is back, until another device
        answers in its slot, or until it is forgotten: a device that was returned to the
        manufacturer must not alert for ever. `lost` are slots whose device the vendor reports as
        lost; a device that was never known is identified by its slot. `withheld` are the slots or
        uuids of devices whose state is unknown. `codes` are the vendor's errors, by slot or uuid.
        """
        before = {entry.device.uuid: entry.device for entry in self.known}
        devices = {device.uuid: completed(device, before.get(device.uuid)) for device in present}
        slots = {device.slot for device in devices.values() if device.slot}
        known = [
            KnownDevice(device=device, state=states.get(device.uuid, ""))
            for device in devices.values()
        ]
        gone = [entry for entry in self.known if entry.device.uuid not in devices]
        for entry in gone:
            device = entry.device
            if device.slot in slots or device.uuid in forgotten:
                continue
            away = not withheld.isdisjoint((device.slot, device.uuid))
            since = entry.lost_at if away or entry.lost_at is not None else now
            code = codes.get(device.uuid) or codes.get(device.slot, "")
            known.append(KnownDevice(device=device, lost_at=since, withheld=away, code=code))
        known_slots = {entry.device.slot for entry in known}
        for slot in lost - known_slots - forgotten:
            device = Device(uuid=slot, index="", slot=slot)
            known.append(KnownDevice(device=device, lost_at=now, code=codes.get(slot, "")))
        retired = sum(entry.device.uuid in forgotten for entry in gone)
        return Inventory(
            known=tuple(sorted(known, key=lambda entry: (entry.device.slot, entry.device.uuid))),
            baseline=max(len(devices), self.baseline - retired),
        )


def completed(device: Device, before: Device | None) -> Device:
    """The device, with its last serial number and model if a failing device returns none."""
    if before is None:
        return device
    return msgspec.structs.replace(
        device, serial=device.serial or before.serial, model=device.model or before.model
    )


def report(inventory: Inventory, vendor: str, readings: Readings) -> None:
    """Expose the inventory, and record each device's state for the history. The probe itself
    exposes INFO of the devices that answer.
    """
    expose(inventory, vendor, readings)
    for entry in inventory.known:
        device = entry.device
        if entry.code or (entry.lost_at is not None and not entry.withheld):
            labels = (vendor, device.index, device.uuid)
            bus_id = device.slot.partition("/")[0]
            readings.add(INFO, 1, *labels, device.serial, bus_id, device.model, "", "", "")
        _record_condition(entry, vendor, readings)


def expose(inventory: Inventory, vendor: str, readings: Readings) -> None:
    """Expose which devices answer, and the errors of the others."""
    here = [entry for entry in inventory.known if not entry.withheld]
    readings.add(PRESENT, sum(entry.lost_at is None for entry in here), vendor)
    readings.add(BASELINE, inventory.baseline, vendor)
    for entry in inventory.known:
        device = entry.device
        labels = (vendor, device.index, device.uuid)
        if not entry.withheld:
            readings.add(UP, entry.lost_at is None, *labels)
            readings.add(LOST_TIMESTAMP, entry.lost_at, *labels)
        if entry.code:
            readings.add(ERROR_INFO, 1, *labels, entry.code)


def _record_condition(entry: KnownDevice, vendor: str, readings: Readings) -> None:
    if entry.withheld and not entry.code:
        return
    device = entry.device
    well = entry.state in ("", "none")
    lost = "lost" if entry.lost_at is not None else ""
    state = "unreadable" if entry.withheld else lost or ("ok" if well else entry.state)
    serial = f", serial {device.serial}" if device.serial else ""
    code = f", error {entry.code}" if entry.code else ""
    detail = f"{vendor} {device.index} at {device.slot}{serial}{code}"
    readings.condition(device.uuid, state, detail)
