"""Starts collectives by mpirun over ssh, Open MPI's or MPICH's: its version shows which it is.

In: a Collective. Out: its reports. Password-less ssh is needed from this machine to each node, not
between nodes. No process outlives the run: `timeout` ends the ranks on the nodes and mpirun on this
machine; mpirun also ends when this process dies.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from nodevitals.checks import CheckError, processes
from nodevitals.checks.launchers.launcher import (
    Launched,
    Progress,
    ignore,
    launched,
    named,
    refused,
    verify_name,
)
from nodevitals.checks.launchers.mpi import Mpi, of_version, options
from nodevitals.checks.launchers.mpi import verify as verify_mpi
from nodevitals.checks.requests import collective
from nodevitals.checks.requests.collective import Collective, Sweep
from nodevitals.checks.ssh import remote
from nodevitals.probes.fabric.tools.report import Report, failed

VARIABLE = "NODEVITALS_RUN"
"""In the environment of mpirun: the name of the run."""
# Time for mpirun to end its ranks first.
GRACE_SECONDS = 15.0
# Time after which the ranks end by themselves where mpirun could not end them.
RANK_GRACE_SECONDS = 5.0
SSH_AT_A_TIME = 64
PROGRESS_SECONDS = 2.0
_LOOK = (
    'for program in "$@"; do command -v -- "$program" >/dev/null 2>&1 || echo "missing $program"; '
    "done"
)


def argv(
    wanted: Collective, swept: Sweep, seconds: float, user: str = "", mpi: Mpi = "open_mpi"
) -> list[str]:
    """Return the command line of mpirun for one sweep of sizes."""
    hosts = ",".join(f"{node}:{wanted.processes_per_node}" for node in wanted.nodes)
    limit = f"{seconds + RANK_GRACE_SECONDS:g}"
    # With --foreground it stays in the process group of mpirun, and ends with it.
    watch = ["timeout", "--foreground", f"--kill-after={RANK_GRACE_SECONDS:g}", limit]
    rank = [*watch, *collective.tool_argv(wanted, swept)]
    words = options(wanted, mpi, _parameters(wanted, user))
    if mpi == "mpich":
        return ["mpirun", "-hosts", hosts, *words, *rank]
    return [
        *("mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])),
        # mpirun takes whole seconds only. Rounded up, it does not end before the deadline here.
        *("--host", hosts, "--timeout", str(math.ceil(seconds))),
        *words,
        *rank,
    ]


def _parameters(wanted: Collective, user: str) -> dict[str, str]:
    # By default, with many nodes, mpirun makes nodes log in to other nodes.
    parameters = {"plm_rsh_args": _login(user), "plm_rsh_no_tree_spawn": "1"}
    if wanted.interface:
        parameters["btl_tcp_if_include"] = wanted.interface
    return parameters


def _login(user: str) -> str:
    """The options with which mpirun starts ssh."""
    return "-o BatchMode=yes -o ConnectTimeout=5" + (f" -l {user}" if user else "")


class MpirunLauncher:
    """Starts mpirun on this machine."""

    def __init__(self, user: str = "") -> None:
        self._user = user

    async def run(
        self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
    ) -> Launched:
        """As in Launcher."""
        try:
            verify_name(name)
            collective.verify(wanted)
            version = await processes.run(["mpirun", "--version"], 10)
            if version.status == 127:
                return refused("tool_missing", "mpirun is missing on the node that starts it")
            mpi = of_version(version.text)
            verify_mpi(wanted, mpi)
            await self.remove(name)
        except CheckError as error:
            return refused("harness", str(error))
        lost, missing = await self.preflight(wanted)
        if lost:
            return refused("harness", f"password-less ssh fails: {named(lost)}", nodes=lost)
        if missing:
            return refused("tool_missing", named(missing), nodes=missing)
        done = await self._run(wanted, name, seconds, mpi, progress)
        return replace(done, versions={**collective.versions(version.text), **done.versions})

    async def in_use(self, nodes: Sequence[str]) -> dict[str, str]:
        """Nodes that are in use, or may be, with the reason. Nodes that ssh cannot log in to are
        left out: `preflight` reports them.
        """
        used = await asyncio.to_thread(remote.in_use, nodes, self._user)
        lost = await asyncio.to_thread(remote.unreachable, used, self._user)
        return {node: why for node, why in used.items() if node not in lost}

    async def preflight(self, wanted: Collective) -> tuple[dict[str, str], dict[str, str]]:
        """Nodes that ssh cannot log in to without a password, and nodes where a program is missing,
        each with the reason.
        """
        tool = collective.tool_argv(wanted, Sweep(1, 1, 1))[0]
        look = ["sh", "-c", _LOOK, "sh", "timeout", "mpirun", tool]
        slots = asyncio.Semaphore(SSH_AT_A_TIME)

        async def ask(node: str) -> processes.Ended:
            async with slots:
                words = remote.command(node, look, 10, self._user)
                return await processes.run(words, 10 + remote.REACH_SECONDS)

        answers = await asyncio.gather(*map(ask, wanted.nodes))
        lost, missing = {}, {}
        for node, done in zip(wanted.nodes, answers):
            absent = [line[8:] for line in done.text.splitlines() if line.startswith("missing ")]
            if done.status != 0:
                lost[node] = "no answer in time" if done.timed_out else remote.last_line(done.text)
            elif absent:
                missing[node] = f"no {', '.join(absent)} on PATH"
        return lost, missing

    async def _run(
        self, wanted: Collective, name: str, seconds: float, mpi: Mpi, progress: Progress
    ) -> Launched:
        """Run mpirun once per sweep, all within the time limit."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        reports: list[Report] = []
        texts = []
        for swept in collective.sweeps(wanted.sizes):
            left = deadline - clock()
            if left <= 1:
                reports.append(failed("timeout", f"no end within {seconds:g} s"))
                break
            words = argv(wanted, swept, left, self._user, mpi)
            done = await self._swept(wanted, swept, words, name, left, reports, progress)
            texts.append(f"$ {shlex.join(words)}\n{done.text}")
            swept_reports = collective.judge(
                wanted, collective.sizes_of(swept), done.text, done.status
            )
            unclear = swept_reports[-1].reason in ("harness", "unreachable")
            if unclear and (done.timed_out or clock() >= deadline):
                swept_reports = (
                    *swept_reports[:-1],
                    failed("timeout", f"no end within {seconds:g} s"),
                )
            reports += swept_reports
            if swept_reports[-1].outcome != "ok":
                break
        raw = "".join(texts)
        return launched(reports, raw, collective.versions(raw))

    async def _swept(
        self,
        wanted: Collective,
        swept: Sweep,
        words: list[str],
        name: str,
        seconds: float,
        before: Sequence[Report],
        progress: Progress,
    ) -> processes.Ended:
        """Run mpirun for one sweep; meanwhile `progress` gets the reports so far."""
        output = processes.Excerpt()
        # Only MPICH's reads the second; Open MPI's has a parameter for it.
        variables = {VARIABLE: name, "HYDRA_LAUNCHER_EXTRA_ARGS": _login(self._user)}
        running = asyncio.ensure_future(
            processes.run(words, seconds + 1, GRACE_SECONDS, variables, output)
        )
        try:
            while not (await asyncio.wait({running}, timeout=PROGRESS_SECONDS))[0]:
                sizes = collective.sizes_of(swept)
                progress([*before, *collective.finished(wanted, sizes, output.text())])
            return running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})  # until mpirun has ended its ranks

    async def remove(self, name: str) -> None:
        """As in Launcher: end the process groups of `timeout` and mpirun on this machine."""
        verify_name(name)
        groups = await asyncio.to_thread(_groups, name)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for group in groups:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)
            for _ in range(int(GRACE_SECONDS / 0.1)):
                groups = await asyncio.to_thread(_groups, name)
                if not groups:
                    return
                await asyncio.sleep(0.1)
        raise CheckError(f"{name}: mpirun of an earlier run cannot be ended")


def _groups(name: str) -> set[int]:
    """Process groups on this machine with a process that has this run's name in its environment. A
    zombie has no environment.
    """
    wanted = f"{VARIABLE}={name}".encode()
    groups = set()
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    groups.add(os.getpgid(int(entry)))
    return groups - {os.getpgrp()}
