"""The rate that a port promises: that of a physical one, here and on a node that ssh reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probes.fabric.node.port import (
    PORT_SCRIPT,
    place_of,
    promised_here,
    promised_there,
)
from nodevitals.probes.fabric.settings import TestSettings

RDMA = TestSettings(tool="perftest", operation="write_bw", device="mlx5_1")
TCP = TestSettings(tool="iperf3", operation="tcp", device="eth2")
PCI = "0000:18:00.0"
NDR = "400 Gb/sec (4X NDR)"


def device_of(folder: Path, test: TestSettings, rate: str, place: str = PCI) -> Path:
    """A device in sysfs, with its link to `place`."""
    directory, file = place_of(test)
    made = folder / directory
    (made / file).parent.mkdir(parents=True, exist_ok=True)
    (made / file).write_text(f"{rate}\n")
    if place:
        (folder / "devices" / place).mkdir(parents=True)
        (made / "device").symlink_to(folder / "devices" / place)
    return made


def promised(folder: Path, test: TestSettings) -> float | None:
    """The same by both ways."""
    directory, rate = place_of(test)
    argv = ["sh", "-c", PORT_SCRIPT, "sh", str(folder / directory), rate]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    here = promised_here(test, Host(sysfs=str(folder)))
    assert here == promised_there(test, done.stdout)
    return here


@pytest.mark.parametrize(
    ("test", "text", "rate"),
    [
        (RDMA, NDR, 50e9),
        (RDMA, "100 Gb/sec", 12.5e9),
        (RDMA, "<unknown>", None),
        (TCP, "25000", 3.125e9),
        (TCP, "-1", None),
        (TCP, "4294967295", None),
    ],
)
def test_physical_port_promises_its_rate(
    tmp_path: Path, test: TestSettings, text: str, rate: float | None
) -> None:
    made = device_of(tmp_path, test, text)
    assert promised(tmp_path, test) == rate
    (made / "node_desc").write_text("gpu-1 mlx5_1\n")
    assert promised(tmp_path, test) == rate


@pytest.mark.parametrize("place", ["", "virtio3", "vif-0", "mlx5_core.sf.4"])
@pytest.mark.parametrize(("test", "text"), [(RDMA, NDR), (TCP, "10000")])
def test_device_that_is_not_on_the_pci_bus_promises_none(
    tmp_path: Path, place: str, test: TestSettings, text: str
) -> None:
    """veth, bridges, bonds and VLANs have no device at all."""
    device_of(tmp_path, test, text, place)
    assert promised(tmp_path, test) is None


@pytest.mark.parametrize("text", ["rxe", "Software iWARP stack"])
def test_software_device_promises_none(tmp_path: Path, text: str) -> None:
    """Of older kernels it is linked to the device of the interface below."""
    made = device_of(tmp_path, RDMA, NDR)
    (made / "node_desc").write_text(f"{text}\n")
    assert promised(tmp_path, RDMA) is None
    (made / "node_desc").write_text("gpu-1\n")
    assert promised(tmp_path, RDMA) == 50e9
    (made / "parent").write_text("eth0\n")
    assert promised(tmp_path, RDMA) is None


def test_virtual_function_promises_none(tmp_path: Path) -> None:
    """On the host, and in a virtual machine, by its driver or its identity."""
    made = device_of(tmp_path, RDMA, NDR)
    (made / "device/device").write_text("0x1021\n")
    assert promised(tmp_path, RDMA) == 50e9
    (made / "device/physfn").symlink_to("../0000:18:00.1")
    assert promised(tmp_path, RDMA) is None
    (made / "device/physfn").unlink()
    (made / "device/device").write_text("0x101e\n")
    assert promised(tmp_path, RDMA) is None
    made = device_of(tmp_path, TCP, "50000", "0000:00:05.0")
    (tmp_path / "drivers/ena").mkdir(parents=True)
    (made / "device/driver").symlink_to(tmp_path / "drivers/ena")
    assert promised(tmp_path, TCP) is None


def test_device_that_is_not_there_promises_none(tmp_path: Path) -> None:
    assert promised(tmp_path, RDMA) is None
    assert promised_here(TestSettings(tool="iperf3", operation="tcp", device=""), Host()) is None
