"""What the sweep may find, and docs/unreadable.md, which says what it finds.

Run as a program, `python -m testbed.unreadable` writes the document.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from testbed.faultycalls import library
from testbed.sweep import Report, Row, Series

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/unreadable.md"
PROBES = (
    *("rdma", "network", "switches", "node", "kernel_log", "jobs", "peers", "mounts"),
    *("ascend", "ascend_calls"),
)
# Devices of the simulated nodes that are not watched: a virtual function with its interface, a
# virtual interface, a representor.
UNWATCHED = frozenset(("mlx5_9", "ens77v1", "veth1", "enp40s0f0np0"))
TOGETHER = (frozenset(("mlx5_0", "ibp24s0")), frozenset(("mlx5_1", "ens32f0np0")))
# Where ENOENT says that the thing itself is gone, not that it cannot be read.
GONE = re.compile(
    r"sys/class/(?:infiniband|net|nvme)|sys/devices/system/edac/mc|sys/bus/pci/devices(?:/[^/]*)?"
    r"|sys/class/net/[^/]+/(?:bonding|device)|.*/physfn|proc/\d+/(?:stat|fd|fd/\d+)"
    r"|root/etc/(?:more|slurm/slurm.conf)|dev/kmsg"
)
# Counts of devices: one that may be among those that are left out is counted as well.
COUNTS = re.compile(r"nodevitals_(?:rdma_ports|network_interfaces|accelerators)_\w+|\w+_devices")
# What it counts is what cannot be identified.
UNIDENTIFIED = "nodevitals_jobs_unidentified_devices"
# The first run has no last value: what these hold is in the labels of other series.
LABELS = re.compile(r".*/link_layer|.*/bonding|npu-smi info(?: -m| -t board .*)")
# An NPU of which npu-smi lists nothing is an unreadable one.
NPU_TABLE = "npu-smi info"
STOPS_THE_RUN = ("killed", "hang")
_NAMES = (
    (r"sys/class/infiniband/[^/]+", "/sys/class/infiniband/DEVICE"),
    (r"sys/class/net/[^/]+", "/sys/class/net/INTERFACE"),
    (r"sys/class/nvme/[^/]+", "/sys/class/nvme/CONTROLLER"),
    (r"/mc\d+", "/CONTROLLER"),
    (r"sys/bus/pci/devices/[^/]+", "/sys/bus/pci/devices/ADDRESS"),
    (r"^proc/\d+", "/proc/PID"),
    (r"/ports/\d+", "/ports/PORT"),
    (r"/(gids|types|ndevs)/\d+", r"/\1/ROW"),
    (r"-i 0", "-i NPU"),
    (r"-c 0", "-c CHIP"),
    (r"/fd/\d+", "/fd/NUMBER"),
    (r"gpus/[^/]+", "gpus/ADDRESS"),
    (r"^root/etc/one.json", "a file of `file_sd`"),
    (r"^root/etc/more/two.json", "a file that a pattern of `file_sd` finds"),
    (r"^root/etc/more", "the directory of a pattern of `file_sd`"),
    (r"^root/etc/switches.csv", "the file of `ports_file`"),
    (r"^root/etc/fabric.txt", "the file of `ibnetdiscover`"),
    (r"^(proc|sys|dev)\b", r"/\1"),
    (r"^bin/(.*)", r"the program `\1`"),
)


def sweep(name: str, folder: Path, *options: str) -> Report:
    """Sweep a probe in a process of its own."""
    node = folder / name
    done = subprocess.run(
        [sys.executable, "-m", "testbed.sweep", name, str(node), *options],
        env={**os.environ, "LD_PRELOAD": str(library())}
        | {"PYTHONPATH": f"{ROOT / 'exporter'}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        check=True,
    )
    report = msgspec.json.decode(done.stdout, type=Report)
    for row in report.rows:
        row.path = row.path.removeprefix(f"{node}/")
    return report


def violations(report: Report) -> list[str]:
    """What is lost, changed or new and may not be, one line for each."""
    return [
        f"{row.path} ({row.fault}, {row.phase} run): {what}"
        for row in report.rows
        for what in _violations(row)
    ]


def _violations(row: Row) -> list[str]:
    found = []
    gone = "ENOENT" in row.fault and GONE.fullmatch(row.path)
    if row.reason.startswith("CRASH") or (row.reason == "ABSENT" and not gone):
        found.append(row.reason)
    if row.not_back:
        found.append(f"not as before after the recovery: {row.not_back[:3]}")
    if row.totals:
        found.append(f"counted: {row.totals}")
    if row.all_lost and not row.reason and not gone:
        found.append("everything is lost, and the run succeeded")
    if gone:
        return found
    relabelled = row.phase == "first" and LABELS.fullmatch(row.path)
    table = row.path == NPU_TABLE
    found += [
        f"new: {series}"
        for series in row.gained
        if not (relabelled or series[0].endswith("_info") or UNWATCHED & {*series[1]})
    ]
    new = any(UNWATCHED & {*labels} for _, labels in row.gained)
    found += [
        f"changed: {series}"
        for series in row.changed
        if not ((new or table or relabelled) and COUNTS.fullmatch(series[0]))
        and series[0] != UNIDENTIFIED
    ]
    found += [
        f"state of {device}: {state}"
        for device, state in row.states.items()
        if state not in ("unknown", "unreadable")
        and not relabelled
        and device.partition("/")[0] not in UNWATCHED
    ]
    owner = _owner(row)
    return found + [
        f"lost: {series}"
        for series in row.lost
        if owner and not owner & {*series[1]} and not COUNTS.fullmatch(series[0])
    ]


def _owner(row: Row) -> frozenset[str]:
    """The labels of which one belongs to the path's device; none where it belongs to all."""
    device = re.match(r"sys/class/(?:infiniband|net|nvme)/([^/]+)/", row.path)
    if device is not None:
        name = device[1]
        return next((group for group in TOGETHER if name in group), frozenset((name,)))
    if "-i 0" in row.path and row.fault not in STOPS_THE_RUN and row.phase != "first":
        return frozenset(("0",))
    return frozenset()


def document(reports: dict[str, Report]) -> str:
    """The whole document."""
    before = DOCUMENT.read_text().partition("\n## ")[0]
    return before + "".join(section(name, report) for name, report in reports.items())


def section(name: str, report: Report) -> str:
    """The section of a probe: a row for each path, those with the same loss together."""
    losses: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for row in report.rows:
        if row.fault in STOPS_THE_RUN or ("ENOENT" in row.fault and GONE.fullmatch(row.path)):
            continue
        later, first, reasons = losses.setdefault(_general(row.path), (set(), set(), set()))
        (first if row.phase == "first" else later).update(map(_short, row.lost))
        reasons.update({row.reason} - {""})
    rows: dict[tuple[str, str], list[str]] = {}
    for path, (later, first, reasons) in losses.items():
        cells = " | ".join(
            ", ".join(f"`{one}`" for one in sorted(some)) or "nothing"
            for some in (later, first - later, reasons)
        )
        rows.setdefault((os.path.dirname(path) if path[0] == "/" else "", cells), []).append(path)
    lines = [f"| {_joined(paths)} | {cells} |" for (_, cells), paths in rows.items()]
    head = "| file or call | lost | also lost at the first run | reason of the failed run |"
    return f"\n## {name}\n\n{head}\n|---|---|---|---|\n" + "\n".join(sorted(lines)) + "\n"


def _general(path: str) -> str:
    for pattern, name in _NAMES:
        path = re.sub(pattern, name, path, count=1)
    return path


def _short(series: Series) -> str:
    return series[0].removeprefix("nodevitals_")


def _joined(paths: list[str]) -> str:
    folder = os.path.dirname(paths[0])
    if len(paths) == 1 or paths[0][0] != "/":
        return ", ".join(one if "`" in one else f"`{one}`" for one in paths)
    return f"`{folder}/`: " + ", ".join(f"`{os.path.basename(one)}`" for one in paths)


def main() -> None:
    """Write the document."""
    with tempfile.TemporaryDirectory() as folder:
        reports = {name: sweep(name, Path(folder)) for name in PROBES}
    DOCUMENT.write_text(document(reports))


if __name__ == "__main__":
    main()
