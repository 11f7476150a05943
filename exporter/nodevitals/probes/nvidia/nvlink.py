"""NVLink of a GPU: its links, their errors, and its registration with the NVLink fabric.

Field ids and their generations: nvml.h. The old summed fields (32 to 59, 148 to 160) are always 0
on Hopper, so they are not read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.families import (
    FABRIC_FAULT,
    FABRIC_FAULTS,
    FABRIC_HEALTHY,
    FABRIC_STATE,
    FABRIC_STATES,
    NVLINK_ERRORS,
    NVLINK_UP,
)
from nodevitals.probes.nvidia.nvml import Field, FieldReader, Handle, query

# By link. Hopper has the first three, Blackwell the rest; older GPUs have functions instead.
_ERROR_FIELDS: tuple[tuple[str, int], ...] = (
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
_FUNCTION_KINDS = ("replay", "recovery", "crc", "crc_data", "ecc_data")
_FABRIC_NOT_SUPPORTED = 0
_FABRIC_COMPLETED = 3


class NvlinkReader:
    """Reads the links of one GPU; `by_link` means errors of each link instead of their sum."""

    def __init__(self, by_link: bool) -> None:
        self._by_link = by_link
        self._fields: FieldReader | None = None
        self._links = 0
        self._summed: dict[tuple[str, str], int] = {}

    def read(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> list[int]:
        """Read all links; 1 for each that is active, 0 for the others. Raises LostError."""
        states = list(_states(handle, self._links))
        self._links = max(self._links, len(states))
        if states and self._fields is None:
            codes = [code for _, code in _ERROR_FIELDS]
            self._fields = FieldReader([(code, link) for link, _ in states for code in codes])
        fields = self._fields.read(handle) if self._fields else {}
        for link, state in states:
            readings.add(NVLINK_UP, state, *labels, str(link))
        counts: dict[tuple[str, str], list[float]] = {}
        for link, _ in states:
            for kind, count in _errors(handle, link, fields).items():
                key = (str(link) if self._by_link else "", kind)
                counts.setdefault(key, []).append(count)
        for key, parts in counts.items():
            # A sum without one of its links would fall, and be an increase when the link is back.
            self._summed[key] = max(self._summed.get(key, 0), len(parts))
            if len(parts) == self._summed[key]:
                readings.add(NVLINK_ERRORS, sum(parts), *labels, *key)
        return [state for _, state in states]


def _states(handle: Handle, known: int) -> Iterator[tuple[int, int]]:
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = query(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is not None:
            yield link, int(state)
        elif link >= known:  # no such link; GetNvLinkCapability succeeds for every number
            return


def _errors(handle: Handle, link: int, fields: dict[Field, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind, code in _ERROR_FIELDS:
        value = fields.get((code, link))
        if value is not None:
            found.setdefault(kind, value)
    if not found:
        for number, kind in enumerate(_FUNCTION_KINDS):
            value = query(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, number)
            if value is not None:
                found[kind] = value
    return found


def read_fabric(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Read the registration with the fabric, and the fabric's health. Raises LostError."""
    summary: int | None = None
    for structure in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = structure()
        if query(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is not None:
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
        value = mask >> 2 * number & 3  # 0: not supported, 1: true, 2: false
        if value in (1, 2):
            readings.add(FABRIC_FAULT, value == 1, *labels, fault)
    configuration = mask >> 8 & 15  # 0: not supported, 1: correct, others: what is wrong
    if configuration:
        readings.add(FABRIC_FAULT, configuration > 1, *labels, FABRIC_FAULTS[-1])
