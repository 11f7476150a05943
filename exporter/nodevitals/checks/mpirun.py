"""Launches nccl-tests or the HCCL test over some nodes with mpirun, and judges the output.

In: a Collective. Out: command lines, and a Report.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Literal, Optional

import msgspec

from nodevitals.probes.fabric.report import Report, ResultRow, failed
from nodevitals.probes.fabric.tools import PARSERS, hccl, nccl

Backend = Literal["nccl", "hccl"]
# Beyond the launcher's own limit: the launcher must end its ranks first.
GRACE_SECONDS = 15.0
REAP_SECONDS = 5.0


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """A collective to run: `devices_per_node` ranks on each node, one size of messages (bytes)."""

    backend: Backend
    operation: str
    nodes: tuple[str, ...]
    devices_per_node: int
    message_bytes: int = 1 << 30
    iterations: int = 20
    timeout_seconds: float = 300.0
    program: str = ""
    """Path of the tool on the nodes; '' for its name, on PATH."""
    hca: str = ""
    interface: str = ""
    gid_index: Optional[int] = None
    """The GID index where all nodes have the same; otherwise NCCL chooses."""

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return len(self.nodes) * self.devices_per_node


def tool_argv(wanted: Collective) -> list[str]:
    """Return a rank's command line."""
    if wanted.backend == "nccl":
        argv = nccl.argv(wanted.operation, wanted.message_bytes, wanted.iterations)
    else:
        devices = wanted.devices_per_node
        argv = hccl.argv(wanted.operation, wanted.message_bytes, wanted.iterations, devices)
    return [wanted.program or argv[0], *argv[1:]]


def environment(wanted: Collective) -> dict[str, str]:
    """The environment of the ranks: which HCA carries data, which interface the rest."""
    found = {"NCCL_DEBUG": "WARN"} if wanted.backend == "nccl" else {}
    if wanted.hca and wanted.backend == "nccl":
        found["NCCL_IB_HCA"] = wanted.hca
    if wanted.gid_index is not None and wanted.backend == "nccl":
        found["NCCL_IB_GID_INDEX"] = str(wanted.gid_index)
    if wanted.interface:
        prefix = "NCCL" if wanted.backend == "nccl" else "HCCL"
        found[f"{prefix}_SOCKET_IFNAME"] = wanted.interface
    return found


def exported(wanted: Collective) -> list[str]:
    """Return Open MPI's options that pass the environment to the ranks."""
    return [word for key, value in environment(wanted).items() for word in ("-x", f"{key}={value}")]


def mpirun_argv(wanted: Collective) -> list[str]:
    """Return the launcher's command line: Open MPI for NCCL; MPICH, as the HCCL test requires."""
    hosts = ",".join(f"{node}:{wanted.devices_per_node}" for node in wanted.nodes)
    ranks = str(wanted.ranks)
    if wanted.backend == "hccl":
        pairs = [
            word for key, value in environment(wanted).items() for word in ("-genv", key, value)
        ]
        return ["mpirun", "-hosts", hosts, "-n", ranks, *pairs, *tool_argv(wanted)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    interface = wanted.interface
    where = ["--mca", "btl_tcp_if_include", interface] if interface else []
    return [
        *("mpirun", *root, "--host", hosts, "-np", ranks, "--bind-to", "none", "--tag-output"),
        *("--timeout", f"{wanted.timeout_seconds:g}"),
        *("--mca", "plm_rsh_args", "-o BatchMode=yes"),
        *where,
        *exported(wanted),
        *tool_argv(wanted),
    ]


def run(wanted: Collective) -> Report:
    """Launch the collective and wait for its end; no process of it stays here, whatever happens."""
    try:
        process = subprocess.Popen(
            mpirun_argv(wanted),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return failed("tool_missing", f"mpirun: {error.strerror}")
    try:
        output = process.communicate(timeout=wanted.timeout_seconds + GRACE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return failed("timeout", f"no end within {wanted.timeout_seconds:g} s")
    finally:
        if process.returncode is None:
            _end(process)
    return judge(wanted, output.decode(errors="replace"), process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let mpirun end its ranks on the other nodes, then end the rest of its process group here. It
    is reaped last: until then no other process group can get its number.
    """
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, process.pid, flags) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=REAP_SECONDS)


def judge(wanted: Collective, text: str, status: int) -> Report:
    """The result: one row with its bus bandwidth, or why there is none."""
    report = PARSERS[wanted.backend](text)
    if report.outcome != "ok":
        return report
    rows = [row for row in report.rows if _is_of(wanted, row)]
    if not rows:
        return failed("harness", "no row of the requested size", report.rows)
    if status != 0:
        return failed("harness", f"the launcher ended with status {status}", rows)
    row = rows[0]
    if row.bus_bandwidth_bytes_per_second is None and row.bandwidth_bytes_per_second is not None:
        factor = nccl.bus_factor(wanted.operation, wanted.ranks)
        bus = row.bandwidth_bytes_per_second * factor
        row = msgspec.structs.replace(row, bus_bandwidth_bytes_per_second=bus)
    return Report(outcome="ok", rows=(msgspec.structs.replace(row, operation=wanted.operation),))


def _is_of(wanted: Collective, row: ResultRow) -> bool:
    # Operations that divide the data among ranks round the size down to a multiple of the ranks.
    return 0 <= wanted.message_bytes - row.message_bytes < 64 * wanted.ranks and not row.in_place
