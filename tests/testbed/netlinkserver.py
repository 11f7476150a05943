"""The kernel's side of ethtool's netlink, for drivers that this machine has not.

`EthtoolKernel(folder)` is a context manager; `environment` lets an agent ask it. Requests are
checked as the kernel checks them; `interfaces` has what the drivers answer.
"""

from __future__ import annotations

import errno
import socket
import struct
import subprocess
import threading
from pathlib import Path

import msgspec

from testbed.modules import Memory

SOURCE = Path(__file__).with_name("ethtool.c")
FAMILY = 23
CONTROL, GET_FAMILY = 16, 3
FEC_GET, MODULE_EEPROM_GET = 29, 31
UNKNOWN = 2**64 - 1
CAP_NET_ADMIN = 12


class Driver(msgspec.Struct):
    """An interface's driver: the module's memory, None for an empty cage; the counts of forward
    error correction by attribute (2 corrected, 3 uncorrected, 4 bits), None where it has none;
    `histogram` has blocks by wrong symbols; `garbled` replaces the bytes of each answer.
    """

    memory: Memory | None = None
    counts: dict[int, int] | None = None
    histogram: dict[int, int] = {}
    error: int = 0
    silent: bool = False
    garbled: bytes | None = None


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Those of a request. Raises AssertionError where the kernel would refuse it."""
    found, place = {}, 0
    while place < len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        assert 4 <= length <= len(data) - place, "the length of an attribute"
        found[kind & 0x3FFF] = data[place + 4 : place + length]
        place += length + -length % 4
    return found


class EthtoolKernel:
    """A server on a UNIX socket, for the library that is made from ethtool.c."""

    def __init__(self, folder: Path) -> None:
        self.interfaces: dict[str, Driver] = {}
        self.asked: list[str] = []
        self._path = folder / "netlink"
        library = folder / "ethtool.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.environment = {"LD_PRELOAD": str(library), "NETLINK_SERVER": str(self._path)}

    def __enter__(self) -> EthtoolKernel:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(str(self._path))
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                    if not data:
                        return
                    for answer in self._answers(data, _may_administer(connection)):
                        connection.send(answer)
                except OSError:
                    return

    def _answers(self, data: bytes, permitted: bool) -> list[bytes]:
        length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
        command, version, _ = struct.unpack_from("=BBH", data, 16)
        assert (length, flags, version) == (len(data), 5, 1)
        body = attributes(data[20:])
        acknowledged = struct.pack("=IHHII", 36, 2, 0, sequence, 0) + bytes(4) + data[:16]
        if kind == CONTROL:
            assert (command, body) == (GET_FAMILY, {2: b"ethtool\0"})
            found = attribute(1, struct.pack("=H", FAMILY))
            return [_message(CONTROL, sequence, found), acknowledged]
        assert kind == FAMILY
        header = attributes(body[1])
        name = header[2].rstrip(b"\0").decode()
        self.asked.append(name)
        driver = self.interfaces.get(name)
        if driver is not None and driver.silent:
            return []
        try:
            if command == MODULE_EEPROM_GET and not permitted:
                raise OSError(errno.EPERM, "")
            if driver is None:
                raise OSError(errno.ENODEV, "")
            if driver.error:
                raise OSError(driver.error, "")
            answer = _read(driver, command, body, header)
        except OSError as error:
            number = struct.pack("=i", -(error.errno or 0))
            return [struct.pack("=IHHII", 36, 2, 0, sequence, 0) + number + data[:16]]
        if driver.garbled is not None:
            return [driver.garbled, acknowledged]
        return [_message(FAMILY, sequence, answer), acknowledged]


def _may_administer(connection: socket.socket) -> bool:
    """Whether the process that asks has CAP_NET_ADMIN: GENL_UNS_ADMIN_PERM of the kernel."""
    pid, _, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    status = Path(f"/proc/{pid}/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_NET_ADMIN & 1)


def _message(kind: int, sequence: int, body: bytes) -> bytes:
    return struct.pack("=IHHIIBBH", 20 + len(body), kind, 0, sequence, 0, 1, 1, 0) + body


def _read(driver: Driver, command: int, body: dict[int, bytes], header: dict[int, bytes]) -> bytes:
    if command == MODULE_EEPROM_GET:
        offset, length = (struct.unpack("=I", body[kind])[0] for kind in (2, 3))
        page, bank, address = (body[kind][0] for kind in (4, 5, 6))
        assert length == 128
        assert bank == 0
        assert offset in (0, 128)
        assert page == 0 or offset == 128
        if driver.memory is None:
            raise OSError(errno.EIO, "")
        if (address, page, offset) not in driver.memory:
            raise OSError(errno.EINVAL, "")
        return attribute(7, driver.memory[address, page, offset])
    assert command == FEC_GET
    assert header[3] == struct.pack("=I", 4), "with statistics"
    if driver.counts is None:
        raise OSError(errno.EOPNOTSUPP, "")
    counts = {kind: driver.counts.get(kind, UNKNOWN) for kind in (2, 3, 4)}
    # The total, and those of two lanes.
    inner = b"".join(attribute(k, struct.pack("=QQQ", v, 1, 2)) for k, v in counts.items())
    for low, blocks in driver.histogram.items():
        ends = attribute(2, struct.pack("=I", low)) + attribute(3, struct.pack("=I", low))
        inner += attribute(5 | 0x8000, ends + attribute(4, struct.pack("=Q", blocks)))
    return attribute(3, b"\1") + attribute(5 | 0x8000, inner)
