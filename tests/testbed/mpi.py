"""`mpirun`, Open MPI's or MPICH's, and the programs of collectives: they check their
arguments and print what the real ones print, rank 0 with its prefix.

FAKE_COLLECTIVE_SECONDS  duration of a collective
FAKE_COLLECTIVE_WRONG    number of wrong values
FAKE_COLLECTIVE_RECORD   a file to which the environment given to the ranks is written, as JSON
FAKE_COLLECTIVE_EXPECT   JSON: `environment`, `mca` and `tool` must be exactly these, or it ends
                         with status 64
FAKE_COLLECTIVE_OUTPUT   a file that the tool prints instead, ending with FAKE_COLLECTIVE_STATUS
FAKE_COLLECTIVE_SLOW     a device with 40 % of the rate of the others; four share the load
FAKE_COLLECTIVE_FLOOD    number of megabytes that the tool prints before its results
FAKE_COLLECTIVE_MPI      `mpich` for MPICH's mpirun; Open MPI's by default
FAKE_COLLECTIVE_TIME     microseconds of a collective of any size; 2500 by default
FAKE_COLLECTIVE_PAUSE    seconds between two rows of nccl-tests
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from testbed import tooloutput

PROGRAMS = (
    "mpirun",
    *("all_reduce_perf", "alltoall_perf", "sendrecv_perf", "reduce_perf", "gather_perf"),
    *("all_reduce_test", "all_gather_test", "scatter_test"),
)
OPEN_MPI = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
MPICH = """\
HYDRA build details:
    Version:                                 4.0.2
    Release Date:                            Thu Apr  7 12:34:45 CDT 2022
    Process Manager:                         pmi
    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist
"""
# Number of values of the options that the product passes.
OPTIONS = {
    **dict.fromkeys(("--allow-run-as-root", "--tag-output"), 0),
    **dict.fromkeys(("--host", "-np", "--bind-to", "--map-by", "--timeout", "-x"), 1),
    "--mca": 2,
}
INTEGERS = ("-np", "--timeout")
USAGE = "Type 'mpirun --help' for usage."
FORMAT = """\
Open MPI has detected that a parameter given to a command line
option does not match the expected format:

  Option: {name}
  Param:  {value}

This is frequently caused by omitting to provide the parameter
to an option that requires one. Please check the command line and try again."""
ROOT = """\
mpirun has detected an attempt to run as root.

Running as root is *strongly* discouraged as any mistake (e.g., in
defining TMPDIR) or bug can result in catastrophic damage to the OS
file system, leaving your system in an unusable state.

We strongly suggest that you run mpirun as a non-root user."""
SLOTS = """\
There are not enough slots available in the system to satisfy the {ranks}
slots that were requested by the application:

  {program}

Either request fewer slots for your application, or make more slots
available for use."""
NO_PROGRAM = """\
mpirun was unable to find the specified executable file, and therefore
did not launch the job.  This error was first reported for process
rank 0; it may have occurred for other processes as well."""
UNEXPECTED = 64
LOGIN = {"plm_rsh_args": "-o BatchMode=yes -o ConnectTimeout=5", "plm_rsh_no_tree_spawn": "1"}
MICROSECONDS = 2500.0


def main(name: str) -> None:
    """Run as one of the programs."""
    is_mpich = os.environ.get("FAKE_COLLECTIVE_MPI") == "mpich"
    if name == "mpirun" and sys.argv[1:] == ["--version"]:
        print(MPICH if is_mpich else OPEN_MPI, end="")
    elif name == "mpirun":
        (_mpich if is_mpich else _open_mpi)(sys.argv[1:])
    elif name.endswith("_perf"):
        _nccl(name)
    else:
        _hccl(name)


def _open_mpi(words: list[str]) -> None:
    found = _open_mpi_options(words)
    if os.geteuid() == 0 and "--allow-run-as-root" not in found:
        _framed(ROOT)
    if "--tag-output" not in found or found.get("--bind-to") != [["none"]]:
        _refuse(f"mpirun: output without prefixes, or ranks that are bound: {found}")
    if found.get("--map-by") != [["slot"]]:
        _refuse(f"mpirun: ranks in another order than the hosts: {found}")
    [[timeout]], [[hosts]], [[ranks]] = (found[name] for name in ("--timeout", "--host", "-np"))
    if int(timeout) < 1:
        _refuse(f"mpirun: no limit: {timeout}")
    mca = {pair[0]: pair[1] for pair in found.get("--mca", [])}
    if {name: mca.pop(name, None) for name in LOGIN} != LOGIN:
        _refuse(f"mpirun: logs in to nodes in another way: {found['--mca']}")
    given = dict(pair.split("=", 1) for [pair] in found.get("-x", []))
    _expect(given, mca, words)
    _launch(hosts, int(ranks), given, words)


def _open_mpi_options(words: list[str]) -> dict[str, list[list[str]]]:
    """Take the options off the words: the values of each, by name. Ends as mpirun does where it
    does not take one.
    """
    found: dict[str, list[list[str]]] = {}
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name not in OPTIONS:
            sys.exit(f'mpirun: Error: unknown option "{name}"\n{USAGE}')
        values = [words.pop(0) for _ in range(min(OPTIONS[name], len(words)))]
        if len(values) < OPTIONS[name]:
            wanted = f"did not have enough parameters ({OPTIONS[name]})"
            sys.exit(f'mpirun: Error: option "{name}" {wanted}\n{USAGE}')
        if name in INTEGERS and not re.fullmatch(r"-?\d+", values[0]):
            _framed(FORMAT.format(name=name.lstrip("-"), value=values[0]), width=76)
        found.setdefault(name, []).append(values)
    if not words:
        _framed("No executable was specified on the mpirun command line.\n\nAborting.")
    return found


def _framed(text: str, width: int = 74) -> NoReturn:
    """End with a message as Open MPI writes it."""
    rule = "-" * width
    sys.exit(f"{rule}\n{text}\n{rule}")


def _mpich(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="mpirun", allow_abbrev=False)
    parser.add_argument("-hosts", required=True)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("-genv", nargs=2, action="append", default=[])
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    _expect(dict(options.genv), {}, options.program)
    _launch(options.hosts, options.n, dict(options.genv), options.program)


def _expect(given: dict[str, str], mca: dict[str, str], program: list[str]) -> None:
    watch = ["timeout", "--foreground", "--kill-after=5"]
    if program[:3] != watch or float(program[3]) <= 0:
        _refuse(f"mpirun: nothing ends the ranks in time: {program}")
    wanted = json.loads(os.environ.get("FAKE_COLLECTIVE_EXPECT", "null"))
    found = {"environment": given, "mca": mca, "tool": program[4:]}
    if wanted is not None and wanted != found:
        _refuse(f"mpirun: expected {wanted}, found {found}")


def _refuse(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.exit(UNEXPECTED)


def _launch(hosts: str, ranks: int, given: dict[str, str], program: list[str]) -> None:
    slots = sum(int(host.rpartition(":")[2]) for host in hosts.split(","))
    if slots < ranks:
        _framed(SLOTS.format(ranks=ranks, program=program[0]))
    if "FAKE_COLLECTIVE_RECORD" in os.environ:
        Path(os.environ["FAKE_COLLECTIVE_RECORD"]).write_text(json.dumps(given))
    environment = {**os.environ, **given, "OMPI_COMM_WORLD_SIZE": str(ranks)}
    try:
        ranks_of_one = subprocess.Popen(
            program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError:
        _framed(NO_PROGRAM)
    assert ranks_of_one.stdout is not None
    for line in ranks_of_one.stdout:
        sys.stdout.buffer.write(b"[1,0]<stdout>:" + line)
    sys.exit(ranks_of_one.wait())


def _options(*flags: str) -> argparse.Namespace:
    """The arguments: each of `flags`, -f for a sweep and only then, and no other."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in flags:
        parser.add_argument(flag, required=True)
    for flag in {"-f", "-d", "-o"} - set(flags):
        parser.add_argument(flag)
    options = parser.parse_args()
    if (options.b == options.e) != (options.f is None):
        _refuse(f"a sweep from {options.b} to {options.e} by {options.f}")
    if options.c != "1":
        _refuse("every result is checked")
    time.sleep(float(os.environ.get("FAKE_COLLECTIVE_SECONDS", "0")))
    for _ in range(int(os.environ.get("FAKE_COLLECTIVE_FLOOD", "0"))):
        sys.stdout.write(("x" * 1023 + "\n") * 1024)
    if "FAKE_COLLECTIVE_OUTPUT" in os.environ:
        data = Path(os.environ["FAKE_COLLECTIVE_OUTPUT"]).read_bytes()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        sys.exit(int(os.environ.get("FAKE_COLLECTIVE_STATUS", "0")))
    return options


def _bytes(text: str) -> int:
    """As both tools read a size."""
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def _sizes(options: argparse.Namespace) -> list[int]:
    sizes = [_bytes(options.b)]
    while options.f and sizes[-1] * int(options.f) <= _bytes(options.e):
        sizes.append(sizes[-1] * int(options.f))
    return sizes


def _nccl(name: str) -> None:
    options = _options("-b", "-e", "-g", "-n", "-w", "-c")
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return  # the first rank prints the results of all
    processes = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["PMI_SIZE"]
    ranks = int(processes) * int(options.g)
    share = (ranks - 1) / ranks
    operation = name.removesuffix("_perf")
    whole = ("sendrecv", "broadcast", "reduce")
    factor = 2 * share if operation == "all_reduce" else 1.0 if operation in whole else share
    wrong = os.environ.get("FAKE_COLLECTIVE_WRONG", "0")
    footer = "0 OK" if wrong == "0" else f"{wrong} FAILED"
    before, _, after = tooloutput.nccl("|", operation, footer).partition("|")
    print(before, end="", flush=True)
    for size in _sizes(options):
        row = tooloutput.nccl_row(size, _microseconds(), factor, wrong)
        print(row, end="", flush=True)
        time.sleep(float(os.environ.get("FAKE_COLLECTIVE_PAUSE", "0")))
    print(after, end="")


def _microseconds() -> float:
    """The slowest rail has the time of all."""
    slow, used = (os.environ.get(name, "") for name in ("FAKE_COLLECTIVE_SLOW", "NCCL_IB_HCA"))
    alone = 4 if used else 1
    usual = float(os.environ.get("FAKE_COLLECTIVE_TIME", MICROSECONDS))
    return usual * alone / (0.4 if slow and used in ("", f"={slow}:1") else 1)


def _hccl(name: str) -> None:
    reduces = ("-o",) if name in ("all_reduce_test", "reduce_test", "reduce_scatter_test") else ()
    options = _options("-b", "-e", "-d", *reduces, "-n", "-w", "-c", "-p")
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return
    print(f"the minbytes is {options.b}, maxbytes is {options.e}, iters is 20, warmup_iters is 5")
    print("data_size(Bytes): |   avg_time(us): | alg_bandwidth(GB/s): | check_result:")
    for size in _sizes(options):
        print(tooloutput.hccl_row(size, MICROSECONDS), end="")
