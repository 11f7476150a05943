"""What the probe `nvidia` reads of one card, and the families it goes to.

Nothing is taken for supported: each call's absence is its family's absence and nothing else.
Field ids and their generations: nvml.h. NVLink's old summed fields (32 to 59, 148 to 160) answer
0 on Hopper whatever happened, so they are not asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ECC_KINDS, ECC_LIFETIMES
from nodevitals.probes.kernel_log.xid import RECOVERY_ACTIONS
from nodevitals.probes.nvidia.families import (
    FABRIC_FAULT,
    FABRIC_FAULTS,
    FABRIC_HEALTHY,
    FABRIC_STATE,
    FABRIC_STATES,
    MEMORY_TEMPERATURE,
    MODE_INFO,
    NVLINK_ERRORS,
    NVLINK_UP,
    PCIE_GENERATION,
    PCIE_GENERATION_MAX,
    PCIE_REPLAYS,
    PCIE_WIDTH,
    PCIE_WIDTH_MAX,
    POWER_LIMIT,
    RECOVERY_ACTION,
    REMAPPED_ROWS,
    RETIRED_PAGES,
    RETIRED_PAGES_PENDING,
    ROW_REMAP_FAILURE,
    ROW_REMAP_PENDING,
    SLOWDOWN_ACTIVE,
    SLOWDOWN_SECONDS,
    SM_CLOCK,
    SRAM_THRESHOLD,
    TEMPERATURE_MARGIN,
    VENDOR,
)
from nodevitals.probes.nvidia.nvml import Field, FieldReader, Found, Handle, ask

_RECOVERY: Field = (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
_MEMORY_TEMPERATURE: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)
# Nanoseconds. The last is older cards' only thermal one.
_SLOWDOWN_FIELDS: tuple[tuple[str, Field], ...] = (
    ("sw_power_cap", (pynvml.NVML_FI_DEV_PERF_POLICY_POWER, 0)),
    ("sw_thermal", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0)),
    ("hw_thermal", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0)),
    ("hw_power_brake", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0)),
)
_OLD_THERMAL: Field = (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL, 0)
# The power cap (0x4) is how a busy card works: its seconds say more than its bit.
_SLOWDOWN_BITS = (("hw_thermal", 0x40), ("hw_power_brake", 0x80), ("sw_thermal", 0x20))
# Set together with the first two of these, which say more; alone on cards that do not have them.
_HW_SLOWDOWN_BIT, _HW_REASONS = 0x8, 0x40 | 0x80
# By link. Hopper has the first three, Blackwell the rest; before Hopper functions tell.
_NVLINK_FIELDS: tuple[tuple[str, int], ...] = (
    ("replay", pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
    ("recovery", pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
    ("crc", pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
    ("malformed_packet", pynvml.NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS),
    ("buffer_overrun", pynvml.NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS),
    ("receive", pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
    ("receive_remote", pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS),
    ("receive_general", pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS),
    ("local_link_integrity", pynvml.NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS),
    ("transmit_discard", pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS),
    ("recovery_failed", pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
    ("recovery", pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS),
    ("effective", pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS),
    ("symbol", pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS),
)
_NVLINK_FUNCTION_KINDS = ("replay", "recovery", "crc", "crc_data", "ecc_data")
_SRAM = 7
_SRAM_AND_DRAM = (("sram", _SRAM), ("dram", 2))
_OLD_LOCATIONS = (
    *(("l1_cache", 0), ("l2_cache", 1), ("dram", 2), ("register_file", 3)),
    *(("texture_memory", 4), ("shared_memory", 5), ("cbu", 6)),
)
_FABRIC_NOT_SUPPORTED = 0
_FABRIC_COMPLETED = 3


class Told(NamedTuple):
    """What the probe itself needs of a card that was read."""

    links: int
    links_up: int
    recovery: str


class CardReader:
    """Reads one card, and remembers for it what it does not have."""

    def __init__(self, links_apart: bool) -> None:
        self._links_apart = links_apart
        self._locations: tuple[tuple[str, int], ...] = ()
        fields = [_RECOVERY, _MEMORY_TEMPERATURE, _OLD_THERMAL]
        self._fields = FieldReader([*fields, *(field for _, field in _SLOWDOWN_FIELDS)])
        self._link_fields: FieldReader | None = None
        self._links = 0
        self._summed: dict[tuple[str, str], int] = {}

    def read(self, card: Found, readings: Readings) -> Told:
        """Read everything the card tells. Raises LostError."""
        labels = (str(card.index), card.uuid)
        handle = card.handle
        fields = self._fields.read(handle)
        _load(handle, readings, labels)
        self._ecc(handle, readings, labels)
        _sram_threshold(handle, readings, labels)
        _repairs(handle, readings, labels)
        links = self._nvlink(handle, readings, labels)
        _fabric(handle, readings, labels)
        _pcie(handle, readings, labels)
        _slowdown(handle, fields, readings, labels)
        readings.add(MEMORY_TEMPERATURE, fields.get(_MEMORY_TEMPERATURE), *labels)
        return Told(len(links), sum(links), _recovery(fields, readings, labels))

    def _ecc(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
        # Settled once: were a location to fail for a moment, its count must not turn up in another.
        self._locations = self._locations or _ecc_locations(handle)
        for kind_number, kind in enumerate(ECC_KINDS):
            for lifetime_number, lifetime in enumerate(ECC_LIFETIMES):
                which = (handle, kind_number, lifetime_number)
                series = (VENDOR, *labels, kind, lifetime)
                for name, number in self._locations:
                    count = ask(pynvml.nvmlDeviceGetMemoryErrorCounter, *which, number)
                    readings.add(accelerators.ECC_ERRORS, count, *series, name)
                if not self._locations:
                    count = ask(pynvml.nvmlDeviceGetTotalEccErrors, *which)
                    readings.add(accelerators.ECC_ERRORS, count, *series, "all")

    def _nvlink(
        self,
        handle: Handle,
        readings: Readings,
        labels: tuple[str, ...],
    ) -> list[int]:
        states = list(_link_states(handle, self._links))
        self._links = max(self._links, len(states))
        if states and self._link_fields is None:
            codes = [code for _, code in _NVLINK_FIELDS]
            self._link_fields = FieldReader([(code, link) for link, _ in states for code in codes])
        fields = self._link_fields.read(handle) if self._link_fields else {}
        for link, state in states:
            readings.add(NVLINK_UP, state, *labels, str(link))
        counts: dict[tuple[str, str], list[float]] = {}
        for link, _ in states:
            for kind, count in _link_errors(handle, link, fields).items():
                key = (str(link) if self._links_apart else "", kind)
                counts.setdefault(key, []).append(count)
        for key, parts in counts.items():
            # A sum that lacks a link for a moment would fall, and be an increase when it is back.
            self._summed[key] = max(self._summed.get(key, 0), len(parts))
            if len(parts) == self._summed[key]:
                readings.add(NVLINK_ERRORS, sum(parts), *labels, *key)
        return [state for _, state in states]


def _link_states(handle: Handle, known: int) -> Iterator[tuple[int, int]]:
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is not None:
            yield link, int(state)
        elif link >= known:  # no such link; GetNvLinkCapability says yes to all of them
            return


def _link_errors(handle: Handle, link: int, fields: dict[Field, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind, code in _NVLINK_FIELDS:
        value = fields.get((code, link))
        if value is not None:
            found.setdefault(kind, value)
    if not found:
        for number, kind in enumerate(_NVLINK_FUNCTION_KINDS):
            value = ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, number)
            if value is not None:
                found[kind] = value
    return found


def _load(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Utilisation, memory, temperature, power, clocks, modes, processes."""
    both = (VENDOR, *labels)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    readings.add(accelerators.UTILIZATION, rates and rates.gpu / 100, *both)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    memory = memory or ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None:
        readings.add(accelerators.MEMORY_USED, memory.used, *both)
        readings.add(accelerators.MEMORY_TOTAL, memory.total, *both)
    temperature = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    readings.add(accelerators.TEMPERATURE, temperature, *both)
    readings.add(TEMPERATURE_MARGIN, _margin(handle, temperature), *labels)
    readings.add(
        accelerators.POWER, _scaled(ask(pynvml.nvmlDeviceGetPowerUsage, handle), 1e-3), *both
    )
    limit = _scaled(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3)
    readings.add(POWER_LIMIT, limit, *labels)
    clock = _scaled(ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM), 1e6)
    readings.add(SM_CLOCK, clock, *labels)
    processes = ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    readings.add(accelerators.PROCESSES, None if processes is None else len(processes), *both)
    modes = (
        ask(pynvml.nvmlDeviceGetPersistenceMode, handle),
        (ask(pynvml.nvmlDeviceGetMigMode, handle) or [None])[0],
        (ask(pynvml.nvmlDeviceGetEccMode, handle) or [None])[0],
    )
    words = ("" if mode is None else "on" if mode else "off" for mode in modes)
    readings.add(MODE_INFO, 1, *labels, *words)


def _margin(handle: Handle, temperature: int | None) -> float | None:
    """Hopper and later tell the margin, and no threshold; before it is the other way round."""
    told = ask(pynvml.nvmlDeviceGetMarginTemperature, handle)
    if told is not None:
        return float(told)
    threshold = ask(
        pynvml.nvmlDeviceGetTemperatureThreshold,
        handle,
        pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    )
    if threshold is None or temperature is None:
        return None
    return float(threshold - temperature)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _sram_threshold(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    call = pynvml.nvmlDeviceGetSramEccErrorStatus  # for root only
    if ask(call, handle, ctypes.byref(status)) is not None:
        readings.add(SRAM_THRESHOLD, bool(status.bThresholdExceeded), *labels)


def _ecc_locations(handle: Handle) -> tuple[tuple[str, int], ...]:
    """What a card counts apart: SRAM and DRAM since Ampere, each structure before it."""

    def answers(number: int) -> bool:
        return ask(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, 1, 0, number) is not None

    if answers(_SRAM):
        return _SRAM_AND_DRAM
    return tuple((name, number) for name, number in _OLD_LOCATIONS if answers(number))


def _repairs(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    remapped = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    if remapped is not None:
        corrected, uncorrected, pending, failed = remapped
        readings.add(REMAPPED_ROWS, corrected, *labels, "corrected")
        readings.add(REMAPPED_ROWS, uncorrected, *labels, "uncorrected")
        readings.add(ROW_REMAP_PENDING, bool(pending), *labels)
        readings.add(ROW_REMAP_FAILURE, bool(failed), *labels)
        return  # what remaps rows retires no pages
    for number, cause in enumerate(RETIRED_PAGES.closed["cause"]):
        pages = ask(pynvml.nvmlDeviceGetRetiredPages, handle, number)
        readings.add(RETIRED_PAGES, None if pages is None else len(pages), *labels, cause)
    pending = ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    readings.add(RETIRED_PAGES_PENDING, pending, *labels)


def _fabric(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    summary: int | None = None
    for structure in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = structure()
        call = pynvml.nvmlDeviceGetGpuFabricInfoV
        if ask(call, handle, ctypes.byref(info)) is not None:
            summary = getattr(info, "healthSummary", None)
            break
    else:
        return
    if info.state == _FABRIC_NOT_SUPPORTED:
        return
    state = FABRIC_STATES[min(info.state, _FABRIC_COMPLETED) - 1]
    if info.state == _FABRIC_COMPLETED and info.status != pynvml.NVML_SUCCESS:
        state = "failed"
    readings.add(FABRIC_STATE, 1, *labels, state)
    if summary:
        readings.add(FABRIC_HEALTHY, summary == 1, *labels)
    mask = info.healthMask
    for number, fault in enumerate(FABRIC_FAULTS[:-1]):
        told = mask >> 2 * number & 3  # 0: not supported, 1: true, 2: false
        if told in (1, 2):
            readings.add(FABRIC_FAULT, told == 1, *labels, fault)
    configuration = mask >> 8 & 15  # 0: not supported, 1: none wrong, then which one is
    if configuration:
        readings.add(FABRIC_FAULT, configuration > 1, *labels, FABRIC_FAULTS[-1])


def _pcie(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    for family, function in (
        (PCIE_WIDTH, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        (PCIE_WIDTH_MAX, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        (PCIE_GENERATION, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        (PCIE_GENERATION_MAX, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        (PCIE_REPLAYS, pynvml.nvmlDeviceGetPcieReplayCounter),
    ):
        readings.add(family, ask(function, handle), *labels)


def _slowdown(
    handle: Handle, fields: dict[Field, float], readings: Readings, labels: tuple[str, ...]
) -> None:
    reasons = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:  # its name up to driver 530
        reasons = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if reasons is not None:
        for reason, bit in _SLOWDOWN_BITS:
            readings.add(SLOWDOWN_ACTIVE, bool(reasons & bit), *labels, reason)
        if reasons & _HW_SLOWDOWN_BIT and not reasons & _HW_REASONS:
            readings.add(SLOWDOWN_ACTIVE, 1, *labels, "hw_slowdown")
    known = [(reason, fields[field]) for reason, field in _SLOWDOWN_FIELDS if field in fields]
    if _OLD_THERMAL in fields and "sw_thermal" not in dict(known):
        known.append(("thermal", fields[_OLD_THERMAL]))
    for reason, nanoseconds in known:
        readings.add(SLOWDOWN_SECONDS, nanoseconds * 1e-9, *labels, reason)


def _recovery(fields: dict[Field, float], readings: Readings, labels: tuple[str, ...]) -> str:
    code = fields.get(_RECOVERY)
    if code is None:
        return ""
    known = RECOVERY_ACTIONS.get(int(code))
    readings.add(accelerators.HEALTHY, int(code) == 0, VENDOR, *labels)
    if known is None:
        return f"recovery_action_{int(code)}"
    readings.add(RECOVERY_ACTION, 1, *labels, *known)
    return known[0]
