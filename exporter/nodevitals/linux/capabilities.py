"""Capabilities that only the workers of some probes keep: capabilities(7).

In: the environment variable NODEVITALS_CAPABILITIES, `PROBE=NAME,NAME PROBE=NAME`. Out: a process
without the capabilities that the variable names only for other probes. Without the variable, every
worker has the agent's capabilities: a site's own scripts may need them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import ClassVar

from nodevitals.linux.process import forbid_new_privileges

VARIABLE = "NODEVITALS_CAPABILITIES"
# linux/capability.h
NUMBERS = {
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "IPC_LOCK": 14,
    "SYS_RAWIO": 17,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_NICE": 23,
    "SYSLOG": 34,
    "PERFMON": 38,
    "BPF": 39,
}
_VERSION_3 = 0x20080522
_WORD_BITS = 32

Kept = Mapping[str, frozenset[str]]
"""The capabilities by probe."""


class _Header(ctypes.Structure):
    """struct __user_cap_header_struct."""

    _fields_: ClassVar = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    """struct __user_cap_data_struct."""

    _fields_: ClassVar = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def parse_kept(text: str) -> Kept:
    """The capabilities that each probe keeps. Raises ValueError with what to write instead."""
    kept: dict[str, frozenset[str]] = {}
    for word in text.split():
        probe, equals, names = word.partition("=")
        capabilities = frozenset(names.split(","))
        if not (probe and equals and names):
            raise ValueError(f"{word!r}: write it like disks=SYS_ADMIN,SYS_RAWIO")
        if probe in kept:
            raise ValueError(f"{probe} is listed twice: remove one")
        if unknown := sorted(capabilities - NUMBERS.keys()):
            known = ", ".join(sorted(NUMBERS))
            raise ValueError(f"{unknown[0]!r} is no capability that can be kept; known: {known}")
        kept[probe] = capabilities
    return kept


def kept_by_environment() -> Kept:
    """The capabilities by the environment variable. Raises ValueError as `parse_kept`."""
    return parse_kept(os.environ.get(VARIABLE, ""))


def surplus(kept: Kept, probe: str) -> frozenset[str]:
    """The capabilities that a worker of this probe gives up: those named only for others."""
    named: frozenset[str] = frozenset().union(*kept.values())
    return named - kept.get(probe, frozenset())


def keep_own(probe: str) -> None:
    """Give up the capabilities that the variable names only for other probes; programs that this
    process starts do not get them back. Raises OSError where the kernel refuses, ValueError for a
    wrong text.
    """
    names = surplus(kept_by_environment(), probe)
    if not names:
        return
    # A program that root executes would get them back from the bounding set.
    forbid_new_privileges()
    drop(names)


def drop(names: frozenset[str]) -> None:
    """Remove capabilities from this thread, also those that it may pass on. Raises OSError: `EPERM`
    where a filter of system calls denies capset.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    _check(libc.capget(ctypes.byref(header), sets), "capget")
    for name in names:
        word, bit = divmod(NUMBERS[name], _WORD_BITS)
        mask = ~(1 << bit)
        capability_set = sets[word]
        capability_set.effective &= mask
        capability_set.permitted &= mask
        capability_set.inheritable &= mask
    _check(libc.capset(ctypes.byref(header), sets), "capset")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
