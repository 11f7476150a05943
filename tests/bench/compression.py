"""Size and time of gzip levels on the text of a scrape: why exposition.py has the level it has."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

from bench.measure import percentile, table

DEVICES, FAMILIES, ROUNDS = 200, 50, 15


def main(_: Path) -> None:
    """Print the table."""
    lines = []
    for family in range(FAMILIES):
        name = f"nodevitals_accelerator_family_{family}"
        lines.append(f"# HELP {name} Value {family} of a device.\n# TYPE {name} gauge\n")
        lines += [
            f'{name}{{vendor="nvidia",device="{device}",uuid="GPU-{device * 2654435761:020x}"}}'
            f" {(device * 7919 + family) % 1000 / 10}\n"
            for device in range(DEVICES)
        ]
    text = "".join(lines).encode()
    rows = []
    for level in (1, 4, 6, 9):
        times = []
        for _round in range(ROUNDS):
            started = time.perf_counter()
            compressor = zlib.compressobj(level, zlib.DEFLATED, 31)
            compressed = compressor.compress(text) + compressor.flush()
            times.append(time.perf_counter() - started)
        size = f"{len(compressed) / 1024:.0f} KiB"
        rows.append([str(level), size, f"{percentile(times, 0.5) * 1000:.1f} ms"])
    print(f"{DEVICES * FAMILIES} series, {len(text) / 1024:.0f} KiB of text.\n")
    table(["level", "size", "time"], rows)
