"""Exposes the outputs for a chip, and decides why NPUs were not read. Runs no tool.

An NPU is lost if it has left the PCI bus or, if its bus id is unknown, if a complete table does not
list it. Any other NPU without data is unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.ascend import parsers
from nodevitals.probes.ascend.families import (
    ERROR_COUNTERS,
    FAULT_CODE,
    HEALTH_LEVEL,
    ISOLATED_PAGES,
    LEVELS,
    LINK_SPEED,
    LINK_UP,
    NETWORK_ERRORS,
    NETWORK_HEALTH,
    NETWORK_REACHABLE,
    NEXT_ISOLATED_PAGES,
    RECEIVE_POWER,
    RECEIVE_POWER_LOW,
    VENDOR,
    VNPU_CORES,
    VNPU_CORES_FREE,
    VNPU_INFO,
    VNPU_MEMORY,
    VNPU_MEMORY_FREE,
    VNPUS,
    level_of,
)
from nodevitals.probes.ascend.parsers import parse_vnpus
from nodevitals.probes.ascend.queries import OutputCache, ecc_key, health_key, port_key, vnpu_key
from nodevitals.probes.ascend.table import Chip, Table
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device

# No detection address is set, or the chip has not checked it yet.
_UNCHECKED = ("init", "unknown", "detect_ip_set")


def report_usage(chip: Chip, device: Device, table: Table, readings: Readings) -> None:
    """Utilization, memory, temperature, power and processes, from the table."""
    labels = (VENDOR, device.index, device.uuid)
    readings.add(accelerators.UTILIZATION, chip.utilization_ratio, *labels)
    has_hbm = chip.hbm_total_bytes is not None
    used = chip.hbm_used_bytes if has_hbm else chip.memory_used_bytes
    total = chip.hbm_total_bytes if has_hbm else chip.memory_total_bytes
    readings.add(accelerators.MEMORY_USED, used, *labels)
    readings.add(accelerators.MEMORY_TOTAL, total, *labels)
    readings.add(accelerators.TEMPERATURE, chip.temperature_celsius, *labels)
    readings.add(accelerators.POWER, chip.power_watts, *labels)
    readings.add(accelerators.PROCESSES, table.processes_of(chip), *labels)


def report_health(chip: Chip, device: Device, outputs: OutputCache, readings: Readings) -> None:
    """The health level from the table, and the fault codes that belong to it."""
    healthy = None if chip.health is None else chip.health == 0
    readings.add(accelerators.HEALTHY, healthy, VENDOR, device.index, device.uuid)
    readings.add(HEALTH_LEVEL, chip.health, device.index, device.uuid)
    block = parsers.block_of(outputs.text(health_key(chip)), chip.chip)
    for code in sorted(set(parsers.parse_error_codes(block) or ())):
        level = level_of(code)
        readings.add(FAULT_CODE, 1, device.index, device.uuid, code, level, LEVELS[level])


def report_ecc(chip: Chip, device: Device, outputs: OutputCache, readings: Readings) -> None:
    """ECC errors and isolated pages."""
    block = parsers.parse_blocks(outputs.text(ecc_key(chip.npu))).get(chip.chip, {})
    labels = (device.index, device.uuid)
    for bits, kind in (("Single", "corrected"), ("Double", "uncorrected")):
        for memory, location in (("HBM", "hbm"), ("DDR", "ddr")):
            for name, lifetime in (
                ("Error Count", "volatile"),
                ("Aggregate Total Err Cnt", "aggregate"),
            ):
                count = parsers.number_of(block, f"{memory} {bits} Bit {name}")
                series = (VENDOR, *labels, kind, lifetime, location)
                readings.add(accelerators.ECC_ERRORS, count, *series)
        pages = parsers.number_of(block, f"HBM {bits} Bit Isolated Pages Count")
        readings.add(ISOLATED_PAGES, pages, *labels, kind)
        pages = parsers.number_of(block, f"HBM {bits} Bit Next-Isolated Pages Count")
        readings.add(NEXT_ISOLATED_PAGES, pages, *labels, kind)


def report_vnpus(chip: Chip, device: Device, outputs: OutputCache, readings: Readings) -> None:
    """The vNPUs of the chip and what is left for others."""
    vnpus = parse_vnpus(outputs.text(vnpu_key(chip)))
    if vnpus is None:
        return
    labels = (device.index, device.uuid)
    readings.add(VNPUS, vnpus.count, *labels)
    for number, template in vnpus.templates.items():
        readings.add(VNPU_INFO, 1, *labels, str(number), template)
    if vnpus.ai_cores is not None:
        readings.add(VNPU_CORES, vnpus.ai_cores.total, *labels)
        readings.add(VNPU_CORES_FREE, vnpus.ai_cores.free, *labels)
    if vnpus.memory_bytes is not None:
        readings.add(VNPU_MEMORY, vnpus.memory_bytes.total, *labels)
        readings.add(VNPU_MEMORY_FREE, vnpus.memory_bytes.free, *labels)


def report_network(device: Device, outputs: OutputCache, readings: Readings) -> None:
    """The RoCE port: link, detection address, speed, optical power and error counters."""
    labels = (device.index, device.uuid)

    def output(option: str) -> str:
        return outputs.text(port_key(option, device.index))

    readings.add(LINK_UP, parsers.parse_link(output("-link")), *labels)
    health = parsers.parse_net_health(output("-net_health"))
    if health is not None:
        readings.add(NETWORK_HEALTH, 1, *labels, health)
        if health not in _UNCHECKED:
            readings.add(NETWORK_REACHABLE, health == "success", *labels)
    speed = parsers.parse_speed(output("-speed"))
    readings.add(LINK_SPEED, None if speed is None else speed / 8, *labels)
    optical = parsers.parse_optical(output("-optical"))
    for lane, watts in optical.receive_watts.items():
        readings.add(RECEIVE_POWER, watts, *labels, str(lane))
    if optical.receive_watts:
        readings.add(RECEIVE_POWER_LOW, optical.receive_low_watts, *labels)
    counters = parsers.parse_statistics(output("-stat"))
    for name in ERROR_COUNTERS:
        readings.add(NETWORK_ERRORS, counters.get(name), *labels, name)


class Unread(msgspec.Struct, frozen=True):
    """The chips that have a row without data in the table, the reason for each unreadable chip by
    uuid, and the slots of all these chips, including bus ids that a truncated table lacks.
    """

    failed: tuple[Device, ...]
    codes: dict[str, str]
    slots: frozenset[str]


def explain(
    known: Iterable[Device],
    chips: Mapping[Device, Chip],
    table: Table,
    on_pci: AbstractSet[str],
    may_be_on_bus: Callable[[str], bool],
) -> Unread:
    """Decide which of the NPUs that were not read are unreadable. `chips` are those of the table,
    `on_pci` the bus ids of NPUs.
    """
    whole = table.complete and not table.unparsed
    failed = tuple(device for device, chip in chips.items() if chip.failed)
    uuids, slots = {chip.uuid for chip in chips}, {chip.slot for chip in chips}
    absent = [
        device
        for device in known
        if device.uuid not in uuids
        and device.slot not in slots
        and (may_be_on_bus(_bus_id(device)) if ":" in _bus_id(device) else not whole)
    ]
    codes = {chip.uuid: "no_data" for chip in failed} | {chip.uuid: "not_listed" for chip in absent}
    unread = {chip.slot for chip in (*failed, *absent)}
    if not whole:
        listed = {chip.bus_id for chip in chips.values()}
        unread |= on_pci - listed - {_bus_id(chip) for chip in absent}
    return Unread(failed, codes, frozenset(unread))


def _bus_id(device: Device) -> str:
    return device.slot.partition("/")[0]
