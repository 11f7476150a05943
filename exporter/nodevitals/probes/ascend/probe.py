"""Probe `ascend`: which NPUs answer, which are lost, their health, memory and network ports.

In: the output of npu-smi and hccn_tool, one call at a time on the node, and the PCI devices in
sysfs. Out: `accelerator_*` and `ascend_*`, and the names of the NPUs to the probe `jobs`. Output
that cannot be parsed is missing and counted, and a chip that is missing from it is not lost for
that reason.
"""

from __future__ import annotations

import re
import time
from typing import Annotated, Optional

import msgspec

from nodevitals.document.local import LocalProgram
from nodevitals.linux.pci import PciReader
from nodevitals.linux.sysfs import can_be_listed, exists, list_names
from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Readings, Seconds
from nodevitals.probes.ascend import parsers
from nodevitals.probes.ascend.families import (
    COMMANDS,
    DEVICES,
    TOOL_SECONDS,
    UNPARSED,
    VENDOR,
    chip_metrics,
    metrics,
)
from nodevitals.probes.ascend.queries import (
    FAST_SHARE,
    MAPPING,
    CallFailedError,
    OutputCache,
    Query,
    ToolOutput,
    board_key,
    queries_of,
)
from nodevitals.probes.ascend.report import (
    explain,
    report_ecc,
    report_health,
    report_network,
    report_usage,
    report_vnpus,
)
from nodevitals.probes.ascend.runner import ToolRunner
from nodevitals.probes.ascend.table import Chip, Table, parse_table
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device, Inventory
from nodevitals.probes.common.device_names import DeviceName, NpuNames
from nodevitals.probes.common.facts import send_facts
from nodevitals.probes.kubernetes.messages import send_accelerators

_PCI_VENDOR = "0x19e5"
_PCI_CLASSES = ("0x1200",)  # processing accelerator
_RETURNED = re.compile(r"\bret is (-\d+)")
# https://www.hiascend.com/document: DCMI's error codes
_REASONS = {
    "-8005": (
        "driver",
        "the driver is not loaded, its device nodes are missing, or access is not permitted",
    ),
    "-8020": ("in_use", "a container owns the devices exclusively"),
}
# Reserved for parsing and reporting: the agent kills the process at the end of the timeout.
RESERVE_SECONDS = 3.0
RESERVE_SHARE = 0.1


class AscendSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of chips, the paths of the tools, and how often the slow calls are made."""

    interval: Optional[Seconds] = 60.0
    """Time between two calls of `npu-smi info`, which takes seconds."""
    timeout: Optional[Seconds] = 30.0
    """Time that all calls of a run may take together."""
    expected: Optional[Annotated[int, msgspec.Meta(ge=1, le=1024)]] = None
    """Number of chips on the node (an NPU may have two); with it, no NPU is a failure."""
    npu_smi: LocalProgram = "npu-smi"
    """Path of npu-smi, or its name on PATH."""
    hccn_tool: LocalProgram = "hccn_tool"
    """Path of hccn_tool, or its name on PATH."""
    lock: str = "/run/nodevitals/npu-smi.lock"
    """Lock file (flock) held during each call, in a directory that only root can write to and that
    is made where it is missing; scripts of root that call the tools should lock it too, and agents
    in containers need the node's directory."""
    slow_interval: Seconds = 300.0
    """Time between two readings of ECC errors, fault codes of healthy chips, error counters, link
    speed and optical power."""

    @property
    def required(self) -> bool:
        """Whether the absence of NPUs is a failure; true also if a number of chips is expected."""
        return self.enabled is True or self.expected is not None


class AscendState(msgspec.Struct):
    """The known devices, and the last outputs of this boot."""

    boot_id: str = ""
    inventory: Inventory = Inventory()
    outputs: dict[str, ToolOutput] = {}
    uuids: dict[str, str] = {}
    """The last uuid by slot: a chip stays the same device while its board cannot be read."""
    physical: dict[str, int] = {}
    """The last physical id by `NPU/CHIP`, for the same reason."""


class AscendProbe(Probe):
    """Ascend NPUs (npu-smi, hccn_tool): lost NPUs, health and fault codes, HBM ECC, RoCE ports,
    optics.
    """

    name = "ascend"
    families = (*accelerators.counts, *accelerators.metrics, *chip_metrics, *metrics)
    Settings = AscendSettings
    State = AscendState
    persistent = True
    settings: AscendSettings
    state: AscendState

    def run(self, readings: Readings) -> None:
        """Read the table of the chips, and refresh as many other outputs as the time permits."""
        boot_id = self.host.boot_id()
        if boot_id and self.state.boot_id != boot_id:
            if self.state.boot_id:
                self.state.outputs = {}
            self.state.boot_id = boot_id
        pci = PciReader(self.host, _PCI_VENDOR, _PCI_CLASSES)
        on_pci = {path.name.lower() for path in pci.read()}
        self._bus_listed, self._bus_complete = pci.listed, pci.complete
        readings.add(DEVICES, len(on_pci) if pci.complete else None, "pci")
        readings.add(accelerators.EXPECTED, self.settings.expected, VENDOR)
        for command in COMMANDS:
            readings.increment(UNPARSED, 0, command)
        timeout = self.timing.timeout_seconds
        budget = timeout - min(RESERVE_SECONDS, RESERVE_SHARE * timeout)
        self._runner = ToolRunner(self.host, self.settings.lock, budget)
        self._problem: ProbeError | None = None
        self._stopped = False
        self._readings = readings
        try:
            self._report(on_pci)
        finally:
            readings.increment(TOOL_SECONDS, self._runner.used_seconds)
        if self._problem is not None:  # what could be read is reported nevertheless
            raise self._problem

    def _report(self, on_pci: set[str]) -> None:
        readings = self._readings
        table = self._table(on_pci)
        chips = self._with_physical_ids(table.chips)
        interval, slow = self.timing.interval_seconds, self.settings.slow_interval
        outputs = self._refreshed(queries_of(chips, table.single, interval, slow))
        self.state.outputs = outputs.kept
        devices = {self._device(chip, outputs): chip for chip in chips}
        for device, chip in devices.items():
            if not chip.failed:
                self._report_identity(chip, device, outputs)
                report_usage(chip, device, table, readings)
                report_health(chip, device, outputs, readings)
            report_ecc(chip, device, outputs, readings)
            report_network(device, outputs, readings)
            report_vnpus(chip, device, outputs, readings)
        self._update_inventory(table, devices, on_pci)
        known = [entry.device for entry in self.state.inventory.known]
        # The index of a chip is its physical id, where that is known.
        by_id = {
            device.index: DeviceName(device.index, device.uuid)
            for device in known
            if device.index.isdecimal()
        }
        readings.send("jobs", NpuNames({int(index): name for index, name in by_id.items()}))
        send_facts(readings, VENDOR, accelerators.PROFILE_FACTS, kind="NPU")

    def _table(self, on_pci: set[str]) -> Table:
        """The table of the chips. Raises ProbeError with the reason why npu-smi prints none."""
        folder = self.host.sys("bus/pci/devices")
        unknown = not (self._bus_complete if self._bus_listed else can_be_listed(folder))
        expected = bool(on_pci or self.state.inventory.known or unknown)
        if not (expected or self.settings.required or self._has_device_nodes()):
            raise Absent("no NPU on the PCI bus, no /dev/davinci*")  # before a lock file is made
        try:
            text = self._call("npu-smi", ("info",))
        except ProbeError as error:
            if error.reason == "missing" and not expected:
                raise Absent(f"no NPU on the PCI bus, no npu-smi ({error.message})") from None
            raise
        table = parse_table(text)
        self._readings.increment(UNPARSED, table.unparsed, "info")
        self._readings.add(DEVICES, len(table.chips), "npu_smi")
        if table.chips or table.unparsed:
            return table
        if not expected:
            raise Absent("npu-smi and the PCI bus list no NPU")
        code = _RETURNED.search(text)
        reason, meaning = _REASONS.get(code[1] if code else "", ("npu_smi", "npu-smi lists no NPU"))
        first = " ".join(text.split())[:100]
        raise ProbeError(reason, f"{meaning}; NPUs on the PCI bus: {len(on_pci)}; output: {first}")

    def _has_device_nodes(self) -> bool:
        return any(name.startswith("davinci") for name in list_names(self.host.root("/dev")))

    def _with_physical_ids(self, chips: tuple[Chip, ...]) -> list[Chip]:
        """The chips with the physical ids that hccn_tool and npu-exporter use, also if the table
        lacks these ids.
        """
        if all(chip.physical is not None for chip in chips):
            return list(chips)
        outputs = self._refreshed([MAPPING])
        self.state.outputs.update(outputs.kept)
        ids = parsers.parse_mapping(outputs.text(MAPPING.key))
        self.state.physical |= {f"{npu}/{chip}": physical for (npu, chip), physical in ids.items()}
        return [
            msgspec.structs.replace(
                chip, physical=self.state.physical.get(f"{chip.npu}/{chip.chip}", chip.physical)
            )
            for chip in chips
        ]

    def _refreshed(self, queries: list[Query]) -> OutputCache:
        retry = FAST_SHARE * self.timing.interval_seconds
        outputs = OutputCache(self.state.outputs, queries, time.monotonic(), retry)
        outputs.refresh(self._output)
        return outputs

    def _output(self, query: Query) -> str | None:
        """The output of a call; None if no time is left for it."""
        # No call is started that would have to be killed, and none after a killed one.
        longest = max(1.0, 2 * self._runner.slowest_seconds)
        if self._stopped or self._runner.left_seconds < longest:
            return None
        try:
            text = self._call(query.program, query.arguments)
        except ProbeError as error:
            if error.reason == "missing":  # a machine may have no hccn_tool
                return ""
            self._problem = self._problem or error
            # While one call hangs or runs, a second one would hang or wait, too.
            self._stopped = error.reason in ("stuck", "busy", "lock", "timeout")
            raise CallFailedError from None
        # The last number of a truncated line may lack digits.
        whole, newline, _ = text.rpartition("\n")
        text = whole + newline if newline else text
        if not query.is_readable(text):
            self._readings.increment(UNPARSED, 1, query.command)
            raise CallFailedError
        return text

    def _call(self, program: str, arguments: tuple[str, ...]) -> str:
        path = self.settings.npu_smi if program == "npu-smi" else self.settings.hccn_tool
        return self._runner.run([path, *arguments])

    def _device(self, chip: Chip, outputs: OutputCache) -> Device:
        index = f"{chip.npu}-{chip.chip}" if chip.physical is None else str(chip.physical)
        slot = f"{chip.bus_id or chip.npu}/{chip.chip}"
        board = parsers.block_of(outputs.text(board_key(chip)), chip.chip)
        vdie = parsers.dashed(board.get("VDie ID", "") or board.get("DDie ID", ""))
        if vdie:
            self.state.uuids[slot] = vdie
        uuid = self.state.uuids.get(slot, slot)
        serial = board.get("Serial Number", "")
        serial = "" if serial in ("NA", "-") else serial
        return Device(uuid=uuid, index=index, slot=slot, serial=serial, model=chip.name)

    def _report_identity(self, chip: Chip, device: Device, outputs: OutputCache) -> None:
        board = parsers.block_of(outputs.text(board_key(chip)), chip.chip)
        firmware = board.get("Firmware Version", "")
        vdie = device.uuid if device.uuid != device.slot else ""
        labels = (device.serial, chip.bus_id, chip.name, "", firmware, vdie)
        self._readings.add(accelerators.INFO, 1, VENDOR, device.index, device.uuid, *labels)

    def _update_inventory(self, table: Table, chips: dict[Device, Chip], on_pci: set[str]) -> None:
        state, readings = self.state, self._readings
        known = [entry.device for entry in state.inventory.known]
        unread = explain(known, chips, table, on_pci, self._may_be_on_bus)
        state.inventory = state.inventory.seen(
            [device for device, chip in chips.items() if not chip.failed],
            set(),
            unread.codes.keys(),
            readings.forgotten,
            {},
            time.time(),
            unread.codes,
        )
        accelerators.report(state.inventory, VENDOR, readings)
        send_accelerators(readings, VENDOR, state.inventory)
        reported = {entry.device.uuid for entry in state.inventory.known}
        for device in unread.failed:
            if device.uuid not in reported:
                code = unread.codes[device.uuid]
                readings.add(accelerators.ERROR_INFO, 1, VENDOR, device.index, device.uuid, code)
        readings.add(accelerators.UNREADABLE, len(unread.slots), VENDOR)
        if unread.slots and self._problem is None:
            text = f"npu-smi lists no data of the NPUs at {', '.join(sorted(unread.slots))}"
            self._problem = ProbeError("unreadable", text)

    def _may_be_on_bus(self, bus_id: str) -> bool:
        on_bus = exists(self.host.sys(f"bus/pci/devices/{bus_id}"))
        return not self._bus_listed or on_bus is not False
