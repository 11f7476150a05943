"""Which device files of GPUs may be opened; only their major number is another one here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nodevitals.probes.nvidia.device_nodes import usable_nodes

MEMORY = 1  # the major number of /dev/null


def bind(path: Path, device: str = "null", options: str = "") -> None:
    """A device file at this path, without permission to make one."""
    path.touch()
    subprocess.run(["mount", "--bind", f"/dev/{device}", path], check=True)
    if options:
        subprocess.run(["mount", "-o", f"remount,bind,{options}", path], check=True)


def test_each_file_counts_that_may_be_opened(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia12"):
        bind(tmp_path / name)
    assert usable_nodes(tmp_path, MEMORY) == 2


def test_another_device_in_its_place_is_no_gpu(tmp_path: Path) -> None:
    bind(tmp_path / "nvidia0")
    assert usable_nodes(tmp_path) == 0


def test_refused_missing_and_other_files_do_not_count(tmp_path: Path) -> None:
    bind(tmp_path / "nvidia0", options="nodev")  # EACCES, also for root
    bind(tmp_path / "nvidiactl")
    bind(tmp_path / "nvidia-uvm")
    (tmp_path / "nvidia1").write_text("")
    (tmp_path / "nvidia2").mkdir()
    (tmp_path / "nvidia3").symlink_to("nowhere")
    assert usable_nodes(tmp_path, MEMORY) == 0
    assert usable_nodes(tmp_path / "nothing", MEMORY) == 0


def test_error_of_the_driver_is_no_refusal(tmp_path: Path) -> None:
    """/dev/tty returns ENXIO to a process without a terminal."""
    bind(tmp_path / "nvidia0", "tty")
    major = os.major((tmp_path / "nvidia0").stat().st_rdev)
    code = (
        "import sys, pathlib; from nodevitals.probes.nvidia.device_nodes import usable_nodes; "
        "print(usable_nodes(pathlib.Path(sys.argv[1]), int(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(major)],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
