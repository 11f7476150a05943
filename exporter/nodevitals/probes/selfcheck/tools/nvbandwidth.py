"""nvbandwidth: copies between the memory of the host and of each GPU, one GPU after the other.

Its JSON has the figures as strings, in GB/s of 10^9 bytes, and `N/A` for what was not measured. A
test case that was started and never finished stays `Running`.
https://github.com/NVIDIA/nvbandwidth
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodevitals.probes.selfcheck.results import Kind, Result, for_all, line, measured
from nodevitals.probes.selfcheck.tools.documents import find_document, last_line, objects, text_of

TESTCASES: dict[Kind, str] = {
    "host_to_device": "host_to_device_memcpy_ce",
    "device_to_host": "device_to_host_memcpy_ce",
}
GIGA = 1e9
_UNIT = "(GB/s)"
_CELL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:e[+-][0-9]{1,2})?")
_NOT_MEASURED = "N/A"
# The tool verifies what it copied.
_CORRUPTION = re.compile(r"Invalid value when checking the pattern[^\n]{0,200}")


def argv(kind: Kind) -> list[str]:
    """The command line. `CUDA_VISIBLE_DEVICES` chooses the GPUs."""
    return ["nvbandwidth", "-j", "-t", TESTCASES[kind]]


def parse(
    text: str, status: int, kind: Kind, devices: Sequence[str], expected: float | None
) -> list[Result]:
    """The results of one test case: one per GPU, in the order of `devices`."""
    wrong = _CORRUPTION.search(text)
    if wrong:
        # Which GPU it was is not in the output.
        return for_all(kind, devices if len(devices) == 1 else (), "", "failed", wrong[0])

    def harness(message: str) -> list[Result]:
        return for_all(kind, devices, "", "harness", message)

    document = find_document(text, ("nvbandwidth",))
    if document is None:
        return harness(f"no JSON in the output; its last line: {last_line(text)}")
    error = text_of(document.get("error"))
    if error:
        return harness(error)
    name = TESTCASES[kind]
    cases = [case for case in objects(document.get("testcases")) if case.get("name") == name]
    if len(cases) != 1:
        return harness(f"{len(cases)} results of {name}")
    case = cases[0]
    ended = text_of(case.get("status"))
    if ended == "Waived":
        return for_all(kind, devices, "", "skipped", f"{name} is waived on this node")
    if ended != "Passed":
        return harness(f"{name}: status {ended or 'missing'} {text_of(case.get('error'))}")
    if status != 0:
        return harness(f"nvbandwidth ended with status {status}")
    return _results(case, kind, devices, expected)


def _results(
    case: dict[str, Any], kind: Kind, devices: Sequence[str], expected: float | None
) -> list[Result]:
    """The cells of a matrix with one row, that of the host, and a column for each GPU."""
    matrix = case.get("bandwidth_matrix")
    rows = matrix if isinstance(matrix, list) else []
    if len(rows) != 1 or not isinstance(rows[0], list) or len(rows[0]) != len(devices):
        shape = " and ".join(str(len(row)) if isinstance(row, list) else "?" for row in rows[:4])
        text = f"a matrix of {shape or 'no'} columns for {len(devices)} GPUs: is MIG on?"
        return for_all(kind, devices, "", "harness", text)
    if _UNIT not in text_of(case.get("bandwidth_description")):
        return for_all(kind, devices, "", "harness", f"the matrix is not in {_UNIT}")
    return [_result(cell, kind, device, expected) for cell, device in zip(rows[0], devices)]


def _result(cell: object, kind: Kind, device: str, expected: float | None) -> Result:
    text = text_of(cell)
    if text == _NOT_MEASURED:
        message = "nvbandwidth did not measure it"
        return Result(kind=kind, device=device, outcome="skipped", message=message)
    if not _CELL.fullmatch(text):
        message = f"{line(repr(cell))[:60]} is no bandwidth"
        return Result(kind=kind, device=device, outcome="harness", message=message)
    return measured(kind, device, "", float(text) * GIGA, expected)
