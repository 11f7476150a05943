"""NVLink of a GPU: its links, their errors, and its registration with the NVLink fabric.

Field ids and their generations: nvml.h. The old summed fields (32 to 59, 148 to 160) are always 0
on Hopper, so they are not read.

nvmlDeviceGetGpuFabricInfo or …V fills a structure. Bits 8 to 11 of its health mask are
NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION of nvml.h: 0 not supported, 1 correct, from 2 on
the values of FABRIC_CONFIGURATIONS in this order. The health summary came with driver 580, the
health mask with 550; the function without a version has the state only. docs/nvml-fields.md has
more such differences.
"""

from __future__ import annotations

import ctypes
import uuid
from functools import cache
from typing import Any, NamedTuple

import pynvml

from nodevitals.probes.nvidia.families import (
    FABRIC_CONFIGURATIONS,
    FABRIC_FAULT,
    FABRIC_FAULTS,
    FABRIC_HEALTHY,
    FABRIC_INFO,
    FABRIC_MISCONFIGURATION,
    FABRIC_STATE,
    FABRIC_STATES,
    NVLINK_ERRORS,
    NVLINK_UP,
)
from nodevitals.probes.nvidia.nvml import Failure, Field, FieldReader, GpuReadings

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

LINK_COUNT: Field = (pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0)


@cache
def _error_fields(link: int) -> tuple[Field, ...]:
    """The fields of _ERROR_FIELDS for one link: the same objects for all GPUs."""
    return tuple((code, link) for _, code in _ERROR_FIELDS)


class Links(NamedTuple):
    """Number of links whose state was read, number of active links, and number of links whose state
    could not be read.
    """

    read: int
    up: int
    unreadable: int


class NvlinkReader:
    """Reads the links of one GPU; `by_link` means errors of each link instead of their sum."""

    def __init__(self, by_link: bool) -> None:
        self._by_link = by_link
        self._fields = FieldReader()
        self._links = 0
        self._asked: set[int] = set()
        self._summed: dict[str, int] = {}

    def read(self, gpu: GpuReadings, fields: dict[Field, float]) -> Links:
        """Read all links; `fields` has the value of LINK_COUNT. Raises LostError."""
        states, whole = self._read_states(gpu, int(fields.get(LINK_COUNT, 0)))
        if not states:
            return Links(0, 0, 0)
        for link, state in states.items():
            gpu.add(NVLINK_UP, state, str(link))
        for link in states.keys() - self._asked:
            self._fields.add(_error_fields(link))
            self._asked.add(link)
        values = self._fields.read(gpu)
        errors = {link: self._read_errors(gpu, link, values) for link in states}
        if self._by_link:
            for link, counts in errors.items():
                for kind, count in counts.items():
                    gpu.add(NVLINK_ERRORS, count, str(link), kind)
        elif whole:
            self._add_sums(gpu, errors, states)
        known = [state for state in states.values() if state is not None]
        return Links(len(known), sum(known), len(states) - len(known))

    def _read_states(self, gpu: GpuReadings, count: int) -> tuple[dict[int, int | None], bool]:
        """1 for each active link, 0 for the others, None for a link that cannot be read; and
        whether these are all links.
        """
        states: dict[int, int | None] = {}
        self._links = max(self._links, count)
        for link in range(self._links if count else pynvml.NVML_NVLINK_MAX_LINKS):
            state = gpu.call(pynvml.nvmlDeviceGetNvLinkState, link)
            if not isinstance(state, Failure):
                states[link] = int(state == pynvml.NVML_FEATURE_ENABLED)
                self._links = max(self._links, link + 1)
                continue
            if link >= self._links:  # GetNvLinkCapability succeeds for links that do not exist
                return states, state.unsupported
            states[link] = None
        return states, True

    def _read_errors(
        self, gpu: GpuReadings, link: int, values: dict[Field, float]
    ) -> dict[str, float | None]:
        """The counts of one link, None for those that cannot be read, without those it lacks."""
        counts: dict[str, float | None] = {}
        for (kind, _), field in zip(_ERROR_FIELDS, _error_fields(link)):
            if counts.get(kind) is None and (field in values or not self._fields.lacks(field)):
                counts[kind] = values.get(field)
        return counts or _read_old_errors(gpu, link)

    def _add_sums(
        self,
        gpu: GpuReadings,
        errors: dict[int, dict[str, float | None]],
        states: dict[int, int | None],
    ) -> None:
        """Add the sums of all links. A sum without one of its links would decrease, and increase
        again when the link is back. So a kind is missing if it is missing for a link that is active
        or unknown, or if more links had it before. The counts of a link that is down may be absent.
        """
        for kind in {kind: None for counts in errors.values() for kind in counts}:
            parts = [counts[kind] for counts in errors.values() if kind in counts]
            needed = [link for link, state in states.items() if state != 0]
            self._summed[kind] = max(self._summed.get(kind, 0), len(parts))
            read = [part for part in parts if part is not None]
            whole = len(read) == self._summed[kind]
            if whole and all(kind in errors[link] for link in needed):
                gpu.add(NVLINK_ERRORS, sum(read), "", kind)


def _read_old_errors(gpu: GpuReadings, link: int) -> dict[str, float | None]:
    counts: dict[str, float | None] = {}
    for number, kind in enumerate(_FUNCTION_KINDS):
        result = gpu.call(pynvml.nvmlDeviceGetNvLinkErrorCounter, link, number)
        if not isinstance(result, Failure):
            counts[kind] = result
            continue
        if not result.unsupported:
            counts[kind] = None
    return counts


_NOT_SUPPORTED = 0
_COMPLETED = 3
_TRUE, _FALSE = 1, 2
_CORRECT_CONFIGURATION = 1
_FIRST_INCORRECT = 2


def read_fabric(gpu: GpuReadings) -> None:
    """Read the registration with the fabric, and the fabric's health. Raises LostError."""
    info = _read_newest(gpu)
    if info is None or info.state == _NOT_SUPPORTED:
        return
    state = FABRIC_STATES[min(info.state, _COMPLETED) - 1]
    if info.state == _COMPLETED and info.status != pynvml.NVML_SUCCESS:
        state = "failed"
    gpu.add(FABRIC_STATE, 1, state)
    _add_place(gpu, info)
    faults = _faults(getattr(info, "healthMask", 0))
    for fault, present in faults.items():
        gpu.add(FABRIC_FAULT, present, fault)
    summary = getattr(info, "healthSummary", 0)
    if summary:
        gpu.add(FABRIC_HEALTHY, summary == pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY)
    elif faults:
        gpu.add(FABRIC_HEALTHY, not any(faults.values()))


def _add_place(gpu: GpuReadings, info: Any) -> None:
    """Report cluster, clique and misconfiguration of a structure that NVML filled."""
    cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
    if cluster.int:
        gpu.add(FABRIC_INFO, 1, str(cluster), str(info.cliqueId))
    value = getattr(info, "healthMask", 0) >> 8 & 15
    if value >= _FIRST_INCORRECT:
        position = min(value - _FIRST_INCORRECT, len(FABRIC_CONFIGURATIONS) - 1)
        gpu.add(FABRIC_MISCONFIGURATION, 1, FABRIC_CONFIGURATIONS[position])


def _read_newest(gpu: GpuReadings) -> Any:
    """The newest structure that the driver fills; None if none can be read."""
    for function, info in (
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v3_t()),
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t()),
        (pynvml.nvmlDeviceGetGpuFabricInfo, pynvml.c_nvmlGpuFabricInfo_t()),
    ):
        result = gpu.call(function, ctypes.byref(info))
        if not isinstance(result, Failure):
            return info
        if not result.unsupported:
            return None
    return None


def _faults(mask: int) -> dict[str, bool]:
    """Whether the mask reports a fault, by fault."""
    faults = {}
    for number, fault in enumerate(FABRIC_FAULTS[:-1]):
        value = mask >> 2 * number & 3
        if value in (_TRUE, _FALSE):
            faults[fault] = value == _TRUE
    configuration = mask >> 8 & 15  # 0: not supported; others than 1: what is wrong
    if configuration:
        faults[FABRIC_FAULTS[-1]] = configuration != _CORRECT_CONFIGURATION
    return faults
