"""A Prometheus that has a history: samples of days, backfilled as blocks.

https://prometheus.io/docs/prometheus/latest/storage/#backfilling-from-openmetrics-format
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.servers import BINARIES, PrometheusProcess

PROMTOOL = str(BINARIES / "promtool")
# Values over time: pairs of the second from which a value holds, and the value; None is no sample.
Steps = Sequence[tuple[float, float | None]]


class History:
    """Series over a span: each is a value that changes at some times, sampled at an interval."""

    def __init__(self, start: float, seconds: float, interval: float = 60) -> None:
        self.start, self.end, self._interval = start, start + seconds, interval
        self._series: dict[str, list[tuple[str, Steps]]] = {}

    def add(self, metric: str, value: float | Steps, **labels: str) -> None:
        """Add a series; `value` is constant, or begins at seconds since the start."""
        steps = value if isinstance(value, Sequence) else [(0.0, float(value))]
        pairs = ",".join(f'{name}="{text}"' for name, text in labels.items())
        self._series.setdefault(metric, []).append((pairs, steps))

    def write(self, folder: Path) -> Path:
        """Write everything as blocks; return the folder, a data folder for Prometheus."""
        day = 86400.0
        text = folder.with_suffix(".openmetrics")
        begin = self.start
        while begin < self.end:
            with text.open("w") as file:
                file.writelines(self._lines(begin, min(begin + day, self.end)))
            argv = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics"]
            argv += [str(text), str(folder)]
            subprocess.run(argv, check=True, capture_output=True)
            begin += day
        text.unlink()
        return folder

    def _lines(self, begin: float, end: float) -> Iterator[str]:
        for metric, series in self._series.items():
            yield f"# TYPE {metric} unknown\n"
            for labels, steps in series:
                for first, value, after in self._constant(steps):
                    time = max(first, begin)
                    while value is not None and time < min(after, end):
                        yield f"{metric}{{{labels}}} {value:.12g} {time:.0f}\n"
                        time += self._interval
        yield "# EOF\n"

    def _constant(self, steps: Steps) -> Iterator[tuple[float, float | None, float]]:
        """A value with the times from and before which it is sampled."""
        starts = [self.start + second for second, _ in steps]
        for (_, value), first, after in zip(steps, starts, [*starts[1:], self.end], strict=True):
            late = (self.start - first) % self._interval
            yield (first + late, value, after)


class HistoricPrometheus(PrometheusProcess):
    """Prometheus over a history; it scrapes nothing and has no rules."""

    def __init__(self, folder: Path, blocks: Path, *flags: str) -> None:
        super().__init__(folder, "historic")
        self.flags = ("--storage.tsdb.retention.time=10y", *flags)
        shutil.copytree(blocks, self.folder / "data")
        (self.folder / "prometheus.yaml").write_text("scrape_configs: []\n")
