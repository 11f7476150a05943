"""What the library frees after its start does not stay with the probe's process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from testbed.gpus import Machine
from testbed.node import ROOT

BLOCKS = 50_000  # of 1000 bytes
CODE = """
import sys
from nodevitals.probes.nvidia import nvml

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

before = resident_bytes()
nvml.start(sys.argv[1])
print(resident_bytes() - before)
"""


def test_memory_of_the_start_is_returned(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=1).start()
    machine.state["init_blocks"] = str(BLOCKS)
    machine.write()
    done = subprocess.run(
        [sys.executable, "-c", CODE, machine.settings["library"]],
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter"), **machine.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < BLOCKS * 1000 / 2
