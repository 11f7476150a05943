"""The rate that a port promises: that of a physical one, here and on a node that ssh reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probes.fabric.measurement import expected_of
from nodevitals.probes.fabric.node.port import (
    PORT_SCRIPT,
    facts_here,
    facts_there,
    limit_of,
    pcie_rate,
    place_of,
    promised,
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


def found(folder: Path, test: TestSettings) -> tuple[float | None, str]:
    """The same by both ways."""
    directory, rate = place_of(test)
    argv = ["sh", "-c", PORT_SCRIPT, "sh", str(folder / directory), rate]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    here = facts_here(test, Host(sysfs=str(folder)))
    there = facts_there(done.stdout)
    assert limit_of(test, here) == limit_of(test, there)
    assert promised(test, here) == promised(test, there)
    return promised(test, here), limit_of(test, here)


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
    assert found(tmp_path, test) == (rate, "")
    (made / "node_desc").write_text("gpu-1 mlx5_1\n")
    assert found(tmp_path, test) == (rate, "")


@pytest.mark.parametrize("place", ["", "virtio3", "vif-0", "mlx5_core.sf.4"])
@pytest.mark.parametrize(("test", "text"), [(RDMA, NDR), (TCP, "10000")])
def test_device_that_is_not_on_the_pci_bus_promises_none(
    tmp_path: Path, place: str, test: TestSettings, text: str
) -> None:
    """veth, bridges, bonds and VLANs have no device at all."""
    device_of(tmp_path, test, text, place)
    assert found(tmp_path, test) == (None, "")


@pytest.mark.parametrize("text", ["rxe", "Software iWARP stack"])
def test_software_device_promises_none(tmp_path: Path, text: str) -> None:
    """Of older kernels it is linked to the device of the interface below."""
    made = device_of(tmp_path, RDMA, NDR)
    (made / "node_desc").write_text(f"{text}\n")
    assert found(tmp_path, RDMA) == (None, "")
    (made / "node_desc").write_text("gpu-1\n")
    assert found(tmp_path, RDMA) == (50e9, "")
    (made / "parent").write_text("eth0\n")
    assert found(tmp_path, RDMA) == (None, "")


def test_virtual_function_promises_none(tmp_path: Path) -> None:
    """On the host, and in a virtual machine, by its driver or its identity."""
    made = device_of(tmp_path, RDMA, NDR)
    (made / "device/device").write_text("0x1021\n")
    assert found(tmp_path, RDMA) == (50e9, "")
    (made / "device/physfn").symlink_to("../0000:18:00.1")
    assert found(tmp_path, RDMA) == (None, "")
    (made / "device/physfn").unlink()
    (made / "device/device").write_text("0x101e\n")
    assert found(tmp_path, RDMA) == (None, "")
    made = device_of(tmp_path, TCP, "50000", "0000:00:05.0")
    (tmp_path / "drivers/ena").mkdir(parents=True)
    (made / "device/driver").symlink_to(tmp_path / "drivers/ena")
    assert found(tmp_path, TCP) == (None, "")


def test_device_that_is_not_there_promises_none(tmp_path: Path) -> None:
    assert found(tmp_path, RDMA) == (None, "")
    assert facts_here(TestSettings(tool="iperf3", operation="tcp", device=""), Host()) == {}


@pytest.mark.parametrize(
    ("speed", "width", "gigabits"),
    [
        (2.5, 8, 14.6),
        (5.0, 8, 29.3),
        (8.0, 16, 115.2),
        (16.0, 16, 230.5),
        (32.0, 16, 460.9),
        (64.0, 16, 863.1),
        (32.0, 8, 230.5),
    ],
)
def test_what_a_link_of_pcie_carries(speed: float, width: int, gigabits: float) -> None:
    rate = pcie_rate(speed, width)
    assert rate is not None
    assert rate * 8 / 1e9 == pytest.approx(gigabits, abs=0.1)
    assert pcie_rate(0.0, width) is pcie_rate(speed, 0) is None


def slot(folder: Path, test: TestSettings, *links: tuple[str, str]) -> None:
    """The link of a device as negotiated, and at most: of the device, of the port above it."""
    device = (folder / place_of(test)[0] / "device").resolve()
    for place, kind, (speed, width) in zip(
        (device, device, device.parent), ("current", "max", "max"), links
    ):
        (place / f"{kind}_link_speed").write_text(f"{speed}\n")
        (place / f"{kind}_link_width").write_text(f"{width}\n")


FULL, GEN4, NARROW = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16"), ("8.0 GT/s PCIe", "8")
UNKNOWN = ("Unknown", "0")
GEN4_RATE = pcie_rate(16.0, 16)


@pytest.mark.parametrize(
    ("links", "rate", "limit"),
    [
        ((FULL, FULL, FULL), 50e9, ""),
        ((FULL, FULL), 50e9, ""),
        # A slot that can do no more: it is what the port promises, and nothing is wrong.
        ((GEN4, FULL, GEN4), GEN4_RATE, ""),
        ((NARROW, FULL, GEN4), GEN4_RATE, "PCIe 8.0 GT/s x8 of 16.0 GT/s x16"),
        ((NARROW, FULL), 50e9, "PCIe 8.0 GT/s x8 of 32.0 GT/s x16"),
        ((NARROW, UNKNOWN, FULL), 50e9, ""),
        ((UNKNOWN, FULL, FULL), 50e9, ""),
    ],
)
def test_the_slot_bounds_the_promise(
    tmp_path: Path, links: tuple[tuple[str, str], ...], rate: float, limit: str
) -> None:
    device_of(tmp_path, RDMA, NDR)
    slot(tmp_path, RDMA, *links)
    assert found(tmp_path, RDMA) == (rate, limit)


def test_a_planned_test_expects_no_more_than_the_slot_carries(tmp_path: Path) -> None:
    device_of(tmp_path, RDMA, NDR)
    large = msgspec.structs.replace(RDMA, message_bytes=1 << 20)
    assert expected_of(large, Host(sysfs=str(tmp_path))) == 0.9 * 50e9
    slot(tmp_path, RDMA, GEN4, FULL, GEN4)
    assert GEN4_RATE is not None
    assert expected_of(large, Host(sysfs=str(tmp_path))) == 0.9 * GEN4_RATE
    assert expected_of(RDMA, Host(sysfs=str(tmp_path))) is None


def test_a_narrow_link_that_is_enough_limits_nothing(tmp_path: Path) -> None:
    device_of(tmp_path, TCP, "25000")
    slot(tmp_path, TCP, NARROW, FULL)
    assert found(tmp_path, TCP) == (3.125e9, "")


@given(st.text(), st.text())
def test_any_text_is_a_link_or_unknown(speed: str, width: str) -> None:
    facts = {"device": PCI, "rate": NDR}
    for name in ("current", "max"):
        facts[f"device/{name}_link_speed"] = speed
        facts[f"device/{name}_link_width"] = width
    assert promised(RDMA, facts) == 50e9 or limit_of(RDMA, facts) == ""
