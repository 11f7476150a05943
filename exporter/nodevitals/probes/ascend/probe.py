"""Probe `ascend`: which NPUs answer, which are lost, their health, memory and network ports.

In: npu-smi and hccn_tool, one call at a time on the node, and the PCI devices in sysfs as the
witness. Out: `accelerator_*` and `ascend_*`. What the tools print is read in `ascend/`; an answer
that cannot be read is missing and counted, and a chip that is missing from it is not lost by that.
"""

from __future__ import annotations

import re
import time
from typing import Annotated, ClassVar

import msgspec
from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.document import Seconds
from nodevitals.linux.pci import PciReader
from nodevitals.probe import Absent, Family, Probe, ProbeError, Readings
from nodevitals.probes.ascend import blocks, hccn
from nodevitals.probes.ascend.answers import Answer, Answers, Query
from nodevitals.probes.ascend.caller import Caller
from nodevitals.probes.ascend.families import (
    COMMANDS,
    DEVICES,
    ERROR_COUNTERS,
    FAMILIES,
    FAULT_CODE,
    HEALTH_LEVEL,
    ISOLATED_PAGES,
    LINK_SPEED,
    LINK_UP,
    NETWORK_ERRORS,
    NETWORK_HEALTH,
    NETWORK_REACHABLE,
    NEXT_ISOLATED_PAGES,
    RECEIVE_POWER,
    RECEIVE_POWER_LOW,
    TOOL_SECONDS,
    UNPARSED,
    VENDOR,
)
from nodevitals.probes.ascend.faults import LEVELS, level_of
from nodevitals.probes.ascend.table import Chip, Table, parse_table
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device, Inventory

_PCI_VENDOR = "0x19e5"
_PCI_CLASSES = ("0x1200",)  # processing accelerator
_RETURNED = re.compile(r"\bret is (-\d+)")
# https://www.hiascend.com/document: DCMI's error codes
_REASONS = {
    "-8005": (
        "driver",
        "the driver is not loaded, its devices are missing, or not permitted to us",
    ),
    "-8020": ("in_use", "a container holds the devices for itself"),
}
HOUR = 3600.0
DEFAULT_TIMEOUT_SECONDS = 30.0
# Kept back for reading and telling, before the agent would end us.
RESERVE_SECONDS = 3.0
MAPPING = Query("mapping", "npu-smi", ("info", "-m"), HOUR)


class AscendSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many chips there should be, where the tools are, and how often the slow calls are made.

    `lock` is taken (flock) for each call; scripts that call the tools should take it too.
    """

    interval: Seconds | None = 60.0
    timeout: Seconds | None = DEFAULT_TIMEOUT_SECONDS
    expected: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    npu_smi: str = "npu-smi"
    hccn_tool: str = "hccn_tool"
    lock: str = "/run/lock/npu-smi.lock"
    slow_interval: Seconds = 300.0

    @property
    def required(self) -> bool:
        """Who expects chips does not want silence."""
        return self.enabled is True or self.expected is not None


class Memory(msgspec.Struct):
    """What outlives a run: cards and names for ever, answers for a boot."""

    boot_id: str = ""
    inventory: Inventory = Inventory()
    answers: dict[str, Answer] = {}
    names: dict[str, str] = {}
    """By slot, the uuid last known: a board that does not answer for once is not another card."""


class AscendProbe(Probe):
    """Ascend NPUs."""

    name: ClassVar[str] = "ascend"
    families: ClassVar[tuple[Family, ...]] = FAMILIES
    Settings: ClassVar[type[ProbeSettings]] = AscendSettings
    remembers: ClassVar[bool] = True
    settings: AscendSettings

    def run(self, readings: Readings) -> None:
        """One look."""
        memory = readings.recalled(Memory) or Memory()
        if memory.boot_id != self.host.boot_id():
            memory.boot_id, memory.answers = self.host.boot_id(), {}
        on_pci = {
            path.name.lower() for path in PciReader(self.host, _PCI_VENDOR, _PCI_CLASSES).read()
        }
        readings.add(DEVICES, len(on_pci), "pci")
        readings.add(accelerators.EXPECTED, self.settings.expected, VENDOR)
        for command in COMMANDS:
            readings.increment(UNPARSED, 0, command)
        timeout = self.settings.timeout or DEFAULT_TIMEOUT_SECONDS
        budget = timeout - min(RESERVE_SECONDS, 0.1 * timeout)
        self._caller = Caller(self.host, self.settings.lock, budget)
        self._problem: ProbeError | None = None
        self._readings = readings
        try:
            self._look(on_pci, memory)
        finally:
            readings.increment(TOOL_SECONDS, self._caller.used_seconds)
        readings.carry = encode(memory)
        if self._problem is not None:  # the table is told, and what else was to be had
            raise self._problem

    def _look(self, on_pci: set[str], memory: Memory) -> None:
        readings = self._readings
        table = self._table(on_pci, memory)
        chips = self._with_ports(table.chips, memory)
        answers = Answers(memory.answers, self._queries(chips, table.single), time.monotonic())
        answers.refresh(self._answer)
        memory.answers = answers.kept
        cards = [self._card(chip, answers, memory) for chip in chips]
        for chip, card in zip(chips, cards, strict=True):
            _tell_chip(chip, card, table, readings)
            _tell_health(chip, card, answers, readings)
            _tell_ecc(chip, card, answers, readings)
            _tell_network(card, answers, readings)
        self._take_inventory(table, on_pci, cards, memory)

    def _call(self, program: str, arguments: tuple[str, ...]) -> str:
        path = self.settings.npu_smi if program == "npu-smi" else self.settings.hccn_tool
        return self._caller.call([path, *arguments]).text

    def _table(self, on_pci: set[str], memory: Memory) -> Table:
        """The table, or why there is none."""
        try:
            text = self._call("npu-smi", ("info",))
        except ProbeError as error:
            if error.reason == "missing" and not (on_pci or memory.inventory.known):
                raise Absent(f"no NPU on the PCI bus, no npu-smi ({error.message})") from None
            raise
        table = parse_table(text)
        self._readings.increment(UNPARSED, table.unparsed, "info")
        self._readings.add(DEVICES, len(table.chips), "npu_smi")
        if table.chips or table.unparsed:
            return table
        if not (on_pci or memory.inventory.known):
            raise Absent("npu-smi and the PCI bus list no NPU")
        code = _RETURNED.search(text)
        reason, meaning = _REASONS.get(code[1] if code else "", ("npu_smi", "npu-smi lists no NPU"))
        first = " ".join(text.split())[:100]
        raise ProbeError(reason, f"{meaning}; NPUs on the PCI bus: {len(on_pci)}; it says: {first}")

    def _with_ports(self, chips: tuple[Chip, ...], memory: Memory) -> list[Chip]:
        """The chips with the ids that hccn_tool and npu-exporter use, where they lack them."""
        if all(chip.physical is not None for chip in chips):
            return list(chips)
        mapping = Answers(memory.answers, [MAPPING], time.monotonic())
        mapping.refresh(self._answer)
        memory.answers.update(mapping.kept)
        ids = parse_mapping(mapping.text(MAPPING.key))
        return [
            msgspec.structs.replace(chip, physical=ids.get((chip.npu, chip.chip), chip.physical))
            for chip in chips
        ]

    def _queries(self, chips: list[Chip], single: bool) -> list[Query]:
        """The calls that this machine's chips make us make, what names them first."""
        often = 0.9 * (self.settings.interval or 60.0)  # in each cycle, though it begins early
        seldom = self.settings.slow_interval
        boards, healths, ports = [], [], []
        for chip in chips:
            key = f"{chip.npu} {chip.chip}"
            at = ("-i", str(chip.npu), *(() if single else ("-c", str(chip.chip))))
            boards.append(Query(f"board {key}", "npu-smi", ("info", "-t", "board", *at), HOUR))
            every, health = (seldom if chip.health == 0 else often), _health_key(chip)
            healths.append(Query(health, "npu-smi", ("info", "-t", "health", *at), every))
            # Inference chips have no port; the 950's hccn_tool wants each of many ports named.
            if chip.physical is not None and chip.hbm_total_bytes is not None and not single:
                ports += _port_queries(str(chip.physical), often, seldom)
        eccs = [
            Query(f"ecc {npu}", "npu-smi", ("info", "-t", "ecc", "-i", str(npu)), seldom)
            for npu in dict.fromkeys(chip.npu for chip in chips)
        ]
        return [MAPPING, *boards, *healths, *ports, *eccs]

    def _answer(self, query: Query) -> str | None:
        # Not begun where it would have to be killed half-way, nor after one that had to be.
        longest = max(1.0, 2 * self._caller.slowest_seconds)
        if self._problem is not None or self._caller.left_seconds < longest:
            return None
        try:
            text = self._call(query.program, query.arguments)
        except ProbeError as error:
            if error.reason != "missing":  # a machine may have no hccn_tool
                self._problem = error
            return ""  # asked again when its timer says so, after the others
        command = query.key.partition(" ")[0]
        if command in COMMANDS and not _is_readable(command, text):
            self._readings.increment(UNPARSED, 1, command)
        return text

    def _card(self, chip: Chip, answers: Answers, memory: Memory) -> Device:
        device = f"{chip.npu}-{chip.chip}" if chip.physical is None else str(chip.physical)
        slot = f"{chip.bus_id or chip.npu}/{chip.chip}"
        board = _block(answers.text(f"board {chip.npu} {chip.chip}"), chip)
        vdie = blocks.dashed(board.get("VDie ID", "") or board.get("DDie ID", ""))
        if vdie:
            memory.names[slot] = vdie
        uuid = memory.names.get(slot, slot)
        serial = board.get("Serial Number", "")
        serial = "" if serial in ("NA", "-") else serial
        firmware = board.get("Firmware Version", "")
        labels = (VENDOR, device, uuid, serial, chip.bus_id, chip.name, "", firmware, vdie)
        self._readings.add(accelerators.INFO, 1, *labels)
        return Device(uuid=uuid, index=device, slot=slot, serial=serial, model=chip.name)

    def _take_inventory(
        self, table: Table, on_pci: set[str], present: list[Device], memory: Memory
    ) -> None:
        """Who is not in the table is lost, but when rows of it could not be read: then only those
        whose device is off the PCI bus too.
        """
        slots = {one.device.slot for one in memory.inventory.known}
        unread = {slot for slot in slots if slot.partition("/")[0] in on_pci or ":" not in slot}
        withheld = unread if table.unparsed else set()
        memory.inventory = memory.inventory.seen(
            present, set(), withheld, self._readings.forgotten, {}, time.time()
        )
        accelerators.report(memory.inventory, VENDOR, self._readings)


def _port_queries(port: str, often: float, seldom: float) -> list[Query]:
    commands = {"-link": often, "-net_health": often}
    commands |= {"-stat": seldom, "-optical": seldom, "-speed": seldom}
    return [
        Query(f"{command} {port}", "hccn_tool", ("-i", port, command, "-g"), every)
        for command, every in commands.items()
    ]


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """`npu-smi info -m`: NPU and chip to physical id, which older tools call logic id."""
    found = {}
    for row in blocks.parse_rows(text):
        words = (row.get("NPU ID", ""), row.get("Chip ID", ""))
        physical = row.get("Chip Phy-ID", row.get("Chip Logic ID", ""))
        if all(word.isdecimal() for word in (*words, physical)):
            found[int(words[0]), int(words[1])] = int(physical)
    return found


def _health_key(chip: Chip) -> str:
    """With its verdict: the faults told with another one are not those of now."""
    return f"health {chip.npu} {chip.chip} {chip.health}"


def _is_readable(command: str, text: str) -> bool:
    if command == "mapping":
        return bool(parse_mapping(text))
    found = blocks.parse_blocks(text)
    if command == "health":
        return any(blocks.parse_error_codes(block) is not None for block in found.values())
    return any("NPU ID" in block or "Chip ID" in block for block in found.values())


def _block(text: str, chip: Chip) -> blocks.Block:
    """A chip's part of an answer to a call that named it: it may leave its number out."""
    found = blocks.parse_blocks(text)
    nameless = {number: block for number, block in found.items() if "Chip ID" not in block}
    return found.get(chip.chip) or nameless.get(0, {})


def _tell_chip(chip: Chip, card: Device, table: Table, readings: Readings) -> None:
    labels = (VENDOR, card.index, card.uuid)
    readings.add(accelerators.UTILIZATION, chip.utilization_ratio, *labels)
    has_hbm = chip.hbm_total_bytes is not None
    used = chip.hbm_used_bytes if has_hbm else chip.memory_used_bytes
    total = chip.hbm_total_bytes if has_hbm else chip.memory_total_bytes
    readings.add(accelerators.MEMORY_USED, used, *labels)
    readings.add(accelerators.MEMORY_TOTAL, total, *labels)
    readings.add(accelerators.TEMPERATURE, chip.temperature_celsius, *labels)
    readings.add(accelerators.POWER, chip.power_watts, *labels)
    readings.add(accelerators.PROCESSES, table.processes_of(chip), *labels)


def _tell_health(chip: Chip, card: Device, answers: Answers, readings: Readings) -> None:
    healthy = None if chip.health is None else chip.health == 0
    readings.add(accelerators.HEALTHY, healthy, VENDOR, card.index, card.uuid)
    readings.add(HEALTH_LEVEL, chip.health, card.index, card.uuid)
    text = answers.text(_health_key(chip))
    codes = blocks.parse_error_codes(_block(text, chip))
    for code in sorted(set(codes or ())):
        level = level_of(code)
        readings.add(FAULT_CODE, 1, card.index, card.uuid, code, level, LEVELS[level])


def _tell_ecc(chip: Chip, card: Device, answers: Answers, readings: Readings) -> None:
    block = blocks.parse_blocks(answers.text(f"ecc {chip.npu}")).get(chip.chip, {})
    labels = (card.index, card.uuid)
    for bits, kind in (("Single", "corrected"), ("Double", "uncorrected")):
        for memory, location in (("HBM", "hbm"), ("DDR", "ddr")):
            for name, lifetime in (
                ("Error Count", "volatile"),
                ("Aggregate Total Err Cnt", "aggregate"),
            ):
                count = blocks.number_of(block, f"{memory} {bits} Bit {name}")
                series = (VENDOR, *labels, kind, lifetime, location)
                readings.add(accelerators.ECC_ERRORS, count, *series)
        pages = blocks.number_of(block, f"HBM {bits} Bit Isolated Pages Count")
        readings.add(ISOLATED_PAGES, pages, *labels, kind)
        pages = blocks.number_of(block, f"HBM {bits} Bit Next-Isolated Pages Count")
        readings.add(NEXT_ISOLATED_PAGES, pages, *labels, kind)


def _tell_network(card: Device, answers: Answers, readings: Readings) -> None:
    labels, port = (card.index, card.uuid), card.index
    readings.add(LINK_UP, hccn.parse_link(answers.text(f"-link {port}")), *labels)
    health = hccn.parse_net_health(answers.text(f"-net_health {port}"))
    if health is not None:
        readings.add(NETWORK_HEALTH, 1, *labels, health)
        # "init" and "unknown" say nothing: no address to detect is set, or nobody has asked yet.
        if health not in ("init", "unknown", "detect_ip_set"):
            readings.add(NETWORK_REACHABLE, health == "success", *labels)
    speed = hccn.parse_speed(answers.text(f"-speed {port}"))
    readings.add(LINK_SPEED, None if speed is None else speed / 8, *labels)
    optical = hccn.parse_optical(answers.text(f"-optical {port}"))
    for lane, watts in optical.receive_watts.items():
        readings.add(RECEIVE_POWER, watts, *labels, str(lane))
    if optical.receive_watts:
        readings.add(RECEIVE_POWER_LOW, optical.receive_low_watts, *labels)
    counters = hccn.parse_statistics(answers.text(f"-stat {port}"))
    for name in ERROR_COUNTERS:
        readings.add(NETWORK_ERRORS, counters.get(name), *labels, name)
