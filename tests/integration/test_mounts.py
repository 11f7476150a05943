"""Probe `mounts` on real mounts: FUSE with faults, a full tmpfs, misleading links.

Single runs in this process where nothing hangs; the command and the agent where they matter.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.mounts.probe import MountsProbe, MountsSettings, MountState, MountTarget
from testbed.faultyfs import SLOW_SECONDS, FaultyFileSystem
from testbed.node import Node, run, wait_until

PREFIX = "nodevitals_mount_"


@pytest.fixture(autouse=True)
def node_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the name that the probe's own files start with."""
    monkeypatch.setenv("NODE_NAME", "node-1")


class Outcome:
    """One run of the probe on one mount: `values` by family, `labels` of the mount, and the
    reason of the failure, "" where it succeeded.
    """

    def __init__(self, path: Path, state: MountState | None = None, **settings: str) -> None:
        targets = (MountTarget(path=str(path), **settings),)  # type: ignore[arg-type]
        [(target, own)] = MountsProbe.targets(MountsSettings(targets=targets))
        probe = MountsProbe(Host(), own, target)
        probe.state = state or MountState()
        readings = Readings(families=MountsProbe.families)
        self.state, self.reason, self.message = probe.state, "", ""
        try:
            probe.run(readings)
        except ProbeError as error:
            self.reason, self.message = error.reason, error.message
        samples = [s for s in readings.samples if not s.family.endswith("step_seconds")]
        self.values = {s.family.removeprefix(PREFIX): s.value for s in samples}
        for sample in readings.increments:
            name = sample.family.removeprefix(PREFIX)
            self.values[name] = self.values.get(name, 0) + sample.value
        self.labels = samples[0].labels[1:]
        self.methods = [s.labels[3] for s in samples if s.family.endswith("method_info")]
        self.steps = [s.labels[3] for s in readings.samples if s.family.endswith("step_seconds")]


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


def write(filer: FaultyFileSystem) -> Outcome:
    return Outcome(filer.mountpoint, access="write")


def test_healthy_mount(filer: FaultyFileSystem) -> None:
    found = write(filer)
    assert found.reason == ""
    ones = ("present", "writable", "readable", "content_intact", "read_method_info")
    assert {name: found.values[name] for name in ones} == dict.fromkeys(ones, 1.0)
    assert found.values["read_only"] == 0
    assert found.values["content_mismatches_total"] == 0
    assert found.values["size_bytes"] >= found.values["free_bytes"] > 0
    assert found.values["write_seconds"] > 0
    assert found.labels == ("fuse.faulty", "filer:/export")
    assert found.steps == ["statvfs", "create", "write", "fsync", "open", "read", "delete"]
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
    found = write(filer)
    assert found.reason == reason
    assert found.message.startswith(f"{filer.mountpoint}: ")
    assert "\n" not in found.message
    assert gauges.items() <= found.values.items()
    assert found.values["present"] == 1
    assert "content_intact" in gauges or "content_intact" not in found.values


def test_command_prints_the_samples_and_the_reason_of_a_failure(filer: FaultyFileSystem) -> None:
    config = filer.mountpoint.parent / "c.yaml"
    config.write_text(
        "defaults: {interval: 5s, timeout: 4s}\n"
        f"probes: {{mounts: {{targets: [{{path: {filer.mountpoint}, access: write}}]}}}}\n"
    )
    done = run("probe", "mounts", "--raw", f"--config.file={config}")
    assert (done.returncode, done.stderr) == (0, "")
    labels = f'mountpoint="{filer.mountpoint}",fstype="fuse.faulty",source="filer:/export"'
    assert f"{PREFIX}content_intact{{{labels}}} 1" in done.stdout
    filer.fault("corrupt")
    done = run("probe", "mounts", "--raw", f"--config.file={config}")
    assert done.returncode == 1
    assert ": mismatch: " in done.stderr
    assert done.stderr.count("\n") == 1
    assert f"{PREFIX}content_intact{{{labels}}} 0" in done.stdout
    assert f"{PREFIX}content_mismatches_total{{{labels}}} 1" in done.stdout


def test_slow_mount_succeeds_and_takes_longer(filer: FaultyFileSystem) -> None:
    filer.fault("slow")
    found = write(filer)
    assert found.reason == ""
    # At least to create, write and fsync; without the fault all of it takes milliseconds.
    assert found.values["write_seconds"] >= 3 * SLOW_SECONDS


def test_mount_that_is_missing_has_the_configured_labels(tmp_path: Path) -> None:
    found = Outcome(tmp_path / "nothing", fstype="nfs4", source="filer:/x")
    assert found.values == {"present": 0}
    assert (found.reason, found.message) == (
        "missing",
        f"nothing is mounted at {tmp_path}/nothing",
    )
    assert found.labels == ("nfs4", "filer:/x")


def test_other_file_system_than_expected_is_not_written_to(filer: FaultyFileSystem) -> None:
    found = Outcome(filer.mountpoint, access="write", fstype="nfs4")
    assert found.reason == "unexpected_fstype"
    assert found.values["as_expected"] == 0
    assert list(filer.backing.iterdir()) == []


def test_expected_source_is_compared(filer: FaultyFileSystem) -> None:
    assert Outcome(filer.mountpoint, source="filer:/export").values["as_expected"] == 1
    assert Outcome(filer.mountpoint, source="other:/export").reason == "unexpected_source"


def test_full_file_system_is_not_writable(tmpfs: Path) -> None:
    (tmpfs / "filler").write_bytes(bytes(1024 * 1024 - 8192))
    found = Outcome(tmpfs, access="write")
    assert found.reason == "disk_full"
    assert found.values["writable"] == 0
    assert list((tmpfs / ".nodevitals").iterdir()) == []


def test_read_only_mount_is_readable_and_not_writable(tmpfs: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,ro", tmpfs], check=True)
    found = Outcome(tmpfs, access="write")
    assert found.reason == "read_only"
    assert found.values["read_only"] == 1
    assert found.values["writable"] == 0
    assert Outcome(tmpfs, access="read").values["readable"] == 1


def test_read_from_a_memory_file_system_is_exposed_as_cached(tmpfs: Path) -> None:
    found = Outcome(tmpfs, access="write")
    assert (found.reason, found.methods) == ("", ["cached"])


def test_named_file_is_read(tmpfs: Path) -> None:
    (tmpfs / "beacon").write_text("here")
    found = Outcome(tmpfs, file="beacon")
    assert found.values["readable"] == 1
    assert found.steps == ["statvfs", "open", "read"]
    found = Outcome(tmpfs, file="gone")
    assert found.reason == "not_found"
    assert found.values["readable"] == 0


def test_leftovers_of_crashed_runs_are_removed_and_nothing_else(tmpfs: Path) -> None:
    ours = tmpfs / ".nodevitals"
    ours.mkdir(0o700)
    hexes = "0123456789abcdef"
    old, young = ours / f"node-1.{hexes}.probe", ours / f"node-1.{hexes[::-1]}.probe"
    silly, hidden = ours / ".nfs000000000001", ours / ".fuse_hidden0000001"
    foreign = [ours / f"node-2.{hexes}.probe", ours / "notes.txt", tmpfs / f"node-1.{hexes}.probe"]
    for path in (old, young, silly, hidden, *foreign):
        path.write_text("x")
        path.chmod(0o600)
        if path != young:
            os.utime(path, (time.time() - 3600,) * 2)
    assert Outcome(tmpfs, access="write").reason == ""
    assert not any(path.exists() for path in (old, silly, hidden))
    assert all(path.exists() for path in (young, *foreign))


def test_link_in_place_of_the_probes_directory_is_not_followed(tmpfs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmpfs / ".nodevitals").symlink_to(elsewhere)
    found = Outcome(tmpfs, access="write")
    assert found.reason == "interference"
    assert "writable" not in found.values
    assert list(elsewhere.iterdir()) == []


def test_missing_mount_keeps_the_labels_of_what_was_mounted(filer: FaultyFileSystem) -> None:
    state = Outcome(filer.mountpoint).state
    filer.unmount()
    found = Outcome(filer.mountpoint, state, access="none")
    assert (found.reason, found.labels) == ("missing", ("fuse.faulty", "filer:/export"))


# With an agent.


def has_run(node: Node, times: int) -> bool:
    labels = {"probe": "mounts", "outcome": "ok"}
    return (node.value("nodevitals_probe_runs_total", **labels) or 0) >= times


def test_two_nodes_on_one_mount_do_not_collide(filer: FaultyFileSystem) -> None:
    folder = filer.mountpoint.parent
    nodes = []
    for name in ("node-1", "node-2"):
        (folder / name).mkdir()
        target = {"path": str(filer.mountpoint), "access": "write"}
        probes = {"mounts": {"interval": "100ms", "targets": [target]}}
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


def test_hung_mount_is_not_probed_again_until_its_worker_is_reaped(
    filer: FaultyFileSystem,
) -> None:
    folder = filer.mountpoint.parent
    target = {"path": str(filer.mountpoint), "access": "write"}
    config = {"defaults": {"interval": "500ms"}, "probes": {"mounts": {"targets": [target]}}}
    with Node(folder, config) as node:
        labels = {"probe": "mounts", "target": str(filer.mountpoint)}
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        filer.fault("hang")
        wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
        assert node.value("nodevitals_probe_success", **labels) == 0
        # Six intervals, twice stale_after: no outdated value is exposed, no second worker started.
        wait_until(lambda: (node.value("nodevitals_probe_stuck_seconds", **labels) or 0) > 3)
        assert node.value("nodevitals_mount_writable") is None
        assert node.value("nodevitals_probe_last_success_timestamp_seconds", **labels)
        # Other workers sleep so as well, while they sync the history, but not for ever.
        wait_until(lambda: list(node.tree().values()).count("disk-sleep") == 1)
        filer.fault("none")
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        assert node.value("nodevitals_probe_stuck_seconds", **labels) == 0
        runs = "nodevitals_probe_runs_total"
        wait_until(lambda: node.value(runs, **labels, outcome="stuck") == 1)


def unanswered(node: Node, filer: FaultyFileSystem) -> float:
    labels = {"probe": "mounts", "target": str(filer.mountpoint)}
    return node.value("nodevitals_probe_unanswered_seconds", **labels) or 0


def test_mount_whose_calls_are_ended_at_each_deadline_is_without_an_answer(
    filer: FaultyFileSystem,
) -> None:
    """As a hard NFS mount without its server: its processes can be killed, so none is stuck."""
    folder = filer.mountpoint.parent
    target = {"path": str(filer.mountpoint), "access": "write"}
    config = {"defaults": {"interval": "500ms"}, "probes": {"mounts": {"targets": [target]}}}
    labels = {"probe": "mounts", "target": str(filer.mountpoint)}
    runs = "nodevitals_probe_runs_total"
    with Node(folder, config) as node:
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        assert unanswered(node, filer) == 0
        filer.stop()
        # Until it is longer than any pause between two runs so far: also during these.
        wait_until(lambda: unanswered(node, filer) > 5)
        assert (node.value(runs, **labels, outcome="timeout") or 0) >= 2
        assert node.value(runs, **labels, outcome="stuck") == 0
        assert node.value("nodevitals_mount_writable") is None
        others = {"probe": "node", "target": "node"}
        assert node.value("nodevitals_probe_unanswered_seconds", **others) == 0
        # An agent that restarts meanwhile counts anew.
        node.end()
        node.start()
        assert unanswered(node, filer) == 0
        wait_until(lambda: unanswered(node, filer) > 1)
        filer.resume()
        wait_until(lambda: node.value("nodevitals_probe_success", **labels) == 1)
        assert unanswered(node, filer) == 0


def test_mount_that_hung_is_probed_again_as_soon_as_its_worker_is_reaped(
    filer: FaultyFileSystem,
) -> None:
    """Not after its interval: until then it would count as one that hangs."""
    folder = filer.mountpoint.parent
    mounts = {"interval": "1h", "timeout": "1s", "targets": [{"path": str(filer.mountpoint)}]}
    filer.fault("hang")
    with Node(folder, {"probes": {"mounts": mounts}}) as node:
        wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
        wait_until(lambda: unanswered(node, filer) > 0)
        filer.fault("none")
        wait_until(lambda: node.value("nodevitals_mount_readable") == 1)
        assert unanswered(node, filer) == 0


def test_mounts_may_have_timeouts_of_their_own(filer: FaultyFileSystem, tmp_path: Path) -> None:
    """Both servers are away: the calls into one mount are ended, those into the other go on."""
    hasty = {"path": str(filer.mountpoint), "timeout": "300ms"}
    other = tmp_path / "other"
    other.mkdir()
    runs = "nodevitals_probe_runs_total"
    with FaultyFileSystem(other) as patient_filer:
        patient = {"path": str(patient_filer.mountpoint), "interval": "10m", "timeout": "5m"}
        filer.stop()
        patient_filer.stop()
        mounts = {"interval": "500ms", "targets": [hasty, patient]}
        with Node(tmp_path, {"probes": {"mounts": mounts}}) as node:
            wait_until(lambda: (node.value(runs, target=hasty["path"], outcome="timeout") or 0) > 2)
            assert node.value(runs, target=patient["path"], outcome="timeout") == 0
            interval = "nodevitals_probe_interval_seconds"
            assert node.value(interval, target=hasty["path"]) == 0.5
            assert node.value(interval, target=patient["path"]) == 600
            patient_filer.resume()
            success = "nodevitals_probe_success"
            wait_until(lambda: node.value(success, target=patient["path"]) == 1)
            assert node.value(success, target=hasty["path"]) == 0
            filer.resume()


def test_mount_that_disappears_keeps_the_label_of_its_source(filer: FaultyFileSystem) -> None:
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
