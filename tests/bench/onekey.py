"""The one-key check: each fault of a fabric by each way to start a check, and healthy links on a
busy machine.

Eight nodes with eight links each (testbed/rails.py), in namespaces that end with this process.
`make proof PART=onekey`; parts of it: `python -m tests.bench.onekey --nodes 4 --links 2 --ways
REST,ssh --faults "one node" --runs 20`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bench import measure
from testbed import onekey
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import ROOT, SOURCES
from testbed.nodesshd import SshServers
from testbed.rails import LINK_BYTES_PER_SECOND, RailFabric

RUNS, LOAD = 200, 10
ITERATIONS, LOADED_ITERATIONS = 8, 40
"""1 MB, 0.4 s of a link; and 5 MB, 2 s: a tool that has to wait for a processor reaches less than
the link has until its window has grown."""
FOLDER = Path("/run/bed")
OUTCOMES = ("ok", "bad", "unknown")
Value = TypeVar("Value")


def main(folder: Path, *options: str) -> None:
    """Print the tables. Raises CalledProcessError where a fault was not named, or a healthy link
    was.
    """
    del folder  # nothing is left of /run, which is the bed's own
    own = [str(ROOT / "tools/private-mounts"), "--network", "--processes"]
    python = ["env", f"PYTHONPATH={ROOT / 'tests'}:{SOURCES}", sys.executable, "-m", "bench.onekey"]
    subprocess.run(["setpriv", "--pdeathsig", "KILL", "--", *own, *python, *options], check=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.onekey")
    add = parser.add_argument
    add("--nodes", type=int, default=8)
    add("--links", type=int, default=8)
    add("--rounds", type=int, default=0, help="of a tournament (default: all pairs)")
    add("--ways", default="", help="names, separated by commas (default: all)")
    add("--faults", default="", help="names, separated by commas, or none (default: all)")
    add("--runs", type=int, default=RUNS, help="healthy runs; 0: none")
    add("--load", type=int, default=LOAD, help="processes that are busy during these")
    add("--iterations", type=int, default=LOADED_ITERATIONS, help="blocks of a healthy run")
    return parser.parse_args(arguments)


def _inside(options: argparse.Namespace) -> int:
    """Run in namespaces of its own. Returns the exit status."""
    # The mounts are private: all files end with this process.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for name in ("netns", FOLDER.name):
        Path("/run", name).mkdir()
    began = time.monotonic()
    with ExitStack() as stack:
        fabric = stack.enter_context(RailFabric(FOLDER, options.nodes, options.links))
        fabric.start()
        spaces = {name: space.name for name, space in fabric.spaces.items()}
        SshServers(FOLDER / "ssh", spaces, fabric.addresses).start()
        api = stack.enter_context(CheckApi(FOLDER))
        seconds, size = time.monotonic() - began, measure.pss_bytes(os.getpid()) / 2**20
        what = f"{options.nodes} nodes with {options.links} links each"
        print(f"{what}: started in {seconds:.1f} s, {size:.0f} MiB\n", flush=True)
        _pair(fabric, api)
        passed = _faults(fabric, api, options)
        if options.runs:
            passed = _healthy(fabric, api, options) and passed
    return 0 if passed else 1


def _pair(fabric: RailFabric, api: CheckApi) -> None:
    """Print how long the command takes on one pair to its verdict."""
    nodes, rows = fabric.names[:2], []
    with onekey.Bed(FOLDER / "pair", fabric, api, ITERATIONS, nodes=nodes, kind="pair") as bed:
        assert onekey.by_schedule(bed, None).outcome == "ok"
        for devices in (fabric.devices[:1], fabric.devices):
            device, seconds = ",".join(devices), []
            for check in (
                partial(onekey.hub_command, bed, nodes, "--device", device),
                partial(onekey.ssh_command, bed, nodes, device),
            ):
                began = time.monotonic()
                found = check()
                seconds.append(f"{time.monotonic() - began:.1f} s")
                assert found.outcome == "ok", found
            size = 2 * len(devices) * ITERATIONS * onekey.MESSAGE_BYTES
            moves = f"{size / LINK_BYTES_PER_SECOND:.1f} s"
            rows.append([str(len(devices)), moves, *seconds])
    head = ["one pair: links", "of which the transfers", "with --hub", "by ssh"]
    measure.table(head, rows)


def _faults(fabric: RailFabric, api: CheckApi, options: argparse.Namespace) -> bool:
    """Print the table of faults and ways. Returns whether each verdict named its fault."""
    ways = _chosen(onekey.WAYS, options.ways.split(","))
    faults = _chosen(
        {each.name: each for each in onekey.faults_of(fabric)}, options.faults.split(",")
    )
    rounds = {"rounds": options.rounds} if options.rounds else {}
    rows, others = [], []
    for number, fault in enumerate(faults.values()):
        folder = FOLDER / f"hub-{number}"
        row = [fault.name]
        with (
            onekey.happening(fabric, fault),
            onekey.Bed(folder, fabric, api, ITERATIONS, **rounds) as bed,
        ):
            for name, way in ways.items():
                began = time.monotonic()
                found = way(bed, fault)
                outcome = onekey.judged(fabric, fault, found)
                row.append(f"{outcome}, {time.monotonic() - began:.0f} s")
                print(f"{fault.name}, {name}: {row[-1]}: {found.text[:200]}", file=sys.stderr)
                if outcome != "named":
                    others.append(f"{fault.name}, {name}: {found.outcome}: {found.text}")
        rows.append(row)
    if rows:
        measure.table(["half of the rate", *ways], rows)
    for line in others:
        print(line, flush=True)
    return not others


def _chosen(known: dict[str, Value], names: Sequence[str]) -> dict[str, Value]:
    """Those with these names; all where no name is given."""
    return (
        {} if names == ["none"] else {name: known[name] for name in names} if any(names) else known
    )


def _healthy(fabric: RailFabric, api: CheckApi, options: argparse.Namespace) -> bool:
    """Print what checks of pairs find where all links have their rate, while other processes want
    the processors. Returns whether none was called bad.
    """
    names, devices = fabric.names, fabric.devices
    pairs = list(zip(names[::2], names[1::2], strict=False))
    with onekey.Bed(FOLDER / "healthy", fabric, api, options.iterations) as bed:

        def check(number: int) -> Mapping[str, Any]:
            turn, place = divmod(number, len(pairs))
            device = devices[turn % len(devices)]
            request = {"kind": "pair", "nodes": pairs[place], "preset": onekey.PRESET}
            return bed.ended(bed.submit({**request, "test": {"device": device}}))

        busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(options.load)]
        began = time.monotonic()
        # One check after the other on each pair.
        with ThreadPoolExecutor(len(pairs)) as threads:
            turns = threads.map(
                lambda place: list(map(check, range(place, options.runs, len(pairs)))),
                range(len(pairs)),
            )
            details = [detail for turn in turns for detail in turn]
        seconds, load = time.monotonic() - began, os.getloadavg()[0]
        for process in busy:
            process.kill()
            process.wait()
    outcomes = Counter(detail["check"]["verdict"]["outcome"] for detail in details)
    shares = sorted(
        row["bandwidth_bytes_per_second"] / LINK_BYTES_PER_SECOND
        for detail in details
        for result in detail["results"]
        for report in result.get("reports", ())
        for row in report["rows"]
    )
    what = f"{options.runs} checks of healthy pairs, {options.load} busy processes, load {load:.1f}"
    figures = [f"{measure.percentile(shares, part):.2f}" for part in (0.0, 0.01, 0.1, 0.5, 1.0)]
    measure.table(
        [what, "ok", "bad", "unknown", "tests", "lowest", "1 %", "10 %", "median", "highest"],
        [
            [
                f"{seconds:.0f} s",
                *(str(outcomes[one]) for one in OUTCOMES),
                str(len(shares)),
                *figures,
            ]
        ],
    )
    for detail in details:
        verdict = detail["check"]["verdict"]
        if verdict["outcome"] != "ok":
            print(f"{verdict['outcome']}: {verdict['message']}", flush=True)
    return not outcomes["bad"]


if __name__ == "__main__":
    sys.exit(_inside(_options(sys.argv[1:])))
