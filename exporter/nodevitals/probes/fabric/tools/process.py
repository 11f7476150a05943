"""A running bandwidth tool: its output, its end, and whether its port listens.

The kernel kills the tool when the thread that started it ends, and so when the worker ends.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from nodevitals.errors import ProbeError
from nodevitals.linux import tool

MAX_OUTPUT_BYTES = 1024 * 1024
REAP_SECONDS = 0.5
VERSION_SECONDS = 1.0
# States of a connection, and the tables that have them: proc_net_tcp(5).
_LISTEN, _ESTABLISHED = "0A", "01"
TCP_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,4}")


class ToolMissingError(Exception):
    """The program does not exist, or may not be executed."""


class ToolProcess:
    """One run of a tool, on these CPUs where there are any. Both streams go to memory, at most
    MAX_OUTPUT_BYTES.
    """

    def __init__(self, argv: Sequence[str], cpus: Collection[int] = ()) -> None:
        self.argv, self.cpus = argv, cpus
        self._output = os.memfd_create("output", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                preexec_fn=partial(_prepare, cpus),
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            os.close(self._output)
            raise ToolMissingError(f"{argv[0]}: {error.strerror}") from None

    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """Its output so far."""
        return os.pread(self._output, MAX_OUTPUT_BYTES, 0).decode("utf-8", "replace")

    def end(self) -> None:
        """Kill the tool if it still runs, and free its memory. The fork server handles a process
        that hangs in the kernel.
        """
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(REAP_SECONDS)
        with suppress(OSError):
            os.close(self._output)


def _prepare(cpus: Collection[int]) -> None:
    tool.prepare()
    if cpus:
        with suppress(OSError):  # these CPUs went offline
            os.sched_setaffinity(0, cpus)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES))


def version_of(program: str) -> str:
    """The version that a tool prints, such as `3.12`; '' if it prints none in time."""
    with suppress(ProbeError):
        match = _VERSION.search(tool.run([program, "--version"], VERSION_SECONDS).text[:1000])
        return match[0] if match else ""
    return ""


def listens(port: int) -> bool:
    """Whether any process of this network namespace listens on a TCP port.

    The tool's output does not show it reliably: it may still be in the tool's buffer.
    """
    return _has(tcp_tables(), _LISTEN, 1, port)


def is_connected(port: int, tables: str) -> bool:
    """Whether any process is connected to this TCP port of another node, by the text of the
    tables.
    """
    return _has(tables, _ESTABLISHED, 2, port)


def tcp_tables() -> str:
    """All TCP sockets of this network namespace."""
    texts = []
    for table in TCP_TABLES:
        with suppress(OSError), open(table, encoding="ascii") as file:
            texts.append(file.read())
    return "".join(texts)


def _has(tables: str, state: str, end: int, port: int) -> bool:
    """Whether a socket in this state has this port, as its local (1) or remote port."""
    wanted = f":{port:04X}"
    rows = (line.split(None, 4) for line in tables.splitlines())
    return any(len(row) == 5 and row[3] == state and row[end].endswith(wanted) for row in rows)
