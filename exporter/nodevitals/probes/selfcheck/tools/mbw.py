"""mbw: copies of the host's memory by one thread.

It prints MiB of one array, seconds, and their quotient, so a garbled line is detected. The bytes
are counted once, although each is read and written. https://github.com/raas/mbw
"""

from __future__ import annotations

import re

from nodevitals.probes.fabric.tools.report import agrees
from nodevitals.probes.selfcheck.results import Result, for_all, measured
from nodevitals.probes.selfcheck.tools.documents import last_line

MEBI = 2**20
RUNS = 10
ARRAYS = 2
_AVERAGE = re.compile(
    r"^AVG\tMethod: MEMCPY\tElapsed: ([0-9]{1,9}\.[0-9]{5})\tMiB: ([0-9]{1,9}\.[0-9]{5})\t"
    r"Copy: ([0-9]{1,12}\.[0-9]{3}) MiB/s$",
    re.MULTILINE,
)


def argv(mebibytes: int) -> list[str]:
    """The command line for arrays of this size."""
    return ["mbw", "-q", "-n", str(RUNS), "-t0", str(mebibytes)]


def parse(text: str, status: int, mebibytes: int, expected: float | None) -> list[Result]:
    """The average of all runs."""
    averages = _AVERAGE.findall(text)
    if status != 0 or len(averages) != 1:
        message = f"mbw ended with status {status}; its last line: {last_line(text)}"
        return for_all("memory", (), "", "harness", message)
    seconds, size, rate = map(float, averages[0])
    # The seconds have five digits after the point.
    if seconds <= 0 or not agrees(rate, size / seconds, 0.0, 1e-3 + 0.5e-5 / seconds):
        return for_all("memory", (), "", "harness", f"{rate:g} MiB/s is not size over time")
    if size != mebibytes:
        return for_all("memory", (), "", "harness", f"arrays of {size:g} MiB, not {mebibytes}")
    return [measured("memory", "", "", rate * MEBI, expected)]
