"""The programs of perftest, without RDMA: they check their arguments, connect over TCP, and print
what the real ones print. Their environment decides what happens:

FAKE_DEVICE   the existing devices, as `mlx5_0:1:5,mlx5_1:1:5`: name, port, GID index ('' on
              InfiniBand)
FAKE_GBITS    bandwidth of this side; the result is that of the slower one; FAKE_GBITS_mlx5_1 that
              of one device
FAKE_LATENCY  microseconds of this side; the result is that of the slower one
FAKE_SECONDS  duration of a transfer
FAKE_DELAY    seconds before the client connects, 0 where it is not set
FAKE_TCLASS   the only traffic class that the fabric carries; any where it is not set
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time

from testbed import tooloutput

# A server whose client never comes ends by itself, so that no test leaves it behind.
ACCEPT_SECONDS = 60.0
PROGRAMS = (
    *("ib_write_bw", "ib_read_bw", "ib_send_bw"),
    *("ib_send_lat", "ib_write_lat", "ib_read_lat"),
)


def main(name: str) -> None:
    """Run as one of the programs."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    add = parser.add_argument
    add("-d", required=True)
    for flag in ("-i", "-p", "-s"):
        add(flag, type=int, required=True)
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("-n", type=int, default=0)
    end.add_argument("-D", type=int, default=0)
    add("-x")
    add("--tclass", type=int, default=0)
    add("--version", action="version", version="Version: 6.06")
    add("-q", type=int, default=1)
    add("--report_gbits", action="store_true")
    add("-F", action="store_true", required=True)
    add("peer", nargs="?")
    options = parser.parse_args()
    devices = dict(text.split(":", 1) for text in os.environ["FAKE_DEVICE"].split(","))
    port, gid = devices.get(options.d, "0:").split(":")
    if options.i != int(port):
        sys.exit(" Did not detect devices \n If device exists, check if driver is up")
    if (options.x or "") != gid:
        sys.exit(" Found Incompatibility issue with GID types.")
    if str(options.tclass) != os.environ.get("FAKE_TCLASS", str(options.tclass)):
        sys.exit(" Completion with error at client\n Failed status 12: wr_id 0")
    operation = name.removeprefix("ib_")
    if options.D and operation.endswith("_lat"):
        sys.exit("no percentiles are printed with -D")
    sizes = (options.i, options.s, options.n, options.D, options.q, options.tclass)
    request = " ".join(map(str, (name, *sizes))).encode()
    (_run_client if options.peer else _run_server)(options, operation, request)


def _run_server(options: argparse.Namespace, operation: str, request: bytes) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("0.0.0.0", options.p))
        except OSError:
            sys.exit(f"Couldn't listen to port {options.p}")
        server.listen(1)
        print(tooloutput.WAITING)
        connection = _accepted(server)
    with connection:
        connection.settimeout(None)
        figures = _exchange(connection, request, options.d)
        connection.recv(1)
    _print(options, operation, *figures)


def _accepted(server: socket.socket) -> socket.socket:
    """The connection of the client. Ends with `timeout`, which the test bed kills where a real one
    would end the tool.
    """
    parent, end = os.getppid(), time.monotonic() + ACCEPT_SECONDS
    server.settimeout(0.2)
    while time.monotonic() < end and os.getppid() == parent:
        try:
            return server.accept()[0]
        except TimeoutError:
            pass
    sys.exit("no client")


def _run_client(options: argparse.Namespace, operation: str, request: bytes) -> None:
    time.sleep(float(os.environ.get("FAKE_DELAY", "0")))
    try:
        connection = socket.create_connection((options.peer, options.p), 5)
    except OSError:
        print(f"Couldn't connect to {options.peer}:{options.p}")
        sys.exit("Unable to open file descriptor for socket connection")
    with connection:
        connection.settimeout(None)
        figures = _exchange(connection, request, options.d)
        end = time.monotonic() + float(os.environ.get("FAKE_SECONDS", "0.05"))
        connection.settimeout(0.02)
        while time.monotonic() < end:
            try:
                if not connection.recv(1):
                    sys.exit(" Completion with error at client\n Failed status 12: wr_id 0")
            except TimeoutError:
                pass
        connection.sendall(b".")
    _print(options, operation, *figures)


def _exchange(connection: socket.socket, request: bytes, device: str) -> tuple[float, float]:
    """Compare the arguments of both sides. Returns bandwidth and latency of the slower one."""
    gbits = os.environ.get(f"FAKE_GBITS_{device}", os.environ.get("FAKE_GBITS", "390"))
    latency = os.environ.get("FAKE_LATENCY", "1.47")
    connection.sendall(request + f"|{gbits} {latency}\n".encode())
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(256)
        if not data:
            sys.exit("ethernet_read_keys: Couldn't read remote address")
        received += data
    other, _, others_figures = received.partition(b"|")
    if other != request:
        sys.exit(" Completion with error at client\n Failed status 9: wr_id 0")
    others = [float(word) for word in others_figures.split()]
    return min(float(gbits), others[0]), max(float(latency), others[1])


def _print(options: argparse.Namespace, operation: str, gbits: float, latency: float) -> None:
    print(tooloutput.perftest_head(operation, options.d), end="")
    if operation.endswith("_lat"):
        figures = (latency - 0.05, latency + 9, latency, latency, 0.1, latency + 1, latency + 5)
        row = tooloutput.latency_row(options.s, options.n, *figures)
        print(tooloutput.latency_columns() + row)
    else:
        unit = "Gb/sec" if options.report_gbits else "MB/sec"
        average = gbits * 1.25e8 / tooloutput.UNITS[unit]
        row = tooloutput.bandwidth_row(options.s, options.n or 560845, average, unit)
        print(tooloutput.bandwidth_columns(unit) + row)
    print(tooloutput.LINE)
