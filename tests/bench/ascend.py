"""The probe `ascend` at its default timers on a simulated machine with eight 910B: how often and
for how long a tool runs, and whether two ever run at once.

The calls take as long as reported for such a machine: 5.4 s for the whole table, 0.3 s for others.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.measure import table
from testbed.node import ROOT, Node, wait_until
from testbed.npus import Machine

SECONDS = 300
TOOL_SECONDS = "nodevitals_ascend_tool_seconds_total"


def main(folder: Path) -> None:
    """Print the table."""
    machine = Machine(folder).start()
    machine.set(table_seconds=5.4, seconds=0.3)
    node = Node(
        folder,
        {"probes": {"ascend": machine.settings}},
        *machine.flags,
        PYTHONPATH=str(ROOT / "exporter"),
    )
    with node as running:
        wait_until(lambda: running.value(TOOL_SECONDS), 60)
        # The first cycles refresh everything; the measurement starts after them.
        wait_until(lambda: running.value("nodevitals_ascend_link_up", device="7") is not None, 300)
        time.sleep(60)
        began, before, calls = time.monotonic(), running.value(TOOL_SECONDS), len(machine.calls())
        time.sleep(SECONDS)
        took = (running.value(TOOL_SECONDS) or 0) - (before or 0)
        made = machine.calls()[calls:]
        overlaps = sum(call.startswith("OVERLAP") for call in machine.calls())
        seconds = time.monotonic() - began
        chips = running.value("nodevitals_accelerators_present")
    print(f"{seconds:.0f} s at default timers, {chips:g} chips.\n")
    npu_smi = sum("npu-smi" in call for call in made)
    table(
        ["npu-smi calls", "of them the table", "hccn_tool calls", "share of time", "two at once"],
        [
            [
                str(npu_smi),
                str(made.count("npu-smi info")),
                str(len(made) - npu_smi),
                f"{took / seconds:.1%}",
                str(overlaps),
            ]
        ],
    )
