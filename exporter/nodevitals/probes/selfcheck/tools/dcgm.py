"""dcgmi diag: NVIDIA's diagnosis of the GPUs.

Version 3 has the root `DCGM GPU Diagnostic` and `gpu_ids`, version 4 the root `DCGM Diagnostic`,
`entity_group` and `entity_id`; some releases mix them. The statuses may have any case. The exit
status is not 0 if a test failed, so it does not show a harness failure.
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from nodevitals.probes.selfcheck.results import Outcome, Result, for_all, line, worst
from nodevitals.probes.selfcheck.tools.documents import find_document, last_line, objects, text_of

ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
LEVELS = (1, 2, 3)
TIMEOUT_SECONDS = {1: 120.0, 2: 600.0, 3: 2400.0}
HELPER = "nvvs"
"""The program that tests the GPUs. The host engine starts it, so it is no child of `dcgmi`, which
stops it when it gets SIGTERM."""
_OUTCOMES: dict[str, Outcome] = {
    "pass": "ok",
    "fail": "failed",
    "warn": "warning",
    "skip": "skipped",
    "skipped": "skipped",
    "not run": "skipped",
}
# dcgmErrorSeverity_t: "can be configured", for example if persistence mode is off.
_CONFIGURATION = 5
# Version 3 has no severities; these tests check settings and software of the node.
_SOFTWARE = frozenset(
    (
        *("blacklist", "denylist", "nvml library", "cuda main library", "cuda toolkit library"),
        *("permissions and os-related blocks", "persistence mode", "environment variables"),
        *("graphics processes",),
    )
)
_INDEX = re.compile(r"[0-9]{1,4}")


def argv(level: int, devices: Sequence[str]) -> list[str]:
    """The command line; all GPUs if `devices` is empty."""
    return [
        "dcgmi",
        "diag",
        "-r",
        str(level),
        "-j",
        *(["-i", ",".join(devices)] if devices else []),
    ]


def parse(text: str, status: int, devices: Sequence[str]) -> list[Result]:
    """One result per GPU, from all tests. A GPU of `devices` that no test names has no result. All
    other devices in the output share one result without a device.
    """

    def harness(message: str) -> list[Result]:
        return for_all("dcgm", devices, "", "harness", message)

    document = find_document(text, ROOTS)
    if document is None:
        return harness(f"no JSON in the output; its last line: {last_line(text)}")
    if status < 0:
        return harness(f"dcgmi was killed by signal {-status}")
    findings: dict[str, list[tuple[Outcome, str]]] = defaultdict(list)
    for category in objects(document.get("test_categories")):
        for test in objects(category.get("tests")):
            for device, outcome, message in _findings(test):
                if device in devices:
                    findings[device].append((outcome, message))
                else:
                    findings[""].append((outcome, f"{device} {message}".lstrip()))
    if not findings:
        return harness(text_of(document.get("runtime_error")) or "no test in the output")
    return [_summary(device, findings[device]) for device in sorted(findings, key=_order)]


def _findings(test: dict[str, Any]) -> Iterator[tuple[str, Outcome, str]]:
    """The device, the outcome and the text of each result of a test."""
    name = line(text_of(test.get("name")))[:60] or "a test without a name"
    found_failure = False
    for result in objects(test.get("results")):
        outcome, message = _outcome(name, result)
        found_failure |= outcome in ("failed", "warning")
        for device in _devices(result):
            yield device, outcome, message
    summary = test.get("test_summary")
    if isinstance(summary, dict) and not found_failure:
        outcome, message = _outcome(name, summary)
        if outcome in ("failed", "warning"):
            yield "", outcome, message  # for the node, or for an unknown device


def _outcome(name: str, result: dict[str, Any]) -> tuple[Outcome, str]:
    printed = text_of(result.get("status"))
    outcome = _OUTCOMES.get(" ".join(printed.lower().split()))
    if outcome is None:
        return "harness", f"{name}: status {line(printed)[:40] or 'missing'}"
    texts = list(_warnings(result))
    if outcome == "failed" and _is_configuration(name, result):
        outcome = "warning"
    return outcome, f"{name}: {texts[0] if texts else printed}"


def _warnings(result: dict[str, Any]) -> Iterator[str]:
    """The texts: strings in version 3, objects in version 4."""
    listed = result.get("warnings")
    for warning in listed if isinstance(listed, list) else [listed]:
        text = text_of(warning.get("warning") if isinstance(warning, dict) else warning)
        if text.strip():
            yield line(text)


def _is_configuration(name: str, result: dict[str, Any]) -> bool:
    """Whether a failure concerns only the node's settings, not the hardware."""
    listed = result.get("warnings")
    with_severity = objects(listed)
    if isinstance(listed, list) and with_severity:
        same = [warning.get("error_severity") == _CONFIGURATION for warning in with_severity]
        return all(same) and len(same) == len(listed)
    return name.lower() in _SOFTWARE


def _devices(result: dict[str, Any]) -> list[str]:
    """The GPUs of a result, by index; another entity by its group, as in `CPU 0`."""
    if "entity_id" in result:
        number = result["entity_id"]
        group = line(text_of(result.get("entity_group")))[:20]
        known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10_000
        if not known:
            return [""]
        return [str(number) if group.upper() in ("", "GPU") else f"{group} {number}"]
    for key in ("gpu_ids", "gpu_id"):
        if key in result:
            words = [word.strip() for word in str(result[key]).split(",", 1024)]
            return [word for word in words if _INDEX.fullmatch(word)] or [""]
    return [""]


def _summary(device: str, findings: Sequence[tuple[Outcome, str]]) -> Result:
    """One result of all tests of a device: the worst one, with what it printed."""
    outcome = worst(test_outcome for test_outcome, _ in findings)
    assert outcome is not None
    if outcome in ("ok", "skipped"):
        passed = sum(test_outcome == "ok" for test_outcome, _ in findings)
        message = f"{passed} of {len(findings)} tests ran and passed"
    else:
        message = next(text for test_outcome, text in findings if test_outcome == outcome)
    return Result(kind="dcgm", device=device, outcome=outcome, message=line(message))


def _order(device: str) -> int:
    return int(device) if device else 10_000
