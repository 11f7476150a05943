"""`mpirun`, Open MPI's or MPICH's by its flags, and the programs of collectives: they check their
arguments and print what the real ones print, rank 0 with its prefix.

FAKE_COLLECTIVE_SECONDS  duration of a collective
FAKE_COLLECTIVE_WRONG    number of wrong values
FAKE_COLLECTIVE_RECORD   a file to which the environment given to the ranks is written, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from testbed import tooloutput

PROGRAMS = ("mpirun", "all_reduce_perf", "alltoall_perf", "all_reduce_test")
MICROSECONDS = 2500.0


def main(name: str) -> None:
    """Run as one of the programs."""
    if name == "mpirun":
        (_mpich if "-hosts" in sys.argv else _open_mpi)(sys.argv[1:])
    elif name.endswith("_perf"):
        _nccl(name)
    else:
        _hccl()


def _open_mpi(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="mpirun", allow_abbrev=False)
    add = parser.add_argument
    add("--allow-run-as-root", action="store_true")
    add("--host", required=True)
    add("-np", type=int, required=True)
    add("--bind-to", choices=["none"], required=True)
    add("--tag-output", action="store_true", required=True)
    add("--timeout", type=float, required=True)
    add("--mca", nargs=2, action="append")
    add("-x", action="append", default=[])
    add("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    assert ["plm_rsh_args", "-o BatchMode=yes"] in options.mca
    _launch(
        options.host, options.np, dict(pair.split("=", 1) for pair in options.x), options.program
    )


def _mpich(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="mpirun", allow_abbrev=False)
    parser.add_argument("-hosts", required=True)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("-genv", nargs=2, action="append", default=[])
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    _launch(options.hosts, options.n, dict(options.genv), options.program)


def _launch(hosts: str, ranks: int, given: dict[str, str], program: list[str]) -> None:
    slots = sum(int(host.rpartition(":")[2]) for host in hosts.split(","))
    if slots < ranks:
        sys.exit("There are not enough slots available in the system to satisfy the request")
    if "FAKE_COLLECTIVE_RECORD" in os.environ:
        Path(os.environ["FAKE_COLLECTIVE_RECORD"]).write_text(json.dumps(given))
    environment = {**os.environ, **given, "OMPI_COMM_WORLD_SIZE": str(ranks)}
    try:
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    except OSError:
        sys.exit("mpirun was unable to find the specified executable file")
    for line in (done.stdout + done.stderr).splitlines():
        print(f"[1,0]<stdout>:{line}")
    sys.exit(done.returncode)


def _options(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in flags:
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    assert options.b == options.e, "one size, or the average has no meaning"
    time.sleep(float(os.environ.get("FAKE_COLLECTIVE_SECONDS", "0")))
    return options


def _nccl(name: str) -> None:
    options = _options("-b", "-e", "-g", "-n", "-w", "-c")
    ranks = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    share = (ranks - 1) / ranks
    operation = name.removesuffix("_perf")
    factor = 2 * share if operation == "all_reduce" else share
    wrong = os.environ.get("FAKE_COLLECTIVE_WRONG", "0")
    row = tooloutput.nccl_row(int(options.b), MICROSECONDS, factor, wrong)
    print(tooloutput.nccl(row, operation, "0 OK" if wrong == "0" else f"{wrong} FAILED"), end="")


def _hccl() -> None:
    options = _options("-b", "-e", "-d", "-o", "-n", "-w", "-c", "-p")
    print("data_size(Bytes): |   avg_time(us): | alg_bandwidth(GB/s): | check_result:")
    print(tooloutput.hccl_row(int(options.b), MICROSECONDS), end="")
