"""Reads the text files of one folder, which unprivileged jobs write, and adds their samples.

Nothing but regular files of a bounded size is opened, no link is followed, and one file's content
cannot displace another's: the first of two equal series stays, in the order of the files' names.

The metrics of NCCL Inspector's Prometheus mode are put into base units. The plugin writes one file
per GPU, `nccl_inspector_metrics_UUID.prom`, every 30 s or less often:
https://github.com/NVIDIA/nccl/blob/master/plugins/profiler/inspector/README.md
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.linux.beneath import InterferenceError, open_file
from nodevitals.probe import Absent, Family, ProbeError, Readings
from nodevitals.probes.scripts import families
from nodevitals.probes.scripts.settings import TextfilesSettings
from nodevitals.probes.scripts.textfile import TextSample, UnreadableTextError, parse_textfile

_FILE = re.compile(
    r"nccl_inspector_metrics_([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.prom"
)
_COUNT = re.compile(r"[0-9]{1,9}")
_SIZE = re.compile(r"[0-9]{1,12}(?:-[0-9]{1,12})?(?:B|KB|MB|GB|TB)")
_WORD = re.compile(r"[A-Za-z0-9]{1,32}")
_ALGORITHM = re.compile(r"[A-Za-z0-9_]{0,64}")
# The plugin writes this for unknown values.
_UNKNOWN = "unknown"

SUFFIX = ".prom"
# A job may fill the folder with files: no more entries than this are looked at.
MAX_ENTRIES = 8192


class Metric(msgspec.Struct, frozen=True):
    """The family of a metric of the plugin, and the factor for its value."""

    family: Family
    factor: float


METRICS = {
    "nccl_bus_bandwidth_gbs": Metric(families.BUS_BANDWIDTH, 1e9),
    "nccl_collective_exec_time_microseconds": Metric(families.COLLECTIVE_SECONDS, 1e-6),
    "nccl_p2p_bus_bandwidth_gbs": Metric(families.P2P_BANDWIDTH, 1e9),
    "nccl_p2p_exec_time_microseconds": Metric(families.P2P_SECONDS, 1e-6),
}


class Row(msgspec.Struct, frozen=True):
    """One sample for a declared family; its value is None if the plugin has measured nothing."""

    family: Family
    labels: tuple[str, ...]
    value: Optional[float]


def gpu_of(file: str) -> str:
    """The GPU's UUID as NVML writes it, by the name of its file; '' for any other file."""
    match = _FILE.fullmatch(file)
    return f"GPU-{match[1]}" if match else ""


def parse_row(sample: TextSample, uuid: str) -> Row | None:
    """A sample of one of the METRICS; None if its labels or its value do not fit the plugin."""
    metric = METRICS[sample.name]
    labels = dict(sample.labels)
    known = {name: "" if text == _UNKNOWN else text for name, text in labels.items()}
    collective = "collective" in metric.family.labels
    operation = labels.get("collective" if collective else "p2p_operation", "")
    algorithm = known.get("algo_proto", "")
    if not (
        sample.value >= 0
        and _COUNT.fullmatch(labels.get("nranks", ""))
        and _COUNT.fullmatch(labels.get("n_nodes", ""))
        and _SIZE.fullmatch(labels.get("message_size", ""))
        and _WORD.fullmatch(operation)
        and _ALGORITHM.fullmatch(algorithm)
    ):
        return None
    row_labels = (
        uuid,
        known.get("gpu", ""),
        known.get("node", ""),
        known.get("slurm_job_id", ""),
        known.get("comm_name", ""),
        labels["n_nodes"],
        labels["nranks"],
        labels["message_size"],
        operation,
    )
    # 0 is the plugin's mean without any measurement.
    value = sample.value * metric.factor if sample.value > 0 else None
    return Row(metric.family, (*row_labels, algorithm) if collective else row_labels, value)


class StaleError(Exception):
    """The file was not changed for max_age."""


class TextFolder:
    """One run over a folder."""

    def __init__(self, settings: TextfilesSettings, path: str, readings: Readings) -> None:
        """`path` is the folder as a path of this process."""
        self._path = path
        self._settings = settings
        self._readings = readings
        self._files: Counter[str] = Counter(dict.fromkeys(families.TEXTFILE_STATES, 0))
        self._refused: Counter[str] = Counter(dict.fromkeys(families.REFUSALS, 0))
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def read(self) -> list[str]:
        """Read every file. Returns one line per file with problems; raises Absent and
        ProbeError.
        """
        path = self._settings.path
        try:
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Absent(f"{path}: No such directory") from None
        except OSError as error:
            raise ProbeError("folder", f"{path}: {error.strerror}") from None
        problems = []
        try:
            for name in self._names(folder):
                try:
                    self._read_file(folder, name)
                    self._files["read"] += 1
                except StaleError:
                    self._files["stale"] += 1
                except (OSError, InterferenceError, UnreadableTextError) as error:
                    self._files["unreadable"] += 1
                    problems.append(f"{path}: {name!r}: {_text(error)}")
        finally:
            os.close(folder)
        for state, count in self._files.items():
            self._readings.add(families.TEXTFILES, count, path, state)
        for reason, count in self._refused.items():
            self._readings.add(families.TEXTFILE_REFUSED, count, path, reason)
        return problems

    def _names(self, folder: int) -> list[str]:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry, _ in zip(entries, range(MAX_ENTRIES))
                if entry.name.endswith(SUFFIX) and not entry.name.startswith(".")
            )
        self._files["refused"] += len(names[self._settings.max_files :])
        return names[: self._settings.max_files]

    def _read_file(self, folder: int, name: str) -> None:
        descriptor = open_file(folder, name, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            # Its owner can set the one to any time, and the other to now.
            if time.time() - min(status.st_mtime, status.st_ctime) > self._settings.max_age:
                raise StaleError
            data = b"".join(_parts(descriptor, self._settings.max_file_bytes + 1))
        finally:
            os.close(descriptor)
        if len(data) > self._settings.max_file_bytes:
            raise UnreadableTextError(f"it is over {self._settings.max_file_bytes} bytes")
        parsed = parse_textfile(data, self._settings.max_series)
        self._refused["invalid"] += parsed.invalid
        uuid = gpu_of(name)
        for sample in parsed.samples:
            self._take(sample, uuid)

    def _take(self, sample: TextSample, uuid: str) -> None:
        if not sample.name.startswith(self._settings.prefixes):
            self._refused["name"] += 1
        elif sample.name in METRICS:
            row = parse_row(sample, uuid)
            if row is None:
                self._refused["invalid"] += 1
            elif row.value is not None:
                self._add(row.family, row.value, row.labels)
        else:
            further = tuple(text for pair in sorted(sample.labels) for text in pair)
            self._add(families.TEXTFILE_VALUE, sample.value, (sample.name, *further))

    def _add(self, family: Family, value: float, labels: tuple[str, ...]) -> None:
        key = (family.name, labels)
        if key in self._seen:
            self._refused["duplicate"] += 1
        elif len(self._seen) >= self._settings.max_series or not family.accepts(labels):
            self._refused["limit"] += 1
        else:
            self._seen.add(key)
            self._readings.add(family, value, *labels)


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    left = limit
    while left > 0 and (part := os.read(descriptor, min(left, 65536))):
        left -= len(part)
        yield part


def _text(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)
