"""Probe `network` on simulated interfaces, and on a real one of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.common.interface import is_representor, parse_speed
from nodevitals.probes.network import NetworkProbe, NetworkSettings, NetworkState
from nodevitals.wire import decode, encode
from testbed.faultytree import FaultyTree
from testbed.namespaces import Network
from testbed.nics import Machine
from testbed.node import Node, wait_until
from testbed.trees import write

PREFIX = "nodevitals_network_"


OPENED: list[NetworkProbe] = []


@pytest.fixture(autouse=True)
def closed_probes() -> Iterator[None]:
    """Close the probes of a test: each has a thread."""
    yield
    while OPENED:
        OPENED.pop().close()


def new_probe(sysfs: Path, state: NetworkState | None = None, **settings: object) -> NetworkProbe:
    probe = NetworkProbe(Host(sysfs=str(sysfs)), NetworkSettings(**settings), "network")  # type: ignore[arg-type]
    probe.state = state or NetworkState()
    probe.open()
    OPENED.append(probe)
    return probe


def run(probe: NetworkProbe, *forgotten: str) -> Readings:
    """One run; the state goes through the engine's encoding first."""
    probe.state = decode(encode(probe.state), NetworkState)
    readings = Readings((), forgotten, NetworkProbe.families)
    probe.run(readings)
    return readings


def value(readings: Readings, family: str, *labels: str) -> float | None:
    found = {s.labels: s.value for s in readings.samples if s.family == PREFIX + family}
    return found.get(labels)


def samples(readings: Readings) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(s.family, s.labels): s.value for s in readings.samples}


def interfaces(readings: Readings) -> set[str]:
    return {s.labels[0] for s in readings.samples if s.family == PREFIX + "up"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys", mlx5_roce=2)


def test_speeds_and_unknown_speeds_are_parsed() -> None:
    assert parse_speed("100000") == 12.5e9
    for text in ("-1", "4294967295", "65535", "0", "", "fast"):
        assert parse_speed(text) is None


def test_representors_are_recognized_by_their_port_name() -> None:
    assert is_representor("pf0vf12")
    assert is_representor("c1pf0sf3")
    assert not is_representor("p0")
    assert not is_representor("")


def test_every_family_of_an_interface_is_exposed(machine: Machine) -> None:
    name = machine.interfaces["mlx5_0"]
    machine.set_interface(name, statistics__rx_errors=3, statistics__rx_missed_errors=4)
    machine.set_interface(name, statistics__tx_bytes=5000, carrier_changes=7)
    found = run(new_probe(machine.folder))
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


def test_virtual_interfaces_are_left_out(machine: Machine) -> None:
    for name in ("lo", "docker0", "veth12ab", "ens24.100"):
        machine.virtual_interface(name)
    function = machine.folder / "devices/0000:20:00.0"
    (function / "physfn").symlink_to("../0000:18:00.0")
    write(machine.folder, {"class/net/bonding_masters": "bond0\n"})  # a file among the directories
    assert interfaces(run(new_probe(machine.folder))) == {machine.interfaces["mlx5_0"]}


def test_representor_is_left_out(machine: Machine) -> None:
    name = machine.interfaces["mlx5_1"]
    write(machine.folder, {f"devices/0000:20:00.0/net/{name}/phys_port_name": "pf0vf3\n"})
    assert interfaces(run(new_probe(machine.folder))) == {machine.interfaces["mlx5_0"]}


def test_interface_that_is_down_has_no_speed(machine: Machine) -> None:
    probe = new_probe(machine.folder)
    run(probe)
    machine.down("mlx5_0/1")
    found = run(probe)
    labels = (machine.interfaces["mlx5_0"], "physical")
    assert value(found, "up", *labels) == 0
    assert value(found, "speed_bytes_per_second", *labels) is None
    assert value(found, "expected_speed_bytes_per_second", *labels) == 25e9
    machine.up("mlx5_0/1", "100 Gb/sec (2X HDR)")
    found = run(probe)
    assert value(found, "speed_bytes_per_second", *labels) == 12.5e9
    assert value(found, "expected_speed_bytes_per_second", *labels) == 25e9
    assert {c.device: c.state for c in found.conditions}[labels[0]] == "slow"


def test_removed_interface_is_down_until_it_is_forgotten(machine: Machine) -> None:
    probe = new_probe(machine.folder)
    run(probe)
    name = machine.interfaces["mlx5_1"]
    machine.vanish("mlx5_1")
    found = run(probe)
    assert value(found, "up", name, "physical") == 0
    assert (value(found, "interfaces_present"), value(found, "interfaces_expected")) == (1, 2)
    found = run(probe, name)
    assert value(found, "up", name, "physical") is None
    assert value(found, "interfaces_expected") == 1


def test_expected_and_excluded_interfaces(machine: Machine) -> None:
    first, second = machine.interfaces.values()
    found = run(new_probe(machine.folder, expected={first: 50e9, "ens99": 1e9}, exclude=(second,)))
    assert interfaces(found) == {first, "ens99"}
    assert value(found, "expected_speed_bytes_per_second", first, "physical") == 50e9
    assert value(found, "up", "ens99", "physical") == 0


def test_bond_and_its_members_are_exposed(machine: Machine) -> None:
    members = sorted(machine.interfaces.values())
    machine.bond("bond0", *members, speed=400_000)
    probe = new_probe(machine.folder)
    found = run(probe)
    assert value(found, "up", "bond0", "bond") == 1
    assert value(found, "speed_bytes_per_second", "bond0", "bond") == 50e9
    assert [value(found, "bond_member_up", "bond0", member) for member in members] == [1, 1]
    machine.set_interface(members[1], bonding_slave__mii_status="down")
    machine.set_interface("bond0", speed=200_000)
    found = run(probe)
    assert [value(found, "bond_member_up", "bond0", member) for member in members] == [1, 0]
    assert value(found, "expected_speed_bytes_per_second", "bond0", "bond") == 50e9


def test_other_device_under_the_name_of_a_removed_one_is_read_again(machine: Machine) -> None:
    name = machine.interfaces["mlx5_0"]
    probe = new_probe(machine.folder)
    run(probe)
    machine.set_interface(name, ifindex=77, address="02:00:00:00:00:77")
    found = run(probe)
    assert value(found, "info", name, "physical", "0000:18:00.0", "mlx5_core", "02:00:00:00:00:77")


def test_absent_interfaces_and_wrong_sysfs_path(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net").mkdir(parents=True)
    with pytest.raises(Absent):
        run(new_probe(tmp_path / "sys"))
    with pytest.raises(ProbeError, match="is it of the node's network namespace"):
        run(new_probe(tmp_path / "sys", expected={"ens1": 1e9}))
    with pytest.raises(ProbeError, match=r"is --path\.sysfs right"):
        run(new_probe(tmp_path / "nowhere"))


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


def test_unreadable_file_affects_only_its_own_samples(tmp_path: Path) -> None:
    with FaultyTree(tmp_path) as tree:
        machine = Machine(tree.backing / "sys", mlx5_roce=1)
        folder = (machine.folder / "class/net" / machine.interfaces["mlx5_0"]).resolve()
        root = tree.mountpoint / "sys"
        probe = new_probe(root)
        before = samples(run(probe))
        affected = 0
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "ifindex"):
            for error in ("EINVAL", "EACCES", "ENODEV"):
                tree.fail(str(path.relative_to(tree.backing)), error)
                after = samples(run(new_probe(root, probe.state)))
                tree.fail(str(path.relative_to(tree.backing)), None)
                lost = {family.removeprefix(PREFIX) for family, _ in before.keys() - after.keys()}
                assert lost <= belongs(str(path.relative_to(folder))), (path.name, error)
                changed = {family for (family, _), _ in after.items() - before.items()}
                assert changed <= {PREFIX + "info"}, (path.name, error)
                affected += bool(lost)
        assert affected > 30


def test_real_link_goes_down_and_up(tmp_path: Path) -> None:
    """The kernel's own files. A veth has no device, so the tree adds one."""
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
