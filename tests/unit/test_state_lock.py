"""The lock on a state directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodevitals.linux.host import node_name
from nodevitals.state.lock import FILE_NAME, DirectoryInUseError, DirectoryLock

HOLDER = """
import sys, time
from nodevitals.state.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1], 0.0)
print("held", flush=True)
time.sleep(600)
"""


def test_lock_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    """A living one is, and its node is named."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(DirectoryInUseError, match=f"another agent on {node_name()} uses it"):
        DirectoryLock(str(tmp_path), 0.2)
    holder.kill()
    holder.communicate()
    lock = DirectoryLock(str(tmp_path), 0.0)
    assert lock.holds()
    lock.release()


def test_lock_waits_for_an_agent_that_is_ending(tmp_path: Path) -> None:
    """Its worker may still be writing the last batch."""
    ending = HOLDER.replace("600", "1")
    holder = subprocess.Popen(
        [sys.executable, "-c", ending, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    DirectoryLock(str(tmp_path), 60.0).release()
    holder.communicate()


def test_lock_file_that_was_removed_is_not_held(tmp_path: Path) -> None:
    """Another agent may have made a new one."""
    lock = DirectoryLock(str(tmp_path), 0.0)
    (tmp_path / FILE_NAME).unlink()
    assert not lock.holds()
    lock.release()


def test_link_in_place_of_the_lock_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        DirectoryLock(str(tmp_path), 0.0)
    assert not (tmp_path / "elsewhere").exists()
