"""Messages of the kernel after which a file system accepts no writes, until it is mounted anew."""

from __future__ import annotations

import pytest

from nodevitals.linux.kmsg import Record
from nodevitals.probe import Readings
from nodevitals.probes.kernel_log.lines import MAX_FILESYSTEMS, parse_filesystem_event
from nodevitals.probes.kernel_log.probe import KernelLogProbe
from nodevitals.probes.kernel_log.state import KernelLogState
from nodevitals.probes.kernel_log.tally import Tally
from nodevitals.probes.services.messages import StoppedFilesystems
from nodevitals.wire import decode

UUID = "bbb92b1f-8ba3-4f65-873e-5115a70adb99"
XFS_ERROR = "Log I/O Error (0x6) detected at xfs_fs_goingdown+0x63/0xb0 (fs/xfs/xfs_fsops.c:475)"
STOP = "EXT4-fs (sda2): Remounting filesystem read-only"


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (STOP, ("sda2", True)),
        ("EXT4-fs (dm-0): shut down requested (2)", ("dm-0", True)),
        (f"EXT4-fs (sda2): mounted filesystem {UUID} r/w with ordered data mode.", ("sda2", False)),
        (
            "EXT4-fs (sda2): mounted filesystem with ordered data mode. Opts: (null)",
            ("sda2", False),
        ),
        (f"EXT4-fs (nvme0n1p2): unmounting filesystem {UUID}.", ("nvme0n1p2", False)),
        (f"XFS (md127): {XFS_ERROR}.  Shutting down filesystem.", ("md127", True)),
        ("XFS (sdb): I/O Error Detected. Shutting down filesystem", ("sdb", True)),
        ("XFS (sdb): Filesystem has been shut down due to log error (0x2).", ("sdb", True)),
        (f"XFS (sdb): Mounting V5 Filesystem {UUID}", ("sdb", False)),
        (f"XFS (sdb): Unmounting Filesystem {UUID}", ("sdb", False)),
        # A file system that goes on.
        ("EXT4-fs error (device sda2): ext4_lookup:1855: inode #131: comm x: iget: bad", None),
        (f"EXT4-fs (sda2): re-mounted {UUID}.", None),
        ("EXT4-fs (sda2): warning: mounting fs with errors, running e2fsck is recommended", None),
        ("EXT4-fs (sda2): recovery complete", None),
        ("XFS (sdb): Ending clean mount", None),
        ("XFS (sdb): Metadata corruption detected at xfs_inode_buf_verify+0x1aa/0x1d0", None),
        ("XFS (sdb): Please unmount the filesystem and rectify the problem(s)", None),
        # What a user chose the beginning of.
        ("x: EXT4-fs (sda2): Remounting filesystem read-only", None),
        ("EXT4-fs (sd a2): Remounting filesystem read-only", None),
    ],
)
def test_event_of_a_message(text: str, event: tuple[str, bool] | None) -> None:
    assert parse_filesystem_event(text) == event


def stopped(state: KernelLogState, *texts: str) -> list[str]:
    """The file systems that a run over these messages sends as stopped."""
    readings = Readings(families=KernelLogProbe.families)
    tally = Tally(state, readings, now=1e9, monotonic=1000.0, live=True)
    for number, text in enumerate(texts):
        tally.add_record(Record(number, 1000.0, text))
    tally.send_filesystems()
    tally.finish()
    [message] = [one for one in readings.messages if one.probe == "services"]
    return list(decode(message.body, StoppedFilesystems).devices)


def test_it_is_stopped_until_it_is_mounted_anew() -> None:
    state = KernelLogState()
    assert stopped(state) == []
    assert stopped(state, STOP, STOP, STOP.replace("sda2", "sdb1")) == ["sda2", "sdb1"]
    assert stopped(state) == ["sda2", "sdb1"]
    assert stopped(state, f"EXT4-fs (sda2): mounted filesystem {UUID} r/w") == ["sdb1"]
    assert stopped(state, f"EXT4-fs (sdb1): unmounting filesystem {UUID}.", STOP) == ["sda2"]


def test_it_is_not_stopped_in_the_next_boot() -> None:
    state = KernelLogState(boot_id="a")
    stopped(state, STOP)
    assert stopped(state.in_boot("a")) == ["sda2"]
    assert stopped(state.in_boot("b")) == []


def test_thousands_are_bounded() -> None:
    found = stopped(KernelLogState(), *(STOP.replace("sda2", f"dm-{n}") for n in range(3000)))
    assert len(found) == MAX_FILESYSTEMS
