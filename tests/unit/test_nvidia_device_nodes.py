"""Which device files of GPUs may be opened; only their major number is another one here."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.probes.nvidia import listing
from nodevitals.probes.nvidia.listing import DeviceNodes, read_nodes
from testbed.devicefiles import DeviceFolder, device_folder


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceFolder]:
    yield from device_folder(tmp_path / "dev", monkeypatch)


def test_each_file_counts_that_may_be_opened(dev: DeviceFolder) -> None:
    for name in ("nvidia0", "nvidia12"):
        dev.add(name)
    assert read_nodes() == DeviceNodes(2, 2)


def test_another_device_in_its_place_is_no_gpu(
    dev: DeviceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev.add("nvidia0")
    monkeypatch.setattr(listing, "MAJOR", 195)
    assert read_nodes() == DeviceNodes(0, 0)


def test_refused_missing_and_other_files_do_not_count(dev: DeviceFolder) -> None:
    dev.add("nvidia0", options="nodev")  # EACCES, also for root
    dev.add("nvidiactl")
    dev.add("nvidia-uvm")
    (dev.folder / "nvidia1").write_text("")
    (dev.folder / "nvidia2").mkdir()
    (dev.folder / "nvidia3").symlink_to("nowhere")
    assert read_nodes() == DeviceNodes(present=1, usable=0)


def test_no_folder_has_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(listing, "FOLDER", tmp_path / "nothing")
    assert read_nodes() == DeviceNodes(0, 0)


def test_no_file_is_opened(dev: DeviceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening that of a dead GPU would take seconds."""
    dev.add("nvidia0")

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("opened")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert read_nodes() == DeviceNodes(1, 1)


def test_denied_file_is_told_from_a_missing_one() -> None:
    assert DeviceNodes(8, 8).refusal(8) is None
    denied, missing = DeviceNodes(8, 7).refusal(8), DeviceNodes(7, 7).refusal(8)
    assert denied is not None
    assert missing is not None
    assert (denied.code, missing.code) == (4, 6)
    assert "7 of 8 device files /dev/nvidia* can be opened" in str(denied)
    assert "7 device files /dev/nvidia* are there for 8 GPUs" in str(missing)


def test_call_that_an_older_filter_denies_is_not_the_only_one(
    dev: DeviceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Container runtimes of 2020 deny faccessat2(2) with EPERM, which is no answer."""
    dev.add("nvidia0")
    access = os.access

    def filtered(path: Path, mode: int, *, effective_ids: bool = False) -> bool:
        return not effective_ids and access(path, mode)

    monkeypatch.setattr(os, "access", filtered)
    assert read_nodes() == DeviceNodes(1, 1)
