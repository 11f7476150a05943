"""Every file and call of a probe fails in every way; only what comes from it is lost.

The probe runs in a process of its own, where calls of libc below Python fail (`testbed/faults`).
docs/unreadable.md is the table of what is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.longforms import long_forms
from testbed.unreadable import DOCUMENT, PROBES, section, sweep, violations

# Fewer would mean that the faults did not arrive.
PATHS = {
    "rdma": 90,
    "network": 60,
    "switches": 30,
    "node": 15,
    "kernel_log": 2,
    "jobs": 15,
    "peers": 3,
    "mounts": 1,
    "ascend": 6,
    "ascend_calls": 10,
}


@pytest.mark.parametrize(
    "name",
    long_forms(
        "unreadable", PROBES, short=set(PROBES) - {"ascend", "ascend_calls", "rdma", "switches"}
    ),
)
def test_only_what_comes_from_an_unreadable_file_is_lost(tmp_path: Path, name: str) -> None:
    report = sweep(name, tmp_path)
    assert violations(report) == []
    assert len(report.paths) >= PATHS[name]
    assert report.swept >= 12 * len(report.paths)
    assert section(name, report) in DOCUMENT.read_text(), "python -m testbed.unreadable"
