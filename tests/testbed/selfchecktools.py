"""The tools of self-checks, without hardware: they check their arguments and print what the real
ones print. perftest's are in `perftools`.

FAKE_FAULT    what goes wrong, as `nvbandwidth=hang`; several with spaces between
FAKE_GIGA     bandwidth of every device, in 10^9 bytes per second
FAKE_FOLDER   folder for the ids of processes of a tool that hangs
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from testbed import tooloutput

PROGRAMS = ("nvbandwidth", "mbw", "dcgmi", "all_reduce_perf", "ascend-dmi")
MEBI = 2**20
CASES = {
    "host_to_device_memcpy_ce": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
    "device_to_host_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
}
# More than any program that reads it keeps.
FLOOD_BYTES = 64 * MEBI


def main(name: str) -> None:
    """Run as one of the programs."""
    faults = dict(one.split("=") for one in os.environ.get("FAKE_FAULT", "").split())
    fault = faults.get(name, "")
    text = {
        "nvbandwidth": _nvbandwidth,
        "mbw": _mbw,
        "dcgmi": _dcgmi,
        "all_reduce_perf": _all_reduce,
        "ascend-dmi": _ascend_dmi,
    }[name](sys.argv[1:], fault)
    if fault == "exit":
        sys.exit(1)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        _hang(name)
    if fault == "flood":
        for _ in range(FLOOD_BYTES // MEBI):
            sys.stdout.write("x" * MEBI)
    if fault == "cut":
        text = text[: len(text) // 2]
    print(text)
    if fault == "child":
        _leave_child()


def _hang(name: str) -> None:
    """Ignore SIGTERM, with a child that does so as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = _leave_child()
    folder = Path(os.environ["FAKE_FOLDER"])
    made = folder / f".{name}"
    made.write_text(f"{os.getpid()} {child}")
    made.rename(folder / f"{name}.pids")
    time.sleep(3600)


def _leave_child() -> int:
    """A child that holds no pipe of ours."""
    null = subprocess.DEVNULL
    return subprocess.Popen(["sleep", "3600"], stdout=null, stderr=null).pid


def _require(found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"unexpected arguments: {found}, not {expected}")


def _giga() -> float:
    return float(os.environ.get("FAKE_GIGA", "55.5"))


def _visible() -> list[str]:
    _require(os.environ.get("CUDA_DEVICE_ORDER"), "PCI_BUS_ID")
    return os.environ["CUDA_VISIBLE_DEVICES"].split(",")


def _nvbandwidth(arguments: list[str], fault: str) -> str:
    _require(arguments[:2], ["-j", "-t"])
    return nvbandwidth(arguments[2], [_giga()] * len(_visible()), fault)


def nvbandwidth(name: str, figures: list[float], fault: str = "") -> str:
    """Its JSON, with a fault in the first cell."""
    cells = [f"{figure:.6g}" for figure in figures]
    wrong = {"na": "N/A", "nan": "nan", "negative": "-55.5", "enormous": "9e+99", "zero": "0"}
    cells[0] = wrong.get(fault, cells[0])
    case: dict[str, object] = {
        "bandwidth_description": CASES[name],
        "bandwidth_matrix": [cells],
        "name": name,
        "status": "Passed",
        "sum": sum(figures),
    }
    if fault == "waived":
        case = {"name": name, "status": "Waived"}
    if fault == "running":
        case = {"name": name, "status": "Running"}
    if fault == "mig":
        case["bandwidth_matrix"] = [cells[:1]]
    document: dict[str, object] = {
        "CUDA Runtime Version": 12040,
        "Driver Version": "550.54.15",
        "git_version": "v0.8",
        "testcases": [case],
        "version": "v0.8",
    }
    if fault == "error":
        document["error"] = "[CUDA_ERROR_OUT_OF_MEMORY] out of memory: cuMemAlloc"
    lead = " Invalid value when checking the pattern at <0x7f>\n" if fault == "corrupt" else ""
    return lead + json.dumps({"nvbandwidth": document}, indent=3)


def _mbw(arguments: list[str], fault: str) -> str:
    _require(arguments[:4], ["-q", "-n", "10", "-t0"])
    return mbw(int(arguments[4]), _giga(), fault)


def mbw(mebibytes: int, giga: float, fault: str = "") -> str:
    """Its lines."""
    rate = giga * 1e9 / MEBI
    seconds = {"zero": 0.0, "garbled": 7.0}.get(fault, mebibytes / rate)
    printed = {"nan": "nan", "negative": "-1.000", "enormous": "9" * 400}.get(fault, f"{rate:.3f}")
    row = f"Method: MEMCPY\tElapsed: {seconds:.5f}\tMiB: {mebibytes:.5f}\tCopy: {printed} MiB/s"
    return "\n".join(f"{head}\t{row}" for head in (*range(10), "AVG"))


def _dcgmi(arguments: list[str], fault: str) -> str:
    _require(arguments[:2], ["diag", "-r"])
    _require(arguments[3], "-j")
    devices = arguments[5].split(",") if arguments[4:5] == ["-i"] else ["0", "1"]
    return dcgm4(devices, fault)


def dcgm4(devices: list[str], fault: str = "") -> str:
    """The JSON of version 4, after a line of text."""
    status = {"fail": "Fail", "warn": "Warn", "skip": "Skip", "odd": "Sideways"}.get(fault, "Pass")
    severity = 5 if fault == "configuration" else 2
    if fault == "configuration":
        status = "Fail"
    results: list[dict[str, object]] = [
        {"entity_group": "GPU", "entity_id": int(one), "status": "Pass"} for one in devices
    ]
    results[0]["status"] = status
    if status == "Fail":
        text = "GPU 0's memory has an uncorrectable error {ECC}"
        results[0]["warnings"] = [
            {"warning": text, "error_id": 40, "error_category": 7, "error_severity": severity}
        ]
    root: dict[str, object] = {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [
                    {
                        "name": "software",
                        "results": [
                            {"entity_group": "GPU", "entity_id": int(one), "status": "PASS"}
                            for one in devices
                        ],
                        "test_summary": {"status": "Pass"},
                    }
                ],
            },
            {"category": "Hardware", "tests": [{"name": "memory", "results": results}]},
        ]
    }
    if fault == "runtime_error":
        root = {"runtime_error": "Unable to reach the host engine."}
    document = {"DCGM Diagnostic": root, "metadata": {"version": "4.2.3"}}
    return "WARNING: {not JSON}\n" + json.dumps(document, indent=2)


def _all_reduce(arguments: list[str], fault: str) -> str:
    devices = len(_visible())
    _require(arguments[arguments.index("-g") + 1], str(devices))
    _require(arguments[:4], ["-b", "1G", "-e", "1G"])
    return all_reduce(devices, _giga(), fault)


def all_reduce(devices: int, giga: float, fault: str = "") -> str:
    """A whole run whose bus bandwidth is this."""
    factor = 2 * (devices - 1) / devices
    microseconds = (1 << 30) * factor / (giga * 1e9) * 1e6
    wrong = "3" if fault == "corrupt" else "0"
    row = tooloutput.nccl_row(1 << 30, microseconds, factor, wrong)
    return tooloutput.nccl(row if fault != "nan" else row.replace(" 0 ", " nan "))


def _ascend_dmi(arguments: list[str], fault: str) -> str:
    _require(arguments[:2], ["--bw", "-t"])
    _require(arguments[-1], "-q")
    words = dict(zip(arguments[1:-1:2], arguments[2:-1:2]))
    return ascend_dmi(words["-t"], words["-d"], int(words["-s"]), _giga(), fault)


def ascend_dmi(direction: str, device: str, size: int, giga: float, fault: str = "") -> str:
    """Its table."""
    title = {"h2d": "Host to Device Test", "d2h": "Device to Host Test"}[direction]
    microseconds = size / (giga * 1e9) * 1e6 * (3 if fault == "garbled" else 1)
    rule = "-" * 67
    return (
        f"{title}\nDevice {device}: Ascend 910B3.\n{rule}\n"
        f"  ID       Size(Bytes)    Execute Times  Bandwidth(GB/s)   Elapsed Time(us)\n{rule}\n"
        f"  {device}        {size}      40        {giga:.6f}     {microseconds:.2f}\n{rule}\n"
    )
