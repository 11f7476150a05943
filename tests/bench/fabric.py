"""Fabric tests at length: 1,000 slots of chaos, the time to stop a test, the cost of the plan."""

from __future__ import annotations

import time
from pathlib import Path

from integration.test_fabric import chaos, job
from nodevitals.probes.fabric.members import Roster
from testbed.loopback import TEST, Loopback
from testbed.node import wait_until

SLOTS = 1000
SLOT_SECONDS = 1.5
NODES = 10_000


def main(folder: Path) -> None:
    """Print one line for each."""
    began = time.perf_counter()
    roster = Roster((f"node-{n:05}", f"leaf-{n // 32}") for n in range(NODES))
    made = time.perf_counter()
    for slot in range(1000):
        roster.pairing("node-04242", slot)
    looked_up = time.perf_counter()
    print(f"{NODES} nodes: roster {1e3 * (made - began):.1f} ms,", end=" ")
    print(f"a node's slot {1e3 * (looked_up - made) / 1000:.4f} ms")

    (folder / "stop").mkdir()
    stops = sorted(_stopped(folder / "stop" / str(number)) for number in range(5))
    print(f"a job stops a test after {', '.join(f'{one:.2f}' for one in stops)} s", flush=True)

    (folder / "chaos").mkdir()
    counts = chaos(folder / "chaos", SLOTS, SLOT_SECONDS)
    print(
        f"{SLOTS} slots of {SLOT_SECONDS} s with 4 agents in chaos: {counts}; no process was left\n"
    )


def _stopped(folder: Path) -> float:
    folder.mkdir()
    with Loopback(folder, 2, slot="36s", tests=[{**TEST, "timeout": "12s"}]) as made:
        for node in made.nodes.values():
            node.environment["FAKE_SECONDS"] = "11"
        made.start()
        wait_until(lambda: len(made.tool_processes()) == 2, 60, "a test")
        for name in made.names:
            job(made, name)
        began = time.monotonic()
        wait_until(lambda: not made.tool_processes(), 8, "the tools' end")
        return time.monotonic() - began
