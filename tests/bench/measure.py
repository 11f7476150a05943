"""Shared by the benchmarks: a keep-alive scraper, percentiles, memory and CPU of a process tree."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import psutil

REQUEST = "GET {} HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n\r\n"


class Scraper:
    """A keep-alive connection that requests gzip and reads whole bodies."""

    def __init__(self, port: int, path: str = "/metrics") -> None:
        self._request = REQUEST.format(path).encode()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def scrape(self) -> float:
        """Return the seconds from the first byte of the request to the last byte of the body."""
        started = time.perf_counter()
        self._socket.sendall(self._request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        lines = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        if b"content-length" in lines:
            left = int(lines[b"content-length"]) - len(body)
            while left > 0:
                left -= len(self._read())
        else:  # chunked: the last chunk is empty
            while not body.endswith(b"\r\n0\r\n\r\n"):
                body = body[-16:] + self._read()
        return time.perf_counter() - started

    def _read(self) -> bytes:
        piece = self._socket.recv(1 << 20)
        assert piece, "the server closed the connection"
        return piece

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def pss_bytes(pid: int) -> int:
    """Return the sum of the proportional set sizes of a process and its descendants."""
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its live descendants and those it has reaped."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def additions_seconds() -> float:
    """CPU time of a million additions: how fast one core runs Python here and now. Figures of CPU
    time are compared with it: those of one virtual machine differ by a factor of two.
    """
    began = time.thread_time()
    sum(range(1_000_000))
    return time.thread_time() - began


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for index, row in enumerate((head, *rows)):
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("| " + " | ".join(cells) + " |")
        if index == 0:
            print("|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    print(flush=True)
