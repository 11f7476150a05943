"""Probe `mounts` on real mounts: FUSE with faults, tmpfs that fills, links that mislead."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, run, wait_until

PREFIX = "nodevitals_mount_"


class Outcome:
    """What `nodevitals probe mounts` said of one mount."""

    def __init__(self, folder: Path, target: str) -> None:
        (folder / "c.yaml").write_text(
            "defaults: {interval: 5s, timeout: 4s}\n"
            f"probes: {{mounts: {{targets: [{target}]}}}}\n"
        )
        done = run("probe", "mounts", f"--config.file={folder / 'c.yaml'}", NODE_NAME="node-1")
        self.status, self.message = done.returncode, done.stderr
        self.values = {}
        for line in done.stdout.splitlines():
            if line.startswith(PREFIX) and "step_seconds" not in line:
                name, _, rest = line.removeprefix(PREFIX).partition("{")
                self.values[name] = float(rest.rpartition(" ")[2])
                self.labels = rest.rpartition("}")[0]


@pytest.fixture
def filer(tmp_path: Path) -> Iterator[FaultyFileSystem]:
    with FaultyFileSystem(tmp_path) as mounted:
        yield mounted


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "tmpfs"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "scratch", point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)


def write_probe(filer: FaultyFileSystem) -> Outcome:
    return Outcome(filer.mountpoint.parent, f"{{path: {filer.mountpoint}, access: write}}")


def test_a_healthy_mount(filer: FaultyFileSystem) -> None:
    found = write_probe(filer)
    assert found.status == 0
    ones = ("present", "writable", "readable", "content_intact", "read_method_info")
    assert {name: found.values[name] for name in ones} == dict.fromkeys(ones, 1.0)
    assert found.values["read_only"] == 0
    assert found.values["content_mismatches_total"] == 0
    assert found.values["size_bytes"] >= found.values["free_bytes"] > 0
    assert found.values["write_seconds"] > 0
    assert 'fstype="fuse.faulty",source="filer:/export"' in found.labels
    wait_until(lambda: not list((filer.backing / ".nodevitals").iterdir()), what="an empty folder")


@pytest.mark.parametrize(
    ("fault", "reason", "gauges"),
    [
        ("enospc", "disk_full", {"writable": 0}),
        ("edquot", "quota", {"writable": 0}),
        ("eacces", "permission", {"writable": 0}),
        ("eio", "io_error", {"writable": 0, "readable": 0}),
        ("estale", "stale_handle", {"writable": 0, "readable": 0}),
        (
            "corrupt",
            "mismatch",
            {"content_intact": 0, "content_mismatches_total": 1, "writable": 1},
        ),
        ("short", "short_read", {"readable": 0, "content_mismatches_total": 0, "writable": 1}),
    ],
)
def test_each_fault_has_its_reason_and_its_gauges(
    filer: FaultyFileSystem, fault: str, reason: str, gauges: dict[str, float]
) -> None:
    filer.fault(fault)
    found = write_probe(filer)
    assert found.status == 1
    assert f": {reason}: " in found.message
    assert found.message.count("\n") == 1
    assert gauges.items() <= found.values.items()
    assert found.values["present"] == 1
    assert "content_intact" in gauges or "content_intact" not in found.values


def test_a_short_read_is_not_corruption(filer: FaultyFileSystem) -> None:
    filer.fault("short")
    assert "content_intact" not in write_probe(filer).values


def test_a_slow_mount_succeeds_and_shows_where_the_time_went(filer: FaultyFileSystem) -> None:
    filer.fault("none")
    fast = write_probe(filer).values["write_seconds"]
    filer.fault("slow")
    assert write_probe(filer).values["write_seconds"] > fast + 0.1


def test_nothing_mounted(tmp_path: Path) -> None:
    found = Outcome(tmp_path, f"{{path: {tmp_path}/nothing, fstype: nfs4, source: 'filer:/x'}}")
    assert found.status == 1
    assert found.values == {"present": 0}
    assert ": missing: nothing is mounted at " in found.message
    assert 'fstype="nfs4",source="filer:/x"' in found.labels


def test_another_file_system_than_expected_is_not_written_to(filer: FaultyFileSystem) -> None:
    target = f"{{path: {filer.mountpoint}, access: write, fstype: nfs4}}"
    found = Outcome(filer.mountpoint.parent, target)
    assert ": unexpected_fstype: " in found.message
    assert found.values["as_expected"] == 0
    assert list(filer.backing.iterdir()) == []


def test_the_expected_source(filer: FaultyFileSystem) -> None:
    target = f"{{path: {filer.mountpoint}, source: 'filer:/export'}}"
    assert Outcome(filer.mountpoint.parent, target).values["as_expected"] == 1
    target = f"{{path: {filer.mountpoint}, source: 'other:/export'}}"
    assert ": unexpected_source: " in Outcome(filer.mountpoint.parent, target).message


def test_a_file_system_that_is_really_full(tmpfs: Path) -> None:
    (tmpfs / "filler").write_bytes(bytes(1024 * 1024 - 8192))
    found = Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: write}}")
    assert ": disk_full: " in found.message
    assert found.values["writable"] == 0
    assert list((tmpfs / ".nodevitals").iterdir()) == []


def test_a_read_only_mount(tmpfs: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,ro", tmpfs], check=True)
    found = Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: write}}")
    assert ": read_only: " in found.message
    assert found.values["read_only"] == 1
    assert found.values["writable"] == 0
    assert Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: read}}").values["readable"] == 1


def test_memory_file_systems_say_that_the_cache_was_read(tmpfs: Path) -> None:
    found = Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: write}}")
    assert 'method="cached"' in str(found.labels) or found.status == 0


def test_reading_a_named_file(tmpfs: Path) -> None:
    (tmpfs / "beacon").write_text("here")
    assert Outcome(tmpfs.parent, f"{{path: {tmpfs}, file: beacon}}").values["readable"] == 1
    found = Outcome(tmpfs.parent, f"{{path: {tmpfs}, file: gone}}")
    assert ": not_found: " in found.message
    assert found.values["readable"] == 0


def test_crashed_runs_are_cleaned_up_and_nothing_else_is_touched(tmpfs: Path) -> None:
    ours = tmpfs / ".nodevitals"
    ours.mkdir()
    hexes = "0123456789abcdef"
    old, young = ours / f"node-1.{hexes}.probe", ours / f"node-1.{hexes[::-1]}.probe"
    silly, hidden = ours / ".nfs000000000001", ours / ".fuse_hidden0000001"
    foreign = [ours / f"node-2.{hexes}.probe", ours / "notes.txt", tmpfs / f"node-1.{hexes}.probe"]
    for path in (old, young, silly, hidden, *foreign):
        path.write_text("x")
        if path != young:
            os.utime(path, (time.time() - 3600,) * 2)
    assert Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: write}}").status == 0
    assert not any(path.exists() for path in (old, silly, hidden))
    assert all(path.exists() for path in (young, *foreign))


def test_a_link_in_place_of_our_folder_is_not_followed(tmpfs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmpfs / ".nodevitals").symlink_to(elsewhere)
    found = Outcome(tmpfs.parent, f"{{path: {tmpfs}, access: write}}")
    assert found.status == 1
    assert found.values["writable"] == 0
    assert list(elsewhere.iterdir()) == []


def has_run(node: Node, times: int) -> bool:
    labels = {"probe": "mounts", "outcome": "ok"}
    return (node.value("nodevitals_probe_runs_total", **labels) or 0) >= times


def test_two_nodes_on_one_mount_do_not_collide(filer: FaultyFileSystem) -> None:
    folder = filer.mountpoint.parent
    nodes = []
    for name in ("node-1", "node-2"):
        (folder / name).mkdir()
        target = {"path": str(filer.mountpoint), "access": "write"}
        probes = {"mounts": {"interval": "200ms", "targets": [target]}}
        nodes.append(Node(folder / name, {"probes": probes}, NODE_NAME=name).start())
    try:
        for node in nodes:
            wait_until(partial(has_run, node, 20))
        for node in nodes:
            # A collision would be an error; a timeout is only a busy machine.
            labels = {"probe": "mounts", "outcome": "error"}
            assert node.value("nodevitals_probe_runs_total", **labels) == 0, node.log()
            assert node.value("nodevitals_mount_content_mismatches_total") == 0
    finally:
        for node in nodes:
            node.end()


def test_a_hung_mount_is_not_polled_again_until_its_worker_is_reaped(
    filer: FaultyFileSystem,
) -> None:
    folder = filer.mountpoint.parent
    target = {"path": str(filer.mountpoint), "access": "write"}
    config = {"defaults": {"interval": "1s"}, "probes": {"mounts": {"targets": [target]}}}
    with Node(folder, config) as node:
        labels = {"probe": "mounts", "target": str(filer.mountpoint)}
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        filer.fault("hang")
        wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
        assert node.value("nodevitals_probe_success", **labels) == 0
        wait_until(lambda: (node.value("nodevitals_probe_stuck_seconds", **labels) or 0) > 6)
        # Past stale_after nothing that may no longer be true is told.
        assert node.value("nodevitals_mount_writable") is None
        assert node.value("nodevitals_probe_last_success_timestamp_seconds", **labels)
        assert list(node.tree().values()).count("disk-sleep") == 1
        filer.fault("none")
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        assert node.value("nodevitals_probe_stuck_seconds", **labels) == 0
        assert node.value("nodevitals_probe_runs_total", **labels, outcome="stuck") == 1


def test_a_mount_that_goes_keeps_the_name_of_its_source(filer: FaultyFileSystem) -> None:
    folder = filer.mountpoint.parent
    target = {"path": str(filer.mountpoint)}
    config = {"defaults": {"interval": "300ms"}, "probes": {"mounts": {"targets": [target]}}}
    with Node(folder, config) as node:
        wait_until(lambda: node.value("nodevitals_mount_present") == 1)
        filer.unmount()
        wait_until(lambda: node.value("nodevitals_mount_present", source="filer:/export") == 0)
        assert "nodevitals_mount_size_bytes{" not in node.get().text
        assert "mounts " in node.log()
        assert "(missing): nothing is mounted at" in node.log()
