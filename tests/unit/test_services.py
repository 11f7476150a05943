"""Probe `services`: what it makes of mounts, processes and their waits, over trees of files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.services.filesystems import MAX_FILESYSTEMS, local_filesystems
from nodevitals.probes.services.messages import StoppedFilesystems
from nodevitals.probes.services.probe import (
    CONDITIONS,
    ServicesProbe,
    ServicesSettings,
    ServicesState,
)
from nodevitals.probes.services.processes import WAITS, Sleeper, continued, parse_sleeper, wait_of
from nodevitals.probes.services.unit_names import WATCHED, is_unit_name
from testbed import conditions
from testbed.conditions import (
    DATA_MOUNT,
    ROOT_BROKEN,
    ROOT_MOUNT,
    SYSTEM_MOUNTS,
    UPTIME_SECONDS,
)
from testbed.trees import write

P = "nodevitals_node_"
ROOT = ("filesystem_read_only", "/", "ext4", "/dev/nvme0n1p2")
DATA = ("filesystem_read_only", "/data", "xfs", "/dev/nvme1n1")


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    return conditions.healthy(tmp_path)


def run(
    procfs: Path,
    state: ServicesState | None = None,
    hung_after: float = 120.0,
    received: StoppedFilesystems | None = None,
) -> dict[tuple[str, ...], float]:
    settings = ServicesSettings(hung_after=hung_after)
    probe = ServicesProbe(
        Host(procfs=str(procfs), sysfs=str(procfs.parent / "sys")), settings, CONDITIONS
    )
    probe.state = state or ServicesState()
    messages = () if received is None else (received,)
    readings = Readings(messages, families=ServicesProbe.families)
    probe.run(readings)
    return {(one.family.removeprefix(P), *one.labels): one.value for one in readings.samples}


def later(state: ServicesState, seconds: float) -> None:
    """Let the last run be so long ago."""
    for sleeper in state.sleepers.values():
        sleeper.since -= seconds
        sleeper.seen -= seconds
    if state.looked is not None:
        state.looked.at -= seconds


def test_healthy_node_has_no_bad_condition(procfs: Path) -> None:
    found = run(procfs)
    assert found[ROOT] == found[DATA] == found["zombie_processes",] == 0
    assert {found["hung_processes", wait] for wait in WAITS} == {0}
    assert found["threads",] == 3450
    assert found["threads_maximum",] == 4125790
    assert len([key for key in found if key[0] == "filesystem_read_only"]) == 2


@pytest.mark.parametrize(
    "line",
    [
        ROOT_BROKEN,
        ROOT_MOUNT.replace("errors=remount-ro", "errors=remount-ro,emergency_ro"),
        ROOT_MOUNT.replace("errors=remount-ro", "shutdown"),
    ],
    ids=["ro", "emergency_ro", "shutdown"],
)
def test_file_system_that_an_error_made_read_only_is_found_at_first_sight(
    procfs: Path, line: str
) -> None:
    conditions.mounts(procfs, line, DATA_MOUNT)
    found = run(procfs)
    assert found[ROOT] == 1
    assert found[DATA] == 0


MOUNTED_SECONDS = 10
"""After boot."""


@pytest.fixture
def ext4(tmp_path: Path, procfs: Path) -> Callable[..., dict[tuple[str, ...], float]]:
    """Return a run on a node whose root, mounted ten seconds after boot, has recorded errors, the
    last one so many seconds ago.
    """

    def with_errors(
        count: int, ago: float, mounted_ticks: int | None = 100 * MOUNTED_SECONDS, **more: str
    ) -> dict[tuple[str, ...], float]:
        last = int(time.time() - ago)
        conditions.ext4_errors(tmp_path, "nvme0n1p2", count, last, mounted_ticks, **more)
        return run(procfs)

    return with_errors


ERRORS = ("filesystem_errors", "/", "ext4", "/dev/nvme0n1p2")
Ext4 = Callable[..., dict[tuple[str, ...], float]]


def test_error_that_stops_writes_is_found_where_the_mount_shows_rw(ext4: Ext4) -> None:
    """Linux 6.12 to 6.14, and 5.15, 6.1 and 6.6 with the same change: EROFS, and `rw`."""
    found = ext4(1, ago=600)
    assert (found[ERRORS], found[ROOT]) == (1, 1)


def test_recorded_error_that_lets_writes_go_on_is_counted_only(ext4: Ext4) -> None:
    found = ext4(3, ago=600, on_error="continue")
    assert (found[ERRORS], found[ROOT]) == (3, 0)


def test_errors_of_an_earlier_mount_stop_no_writes(ext4: Ext4) -> None:
    """They stay on the disk until a check; also within one boot."""
    found = ext4(2, ago=UPTIME_SECONDS + 86400)
    assert (found[ERRORS], found[ROOT]) == (2, 0)
    found = ext4(2, ago=600, mounted_ticks=100 * (UPTIME_SECONDS - 60))
    assert (found[ERRORS], found[ROOT]) == (2, 0)


def test_time_of_a_clock_that_was_ahead_is_not_believed(ext4: Ext4) -> None:
    found = ext4(1, ago=-8 * 3600)
    assert (found[ERRORS], found[ROOT]) == (1, 0)


def test_without_a_journal_the_time_of_the_mount_is_unknown(ext4: Ext4) -> None:
    assert ext4(1, ago=600, mounted_ticks=None)[ROOT] == 0


def test_file_system_without_errors_has_none(ext4: Ext4) -> None:
    found = ext4(0, ago=time.time())
    assert (found[ERRORS], found[ROOT]) == (0, 0)
    assert ("filesystem_errors", *DATA[1:]) not in found


@pytest.mark.parametrize("missing", ["errors_count", "last_error_time", "journal_task"])
def test_what_ext4_does_not_show_is_unknown(
    procfs: Path, tmp_path: Path, ext4: Ext4, missing: str
) -> None:
    ext4(1, ago=600)
    (tmp_path / "sys/fs/ext4/nvme0n1p2" / missing).unlink()
    found = run(procfs)
    assert found[ROOT] == 0
    assert (ERRORS in found) == (missing != "errors_count")


def test_file_system_that_the_kernel_reported_as_stopped_is_found(procfs: Path) -> None:
    """An aborted journal with errors=continue, and XFS, of which the mount shows nothing at all."""
    state = ServicesState()
    assert run(procfs, state)[DATA] == 0
    stopped = StoppedFilesystems(["nvme1n1", "sdz"])
    assert run(procfs, state, received=stopped)[DATA] == 1
    found = run(procfs, state)
    assert (found[DATA], found[ROOT]) == (1, 0)
    assert run(procfs, state, received=StoppedFilesystems([]))[DATA] == 0


def test_file_system_that_was_remounted_read_only_is_found(procfs: Path) -> None:
    state = ServicesState()
    assert run(procfs, state)[DATA] == 0
    read_only = DATA_MOUNT.replace(" rw,", " ro,")
    conditions.mounts(procfs, ROOT_MOUNT, read_only)
    assert run(procfs, state)[DATA] == 1
    assert run(procfs, state)[DATA] == 1
    conditions.mounts(procfs, ROOT_MOUNT, DATA_MOUNT)
    assert run(procfs, state)[DATA] == 0


def test_file_system_that_was_never_writable_is_left_out(procfs: Path) -> None:
    """A root in an image, /boot by fstab."""
    conditions.mounts(procfs, ROOT_MOUNT.replace(" rw,", " ro,"), DATA_MOUNT)
    assert ROOT not in run(procfs)


def test_read_only_mount_of_a_writable_file_system_is_no_fault(procfs: Path) -> None:
    """What containers and sandboxes mount of it."""
    bind = DATA_MOUNT.replace("/ /data rw", "/x /data/x ro").replace("40 29", "41 29")
    volume = DATA_MOUNT.replace("/ /data rw", "/y /var/lib/kubelet/pods/a/volumes/b ro")
    conditions.mounts(procfs, ROOT_MOUNT, bind, DATA_MOUNT, volume)
    found = run(procfs)
    assert found[DATA] == 0
    assert len([key for key in found if key[0] == "filesystem_read_only"]) == 2


def test_only_local_file_systems_of_the_node_count(procfs: Path) -> None:
    pod = "60 29 8:1 / /var/lib/kubelet/pods/a/mount rw - ext4 /dev/sdz ro\n"
    conditions.mounts(procfs, SYSTEM_MOUNTS, pod)
    assert not [key for key in run(procfs) if key[0] == "filesystem_read_only"]


@pytest.mark.parametrize(
    "text", ["", "garbage\n", "1 2 3\n" * 3, "- - - - - - -\n", "\x00\xff - a"]
)
def test_mounts_in_another_format_are_skipped(procfs: Path, text: str) -> None:
    conditions.mounts(procfs, text)
    assert not [key for key in run(procfs) if key[0] == "filesystem_read_only"]


@given(st.text())
def test_any_text_as_mounts_raises_nothing(text: str) -> None:
    assert isinstance(local_filesystems(text), list)


def test_thousands_of_file_systems_are_bounded_and_the_root_is_among_them() -> None:
    lines = [f"{n} 29 8:{n} / /mnt/disk-{n} rw - ext4 /dev/sd{n} rw\n" for n in range(100, 3100)]
    found = local_filesystems("".join([*lines, ROOT_MOUNT]))
    assert len(found) == MAX_FILESYSTEMS
    assert found[0].mountpoint == "/"


def test_mounts_that_cannot_be_read_are_an_error(procfs: Path) -> None:
    (procfs / "1/mountinfo").unlink()
    with pytest.raises(ProbeError) as raised:
        run(procfs)
    assert raised.value.reason == "mountinfo"


def test_processes_of_a_container_are_not_those_of_the_node(procfs: Path) -> None:
    (procfs / "2/stat").unlink()
    with pytest.raises(Absent, match="hostPID"):
        run(procfs)


def test_zombies_are_counted(procfs: Path) -> None:
    for pid in range(100, 130):
        conditions.process(procfs, pid, state="Z")
    assert run(procfs)["zombie_processes",] == 30


def test_process_hangs_once_it_slept_for_two_minutes(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100)
    conditions.process(procfs, 101, wchan="io_schedule")
    assert run(procfs, state)["hung_processes", "nfs"] == 0
    later(state, 60)
    assert run(procfs, state)["hung_processes", "nfs"] == 0
    later(state, 61)
    found = run(procfs, state)
    assert found["hung_processes", "nfs"] == found["hung_processes", "block"] == 1
    conditions.process(procfs, 100, state="S")
    later(state, 120)
    found = run(procfs, state)
    assert found["hung_processes", "nfs"] == 0
    assert found["hung_processes", "block"] == 1


def test_looks_that_are_a_little_less_apart_are_enough(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100)
    run(procfs, state)
    later(state, 119.5)
    assert run(procfs, state)["hung_processes", "nfs"] == 1


def test_no_process_hangs_at_first_sight(procfs: Path) -> None:
    conditions.process(procfs, 100)
    assert run(procfs, hung_after=1.0)["hung_processes", "nfs"] == 0


def test_every_second_run_looks_at_all_processes(procfs: Path) -> None:
    state = ServicesState()
    assert run(procfs, state)["zombie_processes",] == 0
    conditions.process(procfs, 100, state="Z")
    later(state, 15)
    assert run(procfs, state)["zombie_processes",] == 0
    later(state, 15)
    assert run(procfs, state)["zombie_processes",] == 1


@pytest.mark.parametrize(
    ("again", "hung"),
    [
        ({}, 1),
        ({"switches": 9}, 1),  # wakes up each minute to look again
        ({"switches": 5000}, 0),  # does its input and output
        ({"switches": 2}, 0),
        ({"start": 9999}, 0),  # another process with the same ID
    ],
    ids=["same", "polling", "busy", "fewer", "other"],
)
def test_only_a_process_that_hardly_woke_up_hangs(
    procfs: Path, again: dict[str, int], hung: int
) -> None:
    state = ServicesState()
    conditions.process(procfs, 100)
    run(procfs, state)
    later(state, 150)
    conditions.process(procfs, 100, **again)  # type: ignore[arg-type]
    assert run(procfs, state)["hung_processes", "nfs"] == hung


def test_threads_of_the_kernel_do_not_count(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100, flags=0x208040)
    run(procfs, state)
    later(state, 1000)
    found = run(procfs, state)
    assert {found["hung_processes", wait] for wait in WAITS} == {0}


def test_wait_that_cannot_be_read_is_unknown(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100, wchan="0")
    conditions.process(procfs, 101)
    (procfs / "101/wchan").unlink()
    run(procfs, state)
    later(state, 200)
    assert run(procfs, state)["hung_processes", "unknown"] == 2


def test_process_whose_sleep_cannot_be_read_is_not_guessed(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100)
    (procfs / "100/status").unlink()
    run(procfs, state)
    assert state.sleepers == {}


@pytest.mark.parametrize(
    ("wchan", "wait"),
    [
        ("nfs_wait_bit_killable", "nfs"),
        ("rpc_wait_bit_killable", "nfs"),
        ("nfs4_proc_getattr", "nfs"),
        ("ptlrpc_set_wait", "lustre"),
        ("ldlm_completion_ast", "lustre"),
        ("cl_sync_io_wait", "lustre"),
        ("request_wait_answer", "fuse"),
        ("ceph_mdsc_wait_request", "ceph"),
        ("wait_for_response", "cifs"),
        ("io_schedule", "block"),
        ("folio_wait_bit_common", "block"),
        ("jbd2_log_wait_commit", "block"),
        ("blk_mq_get_tag", "block"),
        ("nvme_submit_sync_cmd", "block"),
        ("_nv042135rm", "nvidia"),
        ("uvm_va_space_destroy", "nvidia"),
        ("os_acquire_mutex", "nvidia"),
        ("mlx5_cmd_exec", "rdma"),
        ("ib_uverbs_event_read", "rdma"),
        ("devdrv_manager_ioctl", "ascend"),
        ("rwsem_down_write_slowpath", "lock"),
        ("__mutex_lock.constprop.0", "lock"),
        ("__refrigerator", "paused"),
        ("wait_for_vfork_done", "paused"),
        ("something_new", "other"),
        ("0", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
        ("x" * 10_000, "other"),
    ],
)
def test_wait_is_a_word_of_the_list(wchan: str | None, wait: str) -> None:
    assert wait_of(wchan) == wait
    assert wait in WAITS


@given(st.text(), st.text())
def test_any_text_of_a_process_raises_nothing(stat: str, status: str) -> None:
    assert parse_sleeper(stat, status, 1.0) is None
    assert wait_of(stat) in WAITS


def test_clock_of_another_boot_begins_the_sleep_anew() -> None:
    before = Sleeper(start=5, switches=7, since=1000.0, seen=9000.0)
    assert continued(before, Sleeper(start=5, switches=7, since=10.0, seen=10.0)).since == 10.0


def test_hundreds_of_processes_are_looked_at(procfs: Path) -> None:
    for pid in range(1000, 1200):
        conditions.process(procfs, pid)
    state = ServicesState()
    run(procfs, state)
    later(state, 130)
    assert run(procfs, state)["hung_processes", "nfs"] == 200


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 30, "nan", "1 2"])
def test_limit_in_another_format_is_missing(procfs: Path, text: str) -> None:
    write(procfs, {"sys/kernel/threads-max": text, "sys/kernel/pid_max": text, "loadavg": text})
    found = run(procfs)
    assert ("threads",) not in found
    assert ("threads_maximum",) not in found or text == "1"


def test_one_limit_that_can_be_read_is_used(procfs: Path) -> None:
    write(procfs, {"sys/kernel/threads-max": "100\n"})
    assert run(procfs)["threads_maximum",] == 100


def test_watched_units_have_valid_names_once() -> None:
    assert all(map(is_unit_name, WATCHED))
    assert len(set(WATCHED)) == len(WATCHED)


def test_times_are_those_of_the_monotonic_clock(procfs: Path) -> None:
    state = ServicesState()
    conditions.process(procfs, 100)
    before = time.monotonic()
    run(procfs, state)
    assert before <= state.sleepers[100].since <= time.monotonic()


def test_what_must_be_active_cannot_be_ignored() -> None:
    settings = ServicesSettings(expected=("kubelet.service",), ignored=("kube*",))
    assert [problem.path for problem in settings.problems()] == ["expected[0]"]
