"""Probe `network` over simulated interfaces, and over this machine's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.network import (
    NetworkProbe,
    NetworkSettings,
    is_representor,
    parse_speed,
)
from testbed.faultytree import FaultyTree
from testbed.namespaces import Network
from testbed.nics import Machine
from testbed.node import Node, wait_until
from testbed.trees import write

PREFIX = "nodevitals_network_"


def probe(sysfs: Path, **settings: object) -> NetworkProbe:
    made = NetworkProbe(Host(sysfs=str(sysfs)), NetworkSettings(**settings), "network")  # type: ignore[arg-type]
    made.open()
    return made


def look(at: NetworkProbe, carry: bytes = b"", *forgotten: str) -> Readings:
    readings = Readings(carry, (), forgotten)
    at.run(readings)
    return readings


def value(readings: Readings, family: str, *labels: str) -> float | None:
    found = {s.labels: s.value for s in readings.samples if s.family == PREFIX + family}
    return found.get(labels)


def told(readings: Readings) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(s.family, s.labels): s.value for s in readings.samples}


def interfaces(readings: Readings) -> set[str]:
    return {s.labels[0] for s in readings.samples if s.family == PREFIX + "up"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys", mlx5_roce=2)


def test_speeds_and_what_drivers_write_for_unknown() -> None:
    assert parse_speed("100000") == 12.5e9
    for text in ("-1", "4294967295", "65535", "0", "", "fast"):
        assert parse_speed(text) is None


def test_the_other_ends_of_virtual_functions() -> None:
    assert is_representor("pf0vf12")
    assert is_representor("c1pf0sf3")
    assert not is_representor("p0")
    assert not is_representor("")


def test_an_interface(machine: Machine) -> None:
    name = machine.interfaces["mlx5_0"]
    machine.set_interface(name, statistics__rx_errors=3, statistics__rx_missed_errors=4)
    machine.set_interface(name, statistics__tx_bytes=5000, carrier_changes=7)
    found = look(probe(machine.folder))
    labels = (name, "physical")
    assert value(found, "up", *labels) == 1
    assert value(found, "speed_bytes_per_second", *labels) == 25e9
    assert value(found, "expected_speed_bytes_per_second", *labels) == 25e9
    assert value(found, "full_duplex", *labels) == 1
    assert value(found, "mtu_bytes", *labels) == 9000
    assert value(found, "carrier_changes_total", *labels) == 7
    assert value(found, "transmitted_bytes_total", *labels) == 5000
    assert value(found, "errors_total", name, "receive", "error") == 3
    assert value(found, "errors_total", name, "receive", "missed") == 4
    assert value(found, "errors_total", name, "transmit", "drop") == 0
    assert value(found, "info", *labels, "0000:18:00.0", "mlx5_core", "02:5a:00:00:00:18") == 1


def test_what_is_virtual_is_left_out(machine: Machine) -> None:
    for name in ("lo", "docker0", "veth12ab", "ens24.100"):
        machine.virtual_interface(name)
    function = machine.folder / "devices/0000:20:00.0"
    (function / "physfn").symlink_to("../0000:18:00.0")
    write(machine.folder, {"class/net/bonding_masters": "bond0\n"})  # a file among the folders
    assert interfaces(look(probe(machine.folder))) == {machine.interfaces["mlx5_0"]}


def test_a_representor_is_left_out(machine: Machine) -> None:
    name = machine.interfaces["mlx5_1"]
    write(machine.folder, {f"devices/0000:20:00.0/net/{name}/phys_port_name": "pf0vf3\n"})
    assert interfaces(look(probe(machine.folder))) == {machine.interfaces["mlx5_0"]}


def test_an_interface_that_is_down_has_no_speed(machine: Machine) -> None:
    at = probe(machine.folder)
    first = look(at)
    machine.down("mlx5_0/1")
    found = look(at, first.carry)
    labels = (machine.interfaces["mlx5_0"], "physical")
    assert value(found, "up", *labels) == 0
    assert value(found, "speed_bytes_per_second", *labels) is None
    assert value(found, "expected_speed_bytes_per_second", *labels) == 25e9
    machine.up("mlx5_0/1", "100 Gb/sec (2X HDR)")
    found = look(at, found.carry)
    assert value(found, "speed_bytes_per_second", *labels) == 12.5e9
    assert value(found, "expected_speed_bytes_per_second", *labels) == 25e9
    assert {c.device: c.state for c in found.conditions}[labels[0]] == "slow"


def test_a_card_that_is_gone_is_missed_until_it_is_forgotten(machine: Machine) -> None:
    at = probe(machine.folder)
    first = look(at)
    name = machine.interfaces["mlx5_1"]
    machine.vanish("mlx5_1")
    found = look(at, first.carry)
    assert value(found, "up", name, "physical") == 0
    assert (value(found, "interfaces_present"), value(found, "interfaces_expected")) == (1, 2)
    found = look(at, found.carry, name)
    assert value(found, "up", name, "physical") is None
    assert value(found, "interfaces_expected") == 1


def test_expected_and_excluded(machine: Machine) -> None:
    first, second = machine.interfaces.values()
    found = look(probe(machine.folder, expected={first: 50e9, "ens99": 1e9}, exclude=(second,)))
    assert interfaces(found) == {first, "ens99"}
    assert value(found, "expected_speed_bytes_per_second", first, "physical") == 50e9
    assert value(found, "up", "ens99", "physical") == 0


def test_a_bond_and_its_members(machine: Machine) -> None:
    members = sorted(machine.interfaces.values())
    machine.bond("bond0", *members, speed=400_000)
    at = probe(machine.folder)
    found = look(at)
    assert value(found, "up", "bond0", "bond") == 1
    assert value(found, "speed_bytes_per_second", "bond0", "bond") == 50e9
    assert [value(found, "bond_member_up", "bond0", member) for member in members] == [1, 1]
    machine.set_interface(members[1], bonding_slave__mii_status="down")
    machine.set_interface("bond0", speed=200_000)
    found = look(at, found.carry)
    assert [value(found, "bond_member_up", "bond0", member) for member in members] == [1, 0]
    assert value(found, "expected_speed_bytes_per_second", "bond0", "bond") == 50e9


def test_another_card_under_the_name_of_one_that_went(machine: Machine) -> None:
    name = machine.interfaces["mlx5_0"]
    at = probe(machine.folder)
    look(at)
    machine.set_interface(name, ifindex=77, address="02:00:00:00:00:77")
    found = look(at)
    assert value(found, "info", name, "physical", "0000:18:00.0", "mlx5_core", "02:00:00:00:00:77")


def test_no_interface_and_no_sysfs(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net").mkdir(parents=True)
    with pytest.raises(Absent):
        look(probe(tmp_path / "sys"))
    with pytest.raises(ProbeError, match="is it that of the node's namespace"):
        look(probe(tmp_path / "sys", expected={"ens1": 1e9}))
    with pytest.raises(ProbeError, match=r"is --path\.sysfs right"):
        look(probe(tmp_path / "nowhere"))


def belongs(file: str) -> set[str]:
    name = file.rpartition("/")[2]
    if "statistics/" in file and name.endswith("_bytes"):
        return {"received_bytes_total", "transmitted_bytes_total"}
    if "statistics/" in file:
        return {"errors_total"}
    return {
        "operstate": {"up"},
        "speed": {"speed_bytes_per_second"},
        "duplex": {"full_duplex"},
        "mtu": {"mtu_bytes"},
        "carrier_changes": {"carrier_changes_total"},
        "address": {"info"},
    }.get(name, set())


def test_a_file_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    with FaultyTree(tmp_path) as tree:
        machine = Machine(tree.backing / "sys", mlx5_roce=1)
        folder = (machine.folder / "class/net" / machine.interfaces["mlx5_0"]).resolve()
        root = tree.mountpoint / "sys"
        healthy = look(probe(root))
        before = told(healthy)
        costly = 0
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "ifindex"):
            for error in ("EINVAL", "EACCES", "ENODEV"):
                tree.fail(str(path.relative_to(tree.backing)), error)
                after = told(look(probe(root), healthy.carry))
                tree.fail(str(path.relative_to(tree.backing)), None)
                lost = {family.removeprefix(PREFIX) for family, _ in before.keys() - after.keys()}
                assert lost <= belongs(str(path.relative_to(folder))), (path.name, error)
                changed = {family for (family, _), _ in after.items() - before.items()}
                assert changed <= {PREFIX + "info"}, (path.name, error)
                costly += bool(lost)
        assert costly > 30


def test_a_real_link_goes_down_and_up(tmp_path: Path) -> None:
    """The kernel's own files: a veth is virtual, so it is given a device's folder beside it."""
    with Network() as network:
        peer = network.add("far")
        folder = tmp_path / "sys/class/net"
        folder.mkdir(parents=True)
        (tmp_path / "mnt").mkdir()
        subprocess.run(["mount", "-t", "sysfs", "sysfs", tmp_path / "mnt"], check=True)
        try:
            real = tmp_path / "mnt/class/net" / peer.link
            (folder / "ens1").mkdir()
            for file in ("operstate", "carrier", "speed", "duplex", "mtu", "ifindex", "address"):
                (folder / "ens1" / file).symlink_to(real / file)
            (folder / "ens1/statistics").symlink_to(real / "statistics")
            (folder / "ens1/device").symlink_to("../../../devices/0000:18:00.0")
            settings = {"probes": {"network": {"interval": "300ms", "timeout": "300ms"}}}
            with Node(tmp_path, settings, f"--path.sysfs={tmp_path / 'sys'}") as node:
                wait_until(lambda: node.value(PREFIX + "up") == 1)
                assert node.value(PREFIX + "speed_bytes_per_second") == 1.25e9
                peer.down()
                wait_until(lambda: node.value(PREFIX + "up") == 0)
                peer.up()
                wait_until(lambda: node.value(PREFIX + "up") == 1)
        finally:
            subprocess.run(["umount", "-l", tmp_path / "mnt"], check=True)
