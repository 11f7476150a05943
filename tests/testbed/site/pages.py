"""The pages that real agents expose, kept in files: a site starts in seconds.

`tools/test-python -m testbed.site.pages` writes them anew, from agents with simulated hardware.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from testbed import agentpage, npus
from testbed.node import Node, wait_until

FOLDER = Path(__file__).parent
PORTS = 4
# What an NPU node exposes last: of the second tool, and of the second run of a probe.
_LAST = ("nodevitals_ascend_optical_receive_watts{", "nodevitals_node_cpu_utilization_ratio ")
_DOMAINS = {"leaf": "leaf", "rack": "rack", "pool": "pool"}
_TEMPORARY = re.compile(r"/tmp/tmp\w+/")
# Of simulated hardware alone: interfaces without a cable, and the clock of this machine.
_UP = re.compile(r"^(nodevitals_(?:network_up\{.*\}|node_clock_synchronized)) 0$", re.MULTILINE)


def main() -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as folder:
        gpu = agentpage.read(Path(folder), PORTS)
    with tempfile.TemporaryDirectory() as folder:
        npu = _npu(Path(folder))
    for name, page in (("gpu", gpu), ("npu", npu)):
        lines = [line for line in page.splitlines(keepends=True) if line[0] != "#"]
        text = _UP.sub(r"\1 1", _TEMPORARY.sub("/mnt/", "".join(lines)))
        (FOLDER / f"{name}.prom").write_text(text)


def _npu(folder: Path) -> str:
    machine = npus.Machine(folder, "910B").start()
    probes = {"ascend": {**machine.settings, "expected": 8}, "node": {}}
    with Node(folder, {"labels": _DOMAINS, "probes": probes}, *machine.flags) as node:
        wait_until(lambda: node.get("/readyz").ok)
        wait_until(lambda: all(f"\n{name}" in node.get().text for name in _LAST), 60)
        return str(node.get().text)


if __name__ == "__main__":
    main()
