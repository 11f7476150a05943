"""NVLink of a GPU: its links and their errors.

Field ids and their generations: nvml.h. The old summed fields (32 to 59, 148 to 160) are always 0
on Hopper, so they are not read.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.families import NVLINK_ERRORS, NVLINK_UP
from nodevitals.probes.nvidia.nvml import Failure, Field, FieldReader, Handle, call, raise_if_lost

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
    """Number of links whose state was read, of those that are active, and of those whose state
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

    def read(
        self,
        handle: Handle,
        fields: dict[Field, float],
        readings: Readings,
        labels: tuple[str, ...],
    ) -> Links:
        """Read all links; `fields` has the value of LINK_COUNT. Raises LostError."""
        states, whole = self._read_states(handle, int(fields.get(LINK_COUNT, 0)))
        if not states:
            return Links(0, 0, 0)
        for link, state in states.items():
            readings.add(NVLINK_UP, state, *labels, str(link))
        for link in states.keys() - self._asked:
            self._fields.add(_error_fields(link))
            self._asked.add(link)
        values = self._fields.read(handle)
        errors = {link: self._read_errors(handle, link, values) for link in states}
        if self._by_link:
            for link, counts in errors.items():
                for kind, count in counts.items():
                    readings.add(NVLINK_ERRORS, count, *labels, str(link), kind)
        elif whole:
            self._add_sums(errors, states, readings, labels)
        known = [state for state in states.values() if state is not None]
        return Links(len(known), sum(known), len(states) - len(known))

    def _read_states(self, handle: Handle, count: int) -> tuple[dict[int, int | None], bool]:
        """1 for each link that is active, 0 for the others, None where that cannot be read; and
        whether these are all links.
        """
        states: dict[int, int | None] = {}
        self._links = max(self._links, count)
        for link in range(self._links if count else pynvml.NVML_NVLINK_MAX_LINKS):
            state = call(pynvml.nvmlDeviceGetNvLinkState, handle, link)
            if not isinstance(state, Failure):
                states[link] = int(state == pynvml.NVML_FEATURE_ENABLED)
                self._links = max(self._links, link + 1)
                continue
            raise_if_lost([state])
            if link >= self._links:  # GetNvLinkCapability succeeds for links that do not exist
                return states, state.unsupported
            states[link] = None
        return states, True

    def _read_errors(
        self, handle: Handle, link: int, values: dict[Field, float]
    ) -> dict[str, float | None]:
        """The counts of one link, None where they cannot be read, without those it lacks."""
        found: dict[str, float | None] = {}
        for (kind, _), field in zip(_ERROR_FIELDS, _error_fields(link)):
            if found.get(kind) is None and (field in values or not self._fields.lacks(field)):
                found[kind] = values.get(field)
        return found or _read_old_errors(handle, link)

    def _add_sums(
        self,
        errors: dict[int, dict[str, float | None]],
        states: dict[int, int | None],
        readings: Readings,
        labels: tuple[str, ...],
    ) -> None:
        """Add the sums of all links. A sum without one of its links would fall, and be an increase
        when the link is back: a kind is missing where it is for a link that is active or unknown,
        or where more links had it before. The counts of a link that is down may be absent.
        """
        for kind in {kind: None for counts in errors.values() for kind in counts}:
            parts = [counts[kind] for counts in errors.values() if kind in counts]
            needed = [link for link, state in states.items() if state != 0]
            self._summed[kind] = max(self._summed.get(kind, 0), len(parts))
            read = [part for part in parts if part is not None]
            whole = len(read) == self._summed[kind]
            if whole and all(kind in errors[link] for link in needed):
                readings.add(NVLINK_ERRORS, sum(read), *labels, "", kind)


def _read_old_errors(handle: Handle, link: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for number, kind in enumerate(_FUNCTION_KINDS):
        result = call(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, number)
        if not isinstance(result, Failure):
            found[kind] = result
            continue
        raise_if_lost([result])
        if not result.unsupported:
            found[kind] = None
    return found
