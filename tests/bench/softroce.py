"""The one-key check with the real perftest over soft-RoCE, between two kernels.

Two virtual machines with Debian's kernel are tested by ssh: every operation is started, ends and
is read, the GID is found, a latency that netem makes ten times as long is seen, and no tool is left
when the check is ended. Rates under emulation prove nothing. Needs root, QEMU, mmdebstrap and a
Debian mirror; some 10 minutes on two cores, of which 3 are the image, which is made once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import table
from testbed import virtual_machines
from testbed.node import PYTHON, free_port, wait_until
from testbed.virtual_machines import NAMES, Machines, started

CACHE = Path(tempfile.gettempdir()) / "nodevitals-virtual-machines"
OPERATIONS = ("write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat")
# Few and small: each message is work for two emulated processors.
AMOUNT = ("--sizes", "64KiB", "--iterations", "50", "--timeout", "180")
COMMAND = [PYTHON, "-m", "nodevitals", "fabric", "check", "--nodes", ",".join(NAMES), "--json"]


def check(machines: Machines, *arguments: str) -> tuple[int, Any]:
    """Run a check to its end. Returns its status and its JSON."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, "PATH": machines.path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def tools(machines: Machines) -> str:
    """The tools that run on both machines."""
    return "".join(machines.run(name, "pgrep -lx ib_write_bw || true") for name in NAMES)


def medians(found: Any) -> list[float]:
    """The medians of a check of one latency, of both directions, in seconds."""
    return [
        result["reports"][0]["rows"][0]["latency_seconds"]["median"] for result in found["results"]
    ]


def every_operation(machines: Machines) -> list[list[str]]:
    """Each operation in both directions: its command line, and whether it gave a result."""
    status, found = check(
        machines, "--device", "rxe*", "--operation", ",".join(OPERATIONS), *AMOUNT
    )
    test = found["check"]["request"]["test"]
    assert test["device"] == "rxe0", test
    rows = []
    for result in found["results"]:
        if "series" in result:
            continue  # a repetition of some
        for operation, report, command in zip(
            OPERATIONS, result["reports"], result["commands"], strict=True
        ):
            client = command.splitlines()[-1]
            assert f"ib_{operation} -d rxe0 -i 1 -x 1" in client, client
            rows.append([" - ".join(result["nodes"]), client, report["outcome"]])
            assert report["outcome"] == "ok", (report, result["outputs"])
            assert report["rows"][0]["link_layer"] == "Ethernet"
    # soft-RoCE promises neither a rate nor a latency: only the two directions are compared.
    verdict = found["check"]["verdict"]
    assert (verdict["reason"], status) in (("threshold", 1), ("threshold", 2)), verdict
    print(f"verdict: {verdict['outcome']}: {verdict['message']}\n")
    return rows


def slow_latency(machines: Machines) -> list[list[str]]:
    """The latency before and with netem, against the expectation of what it was before."""
    latency = ("--device", "rxe0", "--operation", "send_lat", *AMOUNT)
    _, before = check(machines, *latency)
    usual = max(medians(before))
    delay = f"{9 * usual * 1e6:.0f}us"
    expected = ("--expected-latency", f"{2 * usual * 1e6:.1f}")
    well, _ = check(machines, *latency, *expected)
    machines.run(NAMES[1], f"tc qdisc add dev enp0s4 root netem delay {delay}")
    machines.run(NAMES[0], f"tc qdisc add dev enp0s4 root netem delay {delay}")
    bad, after = check(machines, *latency, *expected)
    for name in NAMES:
        machines.run(name, "tc qdisc del dev enp0s4 root")
    verdict = after["check"]["verdict"]
    assert (well, bad, verdict["outcome"]) == (0, 1, "bad"), (well, verdict)
    assert "times the expected latency" in verdict["message"], verdict
    return [
        ["before", f"{usual * 1e6:.0f} us", "well"],
        [f"netem {delay}", f"{min(medians(after)) * 1e6:.0f} us", verdict["message"]],
    ]


def ended(machines: Machines) -> list[list[str]]:
    """The tools that are left some seconds after the check was ended, by each signal."""
    rows = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        words = ["--device", "rxe0", "--seconds", "60", "--timeout", "70"]
        process = subprocess.Popen(
            [*COMMAND, *words],
            env={**os.environ, "PATH": machines.path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: tools(machines).count("ib_write_bw") >= 2, 180, "both tools run")
        process.send_signal(number)
        process.wait(120)
        began = time.monotonic()
        wait_until(lambda: not tools(machines), 180, "no tool is left")
        rows.append([number.name, f"{time.monotonic() - began:.0f} s until no tool was left"])
    return rows


def main(folder: Path) -> None:
    """Run as a part of `make proof`."""
    if lacking := virtual_machines.missing():
        sys.exit(f"softroce: this machine lacks {lacking}")
    virtual_machines.make_image(CACHE)
    ports = (free_port(), free_port(), free_port(), free_port())
    with started(CACHE, folder, ports) as machines:
        print(machines.run(NAMES[0], "ib_write_bw --version; uname -r"))
        table(("PAIR", "COMMAND", "OUTCOME"), every_operation(machines))
        table(("LATENCY", "MEDIAN", "VERDICT"), slow_latency(machines))
        table(("SIGNAL", "TOOLS"), ended(machines))
