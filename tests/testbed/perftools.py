"""perftest's programs, without RDMA: they check their arguments, talk over TCP, and print what the
real ones print. What they say is made from the environment of whoever runs them.

FAKE_DEVICE   the device that exists, as `mlx5_0:1:5`: name, port, GID index ('' on InfiniBand)
FAKE_GBITS    what this side can do; the slower one of both is reached
FAKE_SECONDS  how long a transfer takes
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time

from testbed import tooloutput

PROGRAMS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_lat")


def main(name: str) -> None:
    """Be one of the programs."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    add = parser.add_argument
    add("-d", required=True)
    for flag in ("-i", "-p", "-s", "-n"):
        add(flag, type=int, required=True)
    add("-x")
    add("-q", type=int, default=1)
    add("--report_gbits", action="store_true")
    add("-F", action="store_true", required=True)
    add("peer", nargs="?")
    options = parser.parse_args()
    device, port, gid = os.environ["FAKE_DEVICE"].split(":")
    if (options.d, options.i) != (device, int(port)):
        sys.exit(" Did not detect devices \n If device exists, check if driver is up")
    if (options.x or "") != gid:
        sys.exit(" Found Incompatibility issue with GID types.")
    operation = name.removeprefix("ib_")
    said = f"{name} {options.i} {options.s} {options.n} {options.q}".encode()
    (_call if options.peer else _wait)(options, operation, said)


def _wait(options: argparse.Namespace, operation: str, said: bytes) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("0.0.0.0", options.p))
        except OSError:
            sys.exit(f"Couldn't listen to port {options.p}")
        server.listen(1)
        print(tooloutput.WAITING)
        connection, _ = server.accept()
    with connection:
        gbits = _exchange(connection, said)
        connection.recv(1)
    _tell(options, operation, gbits)


def _call(options: argparse.Namespace, operation: str, said: bytes) -> None:
    try:
        connection = socket.create_connection((options.peer, options.p), 5)
    except OSError:
        print(f"Couldn't connect to {options.peer}:{options.p}")
        sys.exit("Unable to open file descriptor for socket connection")
    with connection:
        connection.settimeout(None)
        gbits = _exchange(connection, said)
        end = time.monotonic() + float(os.environ.get("FAKE_SECONDS", "0.05"))
        connection.settimeout(0.02)
        while time.monotonic() < end:
            try:
                if not connection.recv(1):
                    sys.exit(" Completion with error at client\n Failed status 12: wr_id 0")
            except TimeoutError:
                pass
        connection.sendall(b".")
    _tell(options, operation, gbits)


def _exchange(connection: socket.socket, said: bytes) -> float:
    """Both must have been started alike; what the slower one can do comes back."""
    gbits = os.environ.get("FAKE_GBITS", "390")
    connection.sendall(said + b"|" + gbits.encode() + b"\n")
    heard = b""
    while not heard.endswith(b"\n"):
        data = connection.recv(256)
        if not data:
            sys.exit("ethernet_read_keys: Couldn't read remote address")
        heard += data
    other, _, others_gbits = heard.partition(b"|")
    if other != said:
        sys.exit(" Completion with error at client\n Failed status 9: wr_id 0")
    return min(float(gbits), float(others_gbits))


def _tell(options: argparse.Namespace, operation: str, gbits: float) -> None:
    print(tooloutput.perftest_head(operation, options.d), end="")
    if operation.endswith("_lat"):
        row = tooloutput.latency_row(options.s, options.n, 1.42, 9.9, 1.47, 1.49, 0.1, 1.6, 5.0)
        print(tooloutput.latency_columns() + row)
    else:
        unit = "Gb/sec" if options.report_gbits else "MB/sec"
        average = gbits * 1.25e8 / tooloutput.UNITS[unit]
        row = tooloutput.bandwidth_row(options.s, options.n, average, unit)
        print(tooloutput.bandwidth_columns(unit) + row)
    print(tooloutput.LINE)
