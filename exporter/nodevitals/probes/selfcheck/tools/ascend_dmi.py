"""ascend-dmi --bw: copies between the memory of the host and of one NPU.

Its GB/s are 10^9 bytes, as its sizes and times show. The time is for one copy, or in later versions
for all copies.
https://www.hiascend.com/document/detail/en/mindcluster/730/toolbox/toolboxug/toolboxug_0015.html
"""

from __future__ import annotations

import re

from nodevitals.probes.fabric.tools.report import agrees
from nodevitals.probes.selfcheck.results import Kind, Result, for_all, measured
from nodevitals.probes.selfcheck.tools.documents import last_line

DIRECTIONS: dict[Kind, str] = {"host_to_device": "h2d", "device_to_host": "d2h"}
TITLES: dict[Kind, str] = {
    "host_to_device": "Host to Device Test",
    "device_to_host": "Device to Host Test",
}
SIZE = 128 * 2**20
TIMES = 40
GIGA = 1e9
_ROW = re.compile(
    r"^[ \t|]*([0-9]{1,4})[ \t|]+([0-9]{1,15})[ \t|]+([0-9]{1,6})[ \t|]+"
    r"([0-9]{1,9}\.[0-9]{1,9})[ \t|]+([0-9]{1,15}\.[0-9]{1,9})[ \t|]*$",
    re.MULTILINE,
)


def argv(kind: Kind, device: str) -> list[str]:
    """The command line; -q answers the question whether to go on."""
    words = ["ascend-dmi", "--bw", "-t", DIRECTIONS[kind], "-d", device]
    return [*words, "-s", str(SIZE), "--et", str(TIMES), "-q"]


def parse(text: str, status: int, kind: Kind, device: str, expected: float | None) -> list[Result]:
    """The row of this device."""

    def harness(message: str) -> list[Result]:
        return for_all(kind, (device,), "", "harness", message)

    rows = [row for row in _ROW.findall(text) if row[0] == device and int(row[1]) == SIZE]
    if status != 0 or TITLES[kind] not in text or len(rows) != 1:
        return harness(f"ascend-dmi ended with status {status}; its last line: {last_line(text)}")
    size, times, rate, microseconds = (float(value) for value in rows[0][1:])
    seconds = microseconds * 1e-6
    moved = (size, size * times)
    if seconds <= 0 or not any(
        agrees(rate * GIGA, volume / seconds, 0.0, 5e-3) for volume in moved
    ):
        return harness(f"{rate:g} GB/s is not size over time")
    return [measured(kind, device, "", rate * GIGA, expected)]
