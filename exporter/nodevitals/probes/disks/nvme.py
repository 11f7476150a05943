"""NVMe health: the log page SMART / Health Information, and the temperature limit.

In: a controller's character device. Out: `Health`. The commands go through the kernel's admin
passthrough (linux/nvme_ioctl.h), which takes CAP_SYS_ADMIN; they read, and change nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from typing import ClassVar, Optional

import msgspec

from nodevitals.probes.disks.families import WARNINGS
from nodevitals.probes.disks.health import Health, HealthError

PAGE_BYTES = 512
IDENTIFY_BYTES = 4096
_GET_LOG_PAGE, _IDENTIFY = 0x02, 0x06
_HEALTH_PAGE, _CONTROLLER = 0x02, 0x01
_ALL_NAMESPACES = 0xFFFFFFFF
# One Data Unit of the page is 1000 times 512 bytes, whatever the block size.
_DATA_UNIT_BYTES = 512_000
_ZERO_CELSIUS_KELVIN = 273
_KELVIN = range(200, 474)  # -73 to 200 degrees Celsius; other values mean no sensor
_STATUS_CODE = 0x7FF
# Generic: Invalid Command Opcode, Invalid Field in Command. Specific: Invalid Log Page.
_UNSUPPORTED = (0x001, 0x002, 0x109)
_REASONS = {
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    # The device vanished since it was listed, or the container does not have it.
    errno.ENOENT: "device_file_missing",
    errno.ENODEV: "gone",
    errno.ENXIO: "gone",
    # Errors while the controller is not live; the probe `node` exposes that state.
    errno.EWOULDBLOCK: "gone",
}


class _AdminCommand(ctypes.Structure):
    """struct nvme_passthru_cmd."""

    _fields_: ClassVar = [
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("rsvd1", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("addr", ctypes.c_uint64),
        ("metadata_len", ctypes.c_uint32),
        ("data_len", ctypes.c_uint32),
        ("cdw10", ctypes.c_uint32),
        ("cdw11", ctypes.c_uint32),
        ("cdw12", ctypes.c_uint32),
        ("cdw13", ctypes.c_uint32),
        ("cdw14", ctypes.c_uint32),
        ("cdw15", ctypes.c_uint32),
        # 0 selects the kernel's own limit. After a shorter one, the kernel would reset the
        # controller.
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    ]


COMMAND_BYTES = ctypes.sizeof(_AdminCommand)
# _IOWR('N', 0x41, struct nvme_passthru_cmd): the size is a part of the number.
ADMIN_COMMAND = 3 << 30 | COMMAND_BYTES << 16 | ord("N") << 8 | 0x41


def read_health(path: str) -> Optional[Health]:
    """The health of the controller of this device file; None if it has no such page. The call
    may hang for ever. Raises HealthError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _failure(path, error) from None
    try:
        return _health(descriptor, path)
    finally:
        os.close(descriptor)


def _health(descriptor: int, path: str) -> Optional[Health]:
    last_dword = PAGE_BYTES // 4 - 1
    log_page = _AdminCommand(
        opcode=_GET_LOG_PAGE,
        nsid=_ALL_NAMESPACES,
        data_len=PAGE_BYTES,
        cdw10=last_dword << 16 | _HEALTH_PAGE,
    )
    page = _read(descriptor, path, log_page)
    if page is None:
        return None
    health = parse_health(page)
    identify = _AdminCommand(opcode=_IDENTIFY, data_len=IDENTIFY_BYTES, cdw10=_CONTROLLER)
    try:
        data = _read(descriptor, path, identify)
    except HealthError:
        data = None  # the limit is optional, the page is not
    limit = None if data is None else parse_temperature_limit(data)
    return msgspec.structs.replace(health, temperature_limit=limit)


def _read(descriptor: int, path: str, command: _AdminCommand) -> Optional[bytes]:
    """The data of an admin command; None where the controller does not support it."""
    data = ctypes.create_string_buffer(command.data_len)
    command.addr = ctypes.addressof(data)
    try:
        # Releases the GIL while it waits.
        status = fcntl.ioctl(descriptor, ADMIN_COMMAND, command, True)
    except OSError as error:
        raise _failure(path, error) from None
    if status & _STATUS_CODE in _UNSUPPORTED:
        return None
    if status != 0:
        raise HealthError("io_error", f"{path}: NVMe status 0x{status:x}")
    return data.raw


def _failure(path: str, error: OSError) -> HealthError:
    reason = _REASONS.get(error.errno or 0, "io_error")
    return HealthError(reason, f"{path}: {error.strerror}")


def parse_health(page: bytes) -> Health:
    """The page of 512 bytes. Raises HealthError: `malformed`.

    A controller that fell off the bus returns a page of ones.
    """
    if len(page) != PAGE_BYTES or page in (b"\xff" * PAGE_BYTES, bytes(PAGE_BYTES)):
        raise HealthError("malformed", "the health page has no content")
    kelvin = int.from_bytes(page[1:3], "little")
    hours, read, written = _count(page, 128), _count(page, 32), _count(page, 48)
    return Health(
        warnings={name: bool(page[0] >> bit & 1) for bit, name in enumerate(WARNINGS)},
        temperature=kelvin - _ZERO_CELSIUS_KELVIN if kelvin in _KELVIN else None,
        spare=_share(page[3]),
        spare_threshold=_share(page[4]),
        used=page[5] / 100,  # 255 means 255 or more
        read_bytes=None if read is None else read * _DATA_UNIT_BYTES,
        written_bytes=None if written is None else written * _DATA_UNIT_BYTES,
        power_on_seconds=None if hours is None else hours * 3600,
        unsafe_shutdowns=_count(page, 144),
        media_errors=_count(page, 160),
        error_log_entries=_count(page, 176),
    )


def parse_temperature_limit(identify: bytes) -> Optional[float]:
    """WCTEMP of the data structure Identify Controller, in degrees Celsius; None where the
    controller does not report it.
    """
    kelvin = int.from_bytes(identify[266:268], "little")
    return kelvin - _ZERO_CELSIUS_KELVIN if kelvin in _KELVIN else None


def _count(page: bytes, offset: int) -> Optional[float]:
    """A number of 16 bytes; None for all ones, which some firmware returns for a value that it does
    not count.
    """
    number = int.from_bytes(page[offset : offset + 16], "little")
    return None if number == (1 << 128) - 1 else float(number)


def _share(percent: int) -> Optional[float]:
    return percent / 100 if percent <= 100 else None
