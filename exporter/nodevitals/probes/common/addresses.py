"""Addresses as people write them, lists of them in the format of Prometheus' file_sd, and look-ups
of many names at once.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from nodevitals.document import DocumentError, Problem, convert

MAX_THREADS = 32
# 32 threads with the default stack of 8 MiB would exceed the memory limit of a worker.
STACK_BYTES = 512 * 1024
TcpPort = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class ListedTarget(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One target of a list: a name or an address, a port, and the value of the label that groups
    targets ('' without one).
    """

    host: str
    port: int
    group: str = ""


class TargetGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a file_sd file."""

    targets: tuple[str, ...]
    labels: dict[str, Any] = {}


def parse_address(text: str, default_port: int) -> tuple[str, int]:
    """Host and port of `node-2`, `node-2:22`, `10.0.0.2:22`, `[fd00::2]:22`, `fd00::2`.

    Raises ValueError with what is wrong.
    """
    host, port = text, ""
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"{text!r} is no address: write [ADDRESS]:PORT")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or host != host.strip() or "/" in host:
        raise ValueError(f"{text!r} is no address: write HOST:PORT")
    if not port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r}: {port!r} is no port")
    return host, int(port)


def parse_file(text: bytes, default_port: int, group_label: str = "") -> list[ListedTarget]:
    """The targets of a file_sd file, JSON or YAML. Raises DocumentError with every problem."""
    from nodevitals.document import parse_yaml

    problems: list[Problem] = []
    groups = convert(parse_yaml(text), tuple[TargetGroup, ...], "", problems)
    targets = []
    for number, group in enumerate(groups or ()):
        for index, target in enumerate(group.targets if group is not None else ()):
            label = str(group.labels.get(group_label, ""))
            try:
                targets.append(ListedTarget(*parse_address(target, default_port), label))
            except ValueError as error:
                problems.append(Problem(f"[{number}].targets[{index}]", str(error)))
    if problems:
        raise DocumentError(problems)
    return targets


def is_address(host: str) -> bool:
    """Whether this is an IP address, which needs no name service."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):  # ValueError: a NUL character, which YAML permits
            continue
        return True
    return False


def resolve(hosts: Iterable[str], deadline: float) -> dict[str, tuple[str, ...]]:
    """Every address of each host, best first; () for an unknown name, and for a name without an
    answer by `deadline` (monotonic seconds). Names whose look-up did not start by then are left
    out. The C library's resolver blocks, so each name has a thread; a thread that hangs in the name
    service is left behind and ends with the worker.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]] = queue.SimpleQueue()
    wanted = set(hosts)
    for host in sorted(wanted):
        waiting.put(host)
    started: list[str] = []
    threading.stack_size(STACK_BYTES)
    for _ in range(min(MAX_THREADS, len(wanted))):
        threading.Thread(target=_resolve_all, args=(waiting, started, answers), daemon=True).start()
    resolved: dict[str, tuple[str, ...]] = {}
    while len(resolved) < len(wanted):
        try:
            host, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        resolved[host] = addresses
    return dict.fromkeys(started, ()) | resolved


def _resolve_all(
    waiting: queue.SimpleQueue[str],
    started: list[str],
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]],
) -> None:
    while True:
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        started.append(host)
        try:
            # AI_ADDRCONFIG omits address families that this node has no route to.
            rows = socket.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, ValueError):  # ValueError: no possible name, such as `a..b`
            rows = []
        answers.put((host, tuple(dict.fromkeys(str(row[4][0]) for row in rows))))
