"""Files that others may replace: what is no regular file is not opened."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nodevitals.linux.beneath import MAX_FILE_BYTES, mount_id, read_file
from nodevitals.linux.host import Host
from nodevitals.probes.common.discovery import Discovery, DiscoveryState
from testbed.inotify import Watch


def test_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    (tmp_path / "link").symlink_to("file")
    assert read_file(str(tmp_path / "link")) == b"here"


def test_sparse_file_is_read_in_part(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2**40)
    assert len(read_file(str(tmp_path / "file"))) == MAX_FILE_BYTES


def test_list_of_peers_that_is_a_link_to_a_fifo_is_a_problem_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trap")
    (tmp_path / "peers.json").symlink_to("trap")
    discovery = Discovery(Host(), DiscoveryState(), 22)
    with Watch(tmp_path / "trap") as watch:
        found = list(discovery.targets([str(tmp_path / "peers.json")], [], time.monotonic()))
        assert watch.events() == []
    assert found == []
    assert [problem.reason for problem in discovery.problems] == ["file_sd"]
    assert "not a regular file" in discovery.problems[0].message


def test_mount_of_a_descriptor_is_that_of_mountinfo() -> None:
    descriptor = os.open("/proc", os.O_PATH)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    ids = [int(line.split()[0]) for line in lines if line.split()[4] == "/proc"]
    try:
        assert mount_id(descriptor) in ids
        with pytest.raises(OSError, match="not a regular file"):
            read_file("/proc")
    finally:
        os.close(descriptor)
