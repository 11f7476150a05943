"""Probe `rdma` over simulated devices: single looks in this process, the rest in an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.rdma import reader
from nodevitals.probes.rdma.probe import RdmaProbe, RdmaSettings
from testbed.faultytree import FaultyTree
from testbed.nics import KINDS, Machine
from testbed.node import Node, run, wait_until

NDR, HDR = 50e9, 25e9
ERRORS = ("EINVAL", "EACCES", "ENODEV")
TEXTS = {"empty": b"", "binary": b"\xff\x00\xc3\x28\n", "no PMA": b"N/A (no PMA)\n"}
PREFIX = "nodevitals_rdma_port_"


def probe(sysfs: Path, **settings: object) -> RdmaProbe:
    made = RdmaProbe(Host(sysfs=str(sysfs)), RdmaSettings(**settings), "rdma")  # type: ignore[arg-type]
    made.open()
    return made


def look(at: RdmaProbe, carry: bytes = b"", *forgotten: str) -> Readings:
    readings = Readings(carry, (), forgotten)
    at.run(readings)
    return readings


def values(readings: Readings, family: str) -> dict[tuple[str, ...], float]:
    return {s.labels: s.value for s in readings.samples if s.family == PREFIX + family}


def value(readings: Readings, family: str, port: str, *rest: str) -> float | None:
    device, _, number = port.partition("/")
    found = values(readings, family)
    match = [v for k, v in found.items() if k[:2] == (device, number) and k[3:] == rest]
    return match[0] if match else None


def test_a_mixed_node_in_one_look(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2, mlx5_roce=1, bnxt_re=1, irdma=1, hns=1)
    machine.set("mlx5_0/1", counters__port_rcv_data=1000, counters__symbol_error=7)
    machine.set("bnxt_re0/1", hw_counters__tx_bytes=4096)
    for name in ("port_rcv_data", "port_xmit_data"):
        machine.path("bnxt_re0/1", f"counters/{name}").unlink()
    found = look(probe(machine.folder))
    rates = {labels[0]: rate for labels, rate in values(found, "rate_bytes_per_second").items()}
    assert rates == {
        "mlx5_0": NDR,
        "mlx5_1": NDR,
        "mlx5_2": HDR,
        "bnxt_re0": 12.5e9,
        "irdma0": 12.5e9,
        "hns_0": 12.5e9,
    }
    assert values(found, "expected_rate_bytes_per_second").keys() == values(found, "up").keys()
    assert set(values(found, "up").values()) == {1}
    assert value(found, "received_bytes_total", "mlx5_0/1") == 4000
    assert value(found, "transmitted_bytes_total", "bnxt_re0/1") == 4096
    assert value(found, "errors_total", "mlx5_0/1", "symbol_error") == 7
    assert value(found, "errors_total", "irdma0/1", "CRC errors") == 0
    # What has no performance management has no traffic and no link errors: missing, not 0.
    assert value(found, "received_bytes_total", "hns_0/1") is None
    assert value(found, "errors_total", "hns_0/1", "symbol_error") is None
    assert value(found, "gid_index", "mlx5_2/1") == 3
    assert value(found, "gid_index", "mlx5_0/1") is None
    info = [s.labels for s in found.samples if s.family == "nodevitals_rdma_device_info"]
    assert ("mlx5_0", "02fe:5a00:0018:0001", "0000:18:00.0", "MT4129") in [i[:4] for i in info]


def test_more_counters_on_request(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    found = look(probe(machine.folder, counters=("rx_*_requests",)))
    names = {labels[3] for labels in values(found, "other_total")}
    assert names == {"rx_atomic_requests", "rx_read_requests", "rx_write_requests"}


def test_a_port_that_is_down_has_no_rate(tmp_path: Path) -> None:
    """The file says 10 Gb/s then."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    at = probe(machine.folder)
    first = look(at)
    machine.down("mlx5_0/1")
    found = look(at, first.carry)
    assert value(found, "up", "mlx5_0/1") == 0
    assert value(found, "physical_state_id", "mlx5_0/1") == 2
    assert value(found, "rate_bytes_per_second", "mlx5_0/1") is None
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == NDR
    assert [(c.device, c.state) for c in found.conditions] == [("mlx5_0/1", "down")]


def test_a_port_that_never_was_up_is_not_expected(tmp_path: Path) -> None:
    """A second port that nobody has cabled."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.down("mlx5_0/1", counted=False)
    found = look(probe(machine.folder))
    assert value(found, "up", "mlx5_0/1") == 0
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") is None
    assert found.conditions[0].state == "unused"


@pytest.mark.parametrize("width", ["2X NDR", "4X HDR"])
def test_a_port_that_trained_lower_is_seen_against_its_best(tmp_path: Path, width: str) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    at = probe(machine.folder)
    first = look(at)
    machine.up("mlx5_0/1", f"200 Gb/sec ({width})")
    found = look(at, first.carry)
    assert value(found, "rate_bytes_per_second", "mlx5_0/1") == HDR
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == NDR
    assert found.conditions[0].state == "slow"
    again = look(at, found.carry, "mlx5_0/1")  # `history forget`: it is meant to be so
    assert value(again, "expected_rate_bytes_per_second", "mlx5_0/1") == HDR


def test_what_the_configuration_expects_comes_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    found = look(probe(machine.folder, expected={"mlx5_0/1": 100e9, "mlx5_9/1": NDR}))
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == 100e9
    assert value(found, "up", "mlx5_9/1") == 0
    counts = {s.family[16:]: s.value for s in found.samples if not s.labels}
    assert counts == {"ports_present": 1, "ports_expected": 2}


def test_a_device_that_fell_off_the_bus(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2)
    at = probe(machine.folder)
    first = look(at)
    machine.vanish("mlx5_1")
    gone = look(at, first.carry)
    assert value(gone, "up", "mlx5_1/1") == 0
    assert value(gone, "state_id", "mlx5_1/1") is None
    assert value(gone, "expected_rate_bytes_per_second", "mlx5_1/1") == NDR
    counts = {s.family[16:]: s.value for s in gone.samples if not s.labels}
    assert counts == {"ports_present": 1, "ports_expected": 2}
    machine.come_back("mlx5_1")
    assert value(look(at, gone.carry), "up", "mlx5_1/1") == 1


def test_a_renamed_device_is_not_missed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    first = look(probe(machine.folder))
    machine.rename("mlx5_0", "ibp24s0")
    found = look(probe(machine.folder), first.carry)
    assert {labels[0] for labels in values(found, "up")} == {"ibp24s0"}


def test_drivers_that_are_not_loaded(tmp_path: Path) -> None:
    """Without ports known, nothing; with them, all are missing; with some expected, a failure."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    first = look(probe(machine.folder))
    machine.remove_tree()
    with pytest.raises(Absent):
        look(probe(machine.folder))
    assert value(look(probe(machine.folder), first.carry), "up", "mlx5_0/1") == 0
    with pytest.raises(ProbeError) as error:
        look(probe(machine.folder, expected={"mlx5_0/1": NDR}))
    assert error.value.reason == "absent"


def test_a_sysfs_that_is_not_there_says_nothing_of_the_ports(tmp_path: Path) -> None:
    with pytest.raises(ProbeError) as error:
        look(probe(tmp_path / "wrong"))
    assert "is --path.sysfs right?" in error.value.message


def test_virtual_functions_are_left_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2)
    (machine.folder / "devices/0000:20:00.0/physfn").symlink_to("../0000:18:00.0")
    found = look(probe(machine.folder))
    assert {labels[0] for labels in values(found, "up")} == {"mlx5_0"}


def test_a_saturated_counter_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.set("mlx5_0/1", counters__link_downed=255, counters__port_xmit_wait=2**32 - 1)
    found = look(probe(machine.folder))
    assert value(found, "saturated", "mlx5_0/1", "link_downed") == 1
    assert value(found, "saturated", "mlx5_0/1", "port_xmit_wait") == 1
    assert value(found, "saturated", "mlx5_0/1", "symbol_error") == 0


@pytest.mark.parametrize("kind", ["mlx5_infiniband", "mlx5_roce"])
def test_flaps_between_two_looks_are_counted(tmp_path: Path, kind: str) -> None:
    machine = Machine(tmp_path / "sys", **{kind: 1})
    at = probe(machine.folder)
    first = look(at)
    assert flaps(first) == [0]
    machine.flap("mlx5_0/1", 3)
    found = look(at, first.carry)
    assert flaps(found) == [3]
    assert [condition.state for condition in found.conditions] == ["flapped"]
    machine.down("mlx5_0/1")
    assert flaps(look(at, found.carry)) == [1]


def flaps(readings: Readings) -> list[float]:
    return [s.value for s in readings.increments if s.family == PREFIX + "flaps_total"]


def test_a_roce_port_without_a_usable_gid(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_roce=1)
    for row in (2, 3):
        machine.set("mlx5_0/1", **{f"gids__{row}": ":".join(["0000"] * 8)})
    found = look(probe(machine.folder))
    assert value(found, "gid_usable", "mlx5_0/1") == 0
    assert value(found, "gid_index", "mlx5_0/1") == 1  # link-local: better than none
    interface = machine.interfaces["mlx5_0"]
    assert value(found, "interface_up", "mlx5_0/1", interface) == 1


def test_a_gid_on_an_interface_that_is_down_is_not_usable(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_roce=1)
    at = probe(machine.folder)
    first = look(at)
    machine.down("mlx5_0/1")
    found = look(at, first.carry)
    assert value(found, "gid_usable", "mlx5_0/1") == 0
    assert value(found, "interface_up", "mlx5_0/1", machine.interfaces["mlx5_0"]) == 0


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyTree]:
    with FaultyTree(tmp_path_factory.mktemp("faulty")) as tree:
        yield tree


def belongs(file: str) -> set[str]:
    """Return the families that a file of a port fills; with `/` the counter's name."""
    name = file.rpartition("/")[2]
    if "counters/" in file:
        if name in ("port_rcv_data", "rx_bytes"):
            return {"received_bytes_total"}
        if name in ("port_xmit_data", "tx_bytes"):
            return {"transmitted_bytes_total"}
        return {f"{family}/{name}" for family in ("errors_total", "congestion_total", "saturated")}
    if "gid" in file:
        return {"gid_usable", "gid_index"}
    return {
        "state": {"up", "state_id"},
        "phys_state": {"physical_state_id"},
        "rate": {"rate_bytes_per_second"},
    }.get(name, set())


def told(readings: Readings) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(s.family, s.labels): s.value for s in readings.samples}


def family_of(sample: tuple[str, tuple[str, ...]]) -> str:
    family, labels = sample
    short = family.removeprefix(PREFIX)
    named = short in ("errors_total", "congestion_total", "saturated")
    return f"{short}/{labels[3]}" if named else short


@contextmanager
def failing(faulty: FaultyTree, path: Path, error: str) -> Iterator[Path]:
    """Break one file; yields where to look at it: FUSE is slow, and only errors need it."""
    text, name = path.read_bytes(), str(path.relative_to(faulty.backing))
    if error in TEXTS:
        path.write_bytes(TEXTS[error])
        yield faulty.backing
        path.write_bytes(text)
    else:
        faulty.fail(name, error)
        yield faulty.mountpoint
        faulty.fail(name, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_costs_only_itself(faulty: FaultyTree, kind: str) -> None:
    machine = Machine(faulty.backing / kind, **{kind: 1})
    port = machine.ports[0]
    healthy = look(probe(faulty.mountpoint / kind))
    before = told(healthy)
    folder = machine.path(port, ".")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) > 15
    costly = 0
    for path in files:
        file = str(path.relative_to(folder))
        for error in (*ERRORS, *TEXTS):
            with failing(faulty, path, error) as root:
                found = look(probe(root / kind), healthy.carry)
            after = told(found)
            lost = {family_of(sample) for sample in before.keys() - after.keys()}
            assert lost <= belongs(file), (file, error)
            assert after.items() <= before.items(), (file, error)
            assert flaps(found) == [0]
            costly += bool(lost)
    assert costly > 30  # the faults did arrive
    assert told(look(probe(faulty.mountpoint / kind), healthy.carry)) == before


def test_a_driver_without_performance_management(faulty: FaultyTree) -> None:
    """Broadcom's: every file in `counters/` is there, and each read gives EINVAL."""
    machine = Machine(faulty.backing / "broadcom", bnxt_re=1)
    machine.set("bnxt_re0/1", hw_counters__rx_bytes=7000, hw_counters__oos_drop_count=3)
    for path in machine.path("bnxt_re0/1", "counters").iterdir():
        faulty.fail(str(path.relative_to(faulty.backing)), "EINVAL")
    found = look(probe(faulty.mountpoint / "broadcom"))
    assert value(found, "received_bytes_total", "bnxt_re0/1") == 7000
    assert value(found, "errors_total", "bnxt_re0/1", "oos_drop_count") == 3
    assert not values(found, "saturated")
    assert value(found, "up", "bnxt_re0/1") == 1


def test_no_file_of_an_excluded_device_is_opened(faulty: FaultyTree) -> None:
    machine = Machine(faulty.backing / "excluded", mlx5_infiniband=2)
    home = machine.folder / "devices/0000:20:00.0"
    for path in home.rglob("*"):
        if path.is_file():
            faulty.fail(str(path.relative_to(faulty.backing)), "hang")
    found = look(probe(faulty.mountpoint / "excluded", exclude=("mlx5_1",)))
    assert {labels[0] for labels in values(found, "up")} == {"mlx5_0"}
    for path in home.rglob("*"):
        if path.is_file():
            faulty.fail(str(path.relative_to(faulty.backing)), None)


def test_a_refused_counter_is_left_alone_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking again and again for what a driver refuses fills the kernel's log."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.set("mlx5_0/1", counters__symbol_error="N/A (no PMA)")
    at = probe(machine.folder)
    first = look(at)
    machine.set("mlx5_0/1", counters__symbol_error=5)
    assert value(look(at, first.carry), "errors_total", "mlx5_0/1", "symbol_error") is None
    monkeypatch.setattr(reader, "SLOW_SECONDS", 0)
    assert value(look(at, first.carry), "errors_total", "mlx5_0/1", "symbol_error") == 5


def test_a_device_whose_ports_cannot_be_listed_loses_no_port(faulty: FaultyTree) -> None:
    machine = Machine(faulty.backing / "unlisted", mlx5_infiniband=2)
    at = probe(faulty.mountpoint / "unlisted")
    first = look(at)
    ports = "unlisted/devices/0000:20:00.0/infiniband/mlx5_1/ports"
    faulty.fail(ports, "EACCES")
    for path in machine.path("mlx5_1/1", ".").glob("*"):
        if path.is_file():
            faulty.fail(str(path.relative_to(faulty.backing)), "EACCES")
    found = look(at, first.carry)
    assert value(found, "up", "mlx5_1/1") is None  # unknown, not lost
    assert {c.device: c.state for c in found.conditions}["mlx5_1/1"] == "unknown"


# With an agent.


def settings(**more: object) -> dict[str, object]:
    timing = {"interval": "300ms", "timeout": "300ms", "stale_after": "5s"}
    return {"probes": {"rdma": {"enabled": "auto", **timing, **more}}}


def test_faults_show_and_the_history_has_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2)
    up, expected = PREFIX + "up", PREFIX + "expected_rate_bytes_per_second"
    with Node(tmp_path, settings(), *machine.flags) as node:
        wait_until(lambda: node.value(up, device="mlx5_1") == 1)
        machine.vanish("mlx5_1")
        wait_until(lambda: node.value(up, device="mlx5_1") == 0)
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") is not None)
        machine.flap("mlx5_0/1", 2)
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 2)
        node.kill()
        machine.flap("mlx5_0/1")
        node.start()
        # What happened while nobody looked is counted too, and what was known still is.
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 3)
        assert node.value(up, device="mlx5_1") == 0
        assert node.value(expected, device="mlx5_1") == NDR
        done = run("history", "forget", "mlx5_1/1", f"--config.file={node.config_file}")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: node.value(up, device="mlx5_1") is None)
        text = run("history", f"--config.file={node.config_file}", "--csv").stdout
        states = [line.split(",")[3] for line in text.splitlines() if ",mlx5_1/1," in line]
        assert states == ["ok", "missing", "forgotten"]
        states = [line.split(",")[3] for line in text.splitlines() if ",mlx5_0/1," in line]
        assert states[:2] == ["ok", "flapped"]


def test_a_firmware_that_hangs_costs_only_the_probe(tmp_path: Path) -> None:
    with FaultyTree(tmp_path) as tree:
        machine = Machine(tree.backing / "sys", mlx5_infiniband=2)
        flag = f"--path.sysfs={tree.mountpoint / 'sys'}"
        with Node(tmp_path, settings(stale_after="1s"), flag) as node:
            success = "nodevitals_probe_success"
            wait_until(lambda: node.value(success, probe="rdma") == 1)
            path = machine.path("mlx5_1/1", "counters/link_downed").relative_to(tree.backing)
            tree.fail(str(path), "hang")
            wait_until(lambda: node.value(success, probe="rdma") == 0)
            wait_until(lambda: node.value(PREFIX + "up", device="mlx5_0") is None)
            assert node.value(success, probe="node") == 1
            tree.fail(str(path), None)
            wait_until(lambda: node.value(PREFIX + "up", device="mlx5_0") == 1, 40)


def test_every_second_after_an_edit_and_a_reload(tmp_path: Path) -> None:
    """What operators do while they look for a fault: no restart, no counter starts anew."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=8, mlx5_roce=1)
    slow = {"rdma": {"interval": "1h"}, "network": {"interval": "1h"}}
    with Node(tmp_path, {"probes": slow}, *machine.flags) as node:
        wait_until(lambda: node.get("/readyz").ok)
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 0)
        machine.flap("mlx5_0/1")
        fast = {"rdma": {"interval": "1s"}, "network": {"interval": "1s"}}
        node.write({"probes": fast})
        node.hang_up()
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 1)
        assert node.value("nodevitals_probe_interval_seconds", probe="network") == 1
        started = "process_start_time_seconds"
        before = node.value(started)
        runs = "nodevitals_probe_runs_total"
        first = {p: node.value(runs, probe=p, outcome="ok") or 0 for p in ("rdma", "network")}
        path = "/metrics?collect[]=rdma&collect[]=network"
        seen = set()
        for look_number in range(4):
            machine.set("mlx5_0/1", counters__port_rcv_data=look_number)
            time.sleep(1.1)
            samples = node.samples(path)
            received = PREFIX + "received_bytes_total"
            seen |= {v for (name, _), v in samples.items() if name == received}
            assert {name.split("_")[1] for name, _ in samples} <= {"rdma", "network", "probe"}
        assert len(seen) >= 3
        for name, count in first.items():
            assert (node.value(runs, probe=name, outcome="ok") or 0) - count >= 3
        assert node.value(started) == before


def test_the_agent_opens_nothing_of_rdma_itself(tmp_path: Path) -> None:
    """A read in sysfs may hang: the main process holds no file of it."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    with Node(tmp_path, settings(), *machine.flags) as node:
        wait_until(lambda: node.value(PREFIX + "up", device="mlx5_0") == 1)
        folder = Path(f"/proc/{node.process.pid}/fd")
        opened = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()]
        assert not [path for path in opened if str(machine.folder) in path]


def test_one_run_from_the_command_line(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    done = run("probe", "rdma", *machine.flags)
    assert done.returncode == 0
    assert 'nodevitals_rdma_port_up{device="mlx5_0",port="1",link_layer="InfiniBand"} 1' in (
        done.stdout
    )
    config = tmp_path / "c.yaml"
    config.write_text("probes: {rdma: {expected: {mlx5_0/1: 400, eth0: 1Gb/s}, exclude: [mlx5*]}}")
    done = run("check-config", str(config))
    assert done.returncode == 1
    assert "probes.rdma.expected.mlx5_0/1: 400 is not a rate: write it like 400Gb/s" in done.stderr
    config.write_text("probes: {rdma: {expected: {eth0: 1Gb/s, mlx5_0/1: 1Gb/s}, exclude: [mlx*]}}")
    done = run("check-config", str(config))
    assert "probes.rdma.expected.eth0: no port: write DEVICE/PORT" in done.stderr
    assert "probes.rdma.expected.mlx5_0/1: excluded as well" in done.stderr
    config.write_text("probes: {rdma: {expected: {mlx5_0/1: 400Gb/s}}}")
    wrong = f"--path.sysfs={tmp_path / 'nowhere'}"
    done = run("probe", "rdma", f"--config.file={config}", wrong)
    assert (done.returncode, "is --path.sysfs right?" in done.stderr) == (1, True)
