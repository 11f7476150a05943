"""The memory of transceivers and cables, as their public tables describe it. All names and numbers
are invented.

Each function returns pages of 128 bytes by (I2C address, page, offset), with right checksums.
"""

from __future__ import annotations

import struct

FIRST, SECOND = 0x50, 0x51
Memory = dict[tuple[int, int, int], bytes]
LANE_WATTS = (1.1e-3, 1.2e-3, 1.3e-3, 1.4e-3)
LOW_WATTS = 0.2e-3


def put(data: bytearray, place: int, value: float, unit: float) -> None:
    """Write a value of 16 bits."""
    struct.pack_into(">H", data, place, round(value / unit) & 0xFFFF)


def write_text(data: bytearray, place: int, text: str, length: int = 16) -> None:
    data[place : place + length] = text.ljust(length).encode("latin-1")


def seal(data: bytearray, start: int, end: int, place: int) -> None:
    """Write a checksum."""
    data[place] = sum(data[start:end]) & 0xFF


def halves(data: bytearray, page: int = 0, address: int = FIRST) -> Memory:
    return {(address, page, 0): bytes(data[:128]), (address, page, 128): bytes(data[128:])}


def qsfp(
    watts: tuple[float, ...] = LANE_WATTS,
    copper: bool = False,
    serial: str = "TB0000001",
    **odd: int,
) -> Memory:
    """A QSFP28 (SFF-8636); `odd` are bytes by their place: `byte_147=0xA0`."""
    data, limits = bytearray(256), bytearray(256)
    data[0] = data[128] = 0x11
    put(data, 22, 45.5 * 256, 1)
    put(data, 26, 0 if copper else 3.3, 1e-4)
    for lane, value in enumerate(() if copper else watts):
        put(data, 34 + 2 * lane, value, 1e-7)
        put(data, 42 + 2 * lane, 7e-3, 2e-6)
        put(data, 50 + 2 * lane, 1e-3, 1e-7)
    data[147] = 0xA0 if copper else 0x00
    data[220] = 0x0C
    write_text(data, 148, "TESTBED OPTICS")
    write_text(data, 168, "TB-Q28-SR4")
    write_text(data, 196, serial)
    put(limits, 132, 70 * 256, 1)
    put(limits, 182, LOW_WATTS, 1e-7)
    put(limits, 198, 0.1e-3, 1e-7)
    for name, value in odd.items():
        data[int(name.removeprefix("byte_"))] = value
    seal(data, 128, 191, 191)
    seal(data, 192, 223, 223)
    return halves(data) | {(FIRST, 3, 128): bytes(limits[128:])}


def sfp(watts: float = 0.5e-3, diagnostics: int = 0x68, cable: int = 0) -> Memory:
    """An SFP+ (SFF-8472)."""
    data, sensors = bytearray(256), bytearray(256)
    data[0], data[8], data[92] = 0x03, cable, diagnostics
    write_text(data, 20, "TESTBED OPTICS")
    write_text(data, 40, "TB-SFP-LR")
    write_text(data, 68, "TB0000002")
    seal(data, 0, 63, 63)
    seal(data, 64, 95, 95)
    put(sensors, 4, 75 * 256, 1)
    put(sensors, 30, 0.1e-3, 1e-7)
    put(sensors, 38, 0.05e-3, 1e-7)
    put(sensors, 96, -2.5 * 256, 1)
    put(sensors, 98, 3.31, 1e-4)
    put(sensors, 100, 30e-3, 2e-6)
    put(sensors, 102, 0.6e-3, 1e-7)
    put(sensors, 104, watts, 1e-7)
    return halves(data) | {(SECOND, 0, 0): bytes(sensors[:128])}


def osfp(
    watts: tuple[float, ...] = LANE_WATTS, copper: bool = False, monitors: int = 0x0F
) -> Memory:
    """An OSFP with CMIS and as many lanes; `monitors` is byte 160 of page 1: a bias of twice the
    unit.
    """
    data = bytearray(256)
    offered, limits, lanes = bytearray(256), bytearray(256), bytearray(256)
    data[0] = data[128] = 0x19
    put(data, 14, 50.25 * 256, 1)
    put(data, 16, 3.25, 1e-4)
    data[2], data[85] = (0x80, 0x03) if copper else (0, 0x02)
    data[212] = 0x0A if copper else 0x04
    data[210] = 0xFF & ~((1 << len(watts)) - 1)
    write_text(data, 129, "TESTBED OPTICS")
    write_text(data, 148, "TB-OSFP-DR4")
    write_text(data, 166, "TB0000003")
    seal(data, 128, 222, 222)
    offered[160] = monitors
    seal(offered, 130, 255, 255)
    put(limits, 132, 75 * 256, 1)
    put(limits, 182, 0.3e-3, 1e-7)
    put(limits, 198, LOW_WATTS, 1e-7)
    seal(limits, 128, 255, 255)
    for lane, value in enumerate(watts):
        put(lanes, 154 + 2 * lane, 2e-3, 1e-7)
        put(lanes, 170 + 2 * lane, 120e-3, 4e-6)
        put(lanes, 186 + 2 * lane, value, 1e-7)
    upper = {1: offered, 2: limits, 0x11: lanes}
    pages = {(FIRST, page, 128): bytes(one[128:]) for page, one in upper.items()}
    return halves(data) | ({} if copper else pages)
