"""Probe `rdma` on simulated devices: single runs in this process, the rest in an agent."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.common.rdma import gid_of_port
from nodevitals.probes.rdma import reader
from nodevitals.probes.rdma.probe import RdmaProbe, RdmaSettings, RdmaState
from nodevitals.wire import decode, encode
from testbed.faultytree import FaultyTree
from testbed.nics import KINDS, Machine
from testbed.node import Node, wait_until
from testbed.node import run as command

NDR, HDR = 50e9, 25e9
ERRORS = ("EINVAL", "EACCES", "ENODEV")
TEXTS = {"empty": b"", "binary": b"\xff\x00\xc3\x28\n", "no PMA": b"N/A (no PMA)\n"}
PREFIX = "nodevitals_rdma_port_"


OPENED: list[RdmaProbe] = []


@pytest.fixture(autouse=True)
def closed_probes() -> Iterator[None]:
    """Close the probes of a test: each has a thread."""
    yield
    while OPENED:
        OPENED.pop().close()


def new_probe(sysfs: Path, state: RdmaState | None = None, **settings: object) -> RdmaProbe:
    probe = RdmaProbe(Host(sysfs=str(sysfs)), RdmaSettings(**settings), "rdma")  # type: ignore[arg-type]
    probe.state = state or RdmaState()
    probe.open()
    OPENED.append(probe)
    return probe


def run(probe: RdmaProbe, *forgotten: str) -> Readings:
    """One run; the state goes through the engine's encoding first."""
    probe.state = decode(encode(probe.state), RdmaState)
    readings = Readings((), forgotten, RdmaProbe.families)
    probe.run(readings)
    return readings


def values(readings: Readings, family: str) -> dict[tuple[str, ...], float]:
    return {s.labels: s.value for s in readings.samples if s.family == PREFIX + family}


def value(readings: Readings, family: str, port: str, *rest: str) -> float | None:
    device, _, number = port.partition("/")
    found = values(readings, family)
    match = [v for k, v in found.items() if k[:2] == (device, number) and k[3:] == rest]
    return match[0] if match else None


def test_devices_of_all_drivers_in_one_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2, mlx5_roce=1, bnxt_re=1, irdma=1, hns=1)
    machine.set("mlx5_0/1", counters__port_rcv_data=1000, counters__symbol_error=7)
    machine.set("bnxt_re0/1", hw_counters__tx_bytes=4096)
    for name in ("port_rcv_data", "port_xmit_data"):
        machine.path("bnxt_re0/1", f"counters/{name}").unlink()
    found = run(new_probe(machine.folder))
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
    # Without performance management, traffic and link errors are missing, not 0.
    assert value(found, "received_bytes_total", "hns_0/1") is None
    assert value(found, "errors_total", "hns_0/1", "symbol_error") is None
    assert value(found, "gid_index", "mlx5_2/1") == 3
    assert value(found, "gid_index", "mlx5_0/1") is None
    info = [s.labels for s in found.samples if s.family == "nodevitals_rdma_device_info"]
    assert ("mlx5_0", "02fe:5a00:0018:0001", "0000:18:00.0", "MT4129") in [i[:4] for i in info]


def test_further_counters_are_exposed_on_request(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    found = run(new_probe(machine.folder, counters=("rx_*_requests",)))
    names = {labels[3] for labels in values(found, "other_total")}
    assert names == {"rx_atomic_requests", "rx_read_requests", "rx_write_requests"}


def test_port_that_is_down_has_no_rate(tmp_path: Path) -> None:
    """Its file contains 10 Gb/s."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    probe = new_probe(machine.folder)
    run(probe)
    machine.down("mlx5_0/1")
    found = run(probe)
    assert value(found, "up", "mlx5_0/1") == 0
    assert value(found, "physical_state_id", "mlx5_0/1") == 2
    assert value(found, "rate_bytes_per_second", "mlx5_0/1") is None
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == NDR
    assert [(c.device, c.state) for c in found.conditions] == [("mlx5_0/1", "down")]


def test_port_that_never_was_up_is_not_expected(tmp_path: Path) -> None:
    """A second port without a cable."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.down("mlx5_0/1", counted=False)
    found = run(new_probe(machine.folder))
    assert value(found, "up", "mlx5_0/1") == 0
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") is None
    assert found.conditions[0].state == "unused"


@pytest.mark.parametrize("width", ["2X NDR", "4X HDR"])
def test_port_that_trained_lower_is_slow_against_its_best_rate(tmp_path: Path, width: str) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    probe = new_probe(machine.folder)
    run(probe)
    machine.up("mlx5_0/1", f"200 Gb/sec ({width})")
    found = run(probe)
    assert value(found, "rate_bytes_per_second", "mlx5_0/1") == HDR
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == NDR
    assert found.conditions[0].state == "slow"
    again = run(probe, "mlx5_0/1")  # `history forget`: the lower rate is intended
    assert value(again, "expected_rate_bytes_per_second", "mlx5_0/1") == HDR


def test_configured_rate_precedes_the_best_rate(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    found = run(new_probe(machine.folder, expected={"mlx5_0/1": 100e9, "mlx5_9/1": NDR}))
    assert value(found, "expected_rate_bytes_per_second", "mlx5_0/1") == 100e9
    assert value(found, "up", "mlx5_9/1") == 0
    counts = {s.family[16:]: s.value for s in found.samples if not s.labels}
    assert counts == {"ports_present": 1, "ports_expected": 2}


def test_device_that_fell_off_the_bus_is_down_until_it_returns(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2)
    probe = new_probe(machine.folder)
    run(probe)
    machine.vanish("mlx5_1")
    gone = run(probe)
    assert value(gone, "up", "mlx5_1/1") == 0
    assert value(gone, "state_id", "mlx5_1/1") is None
    assert value(gone, "expected_rate_bytes_per_second", "mlx5_1/1") == NDR
    counts = {s.family[16:]: s.value for s in gone.samples if not s.labels}
    assert counts == {"ports_present": 1, "ports_expected": 2}
    machine.come_back("mlx5_1")
    assert value(run(probe), "up", "mlx5_1/1") == 1


def test_renamed_device_is_not_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    probe = new_probe(machine.folder)
    run(probe)
    machine.rename("mlx5_0", "ibp24s0")
    found = run(probe)
    assert {labels[0] for labels in values(found, "up")} == {"ibp24s0"}


def test_driver_that_is_not_loaded(tmp_path: Path) -> None:
    """Absent without known ports; known ports are missing; expected ports make it a failure."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    probe = new_probe(machine.folder)
    run(probe)
    machine.remove_tree()
    with pytest.raises(Absent):
        run(new_probe(machine.folder))
    assert value(run(new_probe(machine.folder, probe.state)), "up", "mlx5_0/1") == 0
    with pytest.raises(ProbeError) as error:
        run(new_probe(machine.folder, expected={"mlx5_0/1": NDR}))
    assert error.value.reason == "absent"


def test_wrong_sysfs_path_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ProbeError) as error:
        run(new_probe(tmp_path / "wrong"))
    assert "is --path.sysfs right?" in error.value.message


def test_virtual_functions_are_left_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2)
    (machine.folder / "devices/0000:20:00.0/physfn").symlink_to("../0000:18:00.0")
    found = run(new_probe(machine.folder))
    assert {labels[0] for labels in values(found, "up")} == {"mlx5_0"}


def test_saturated_counter_is_exposed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.set("mlx5_0/1", counters__link_downed=255, counters__port_xmit_wait=2**32 - 1)
    found = run(new_probe(machine.folder))
    assert value(found, "saturated", "mlx5_0/1", "link_downed") == 1
    assert value(found, "saturated", "mlx5_0/1", "port_xmit_wait") == 1
    assert value(found, "saturated", "mlx5_0/1", "symbol_error") == 0


@pytest.mark.parametrize("kind", ["mlx5_infiniband", "mlx5_roce"])
def test_flaps_between_two_runs_are_counted(tmp_path: Path, kind: str) -> None:
    machine = Machine(tmp_path / "sys", **{kind: 1})
    probe = new_probe(machine.folder)
    assert flaps(run(probe)) == [0]
    machine.flap("mlx5_0/1", 3)
    found = run(probe)
    assert flaps(found) == [3]
    assert [condition.state for condition in found.conditions] == ["flapped"]
    machine.down("mlx5_0/1")
    assert flaps(run(probe)) == [1]


def flaps(readings: Readings) -> list[float]:
    return [s.value for s in readings.increments if s.family == PREFIX + "flaps_total"]


def test_roce_port_without_a_routable_gid(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_roce=1)
    for row in (2, 3):
        machine.set("mlx5_0/1", **{f"gids__{row}": ":".join(["0000"] * 8)})
    found = run(new_probe(machine.folder))
    assert value(found, "gid_usable", "mlx5_0/1") == 0
    assert value(found, "gid_index", "mlx5_0/1") == 1  # link-local: better than none
    interface = machine.interfaces["mlx5_0"]
    assert value(found, "interface_up", "mlx5_0/1", interface) == 1


def test_gid_on_an_interface_that_is_down_is_not_usable(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_roce=1)
    probe = new_probe(machine.folder)
    run(probe)
    machine.down("mlx5_0/1")
    found = run(probe)
    assert value(found, "gid_usable", "mlx5_0/1") == 0
    assert value(found, "interface_up", "mlx5_0/1", machine.interfaces["mlx5_0"]) == 0


def test_gid_of_a_port_for_fabric_tests(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1, mlx5_roce=1)
    host = Host(sysfs=str(machine.folder))
    found = gid_of_port(host, "mlx5_1", 1)
    assert found is not None
    assert found.index == value(run(new_probe(machine.folder)), "gid_index", "mlx5_1/1") == 3
    assert gid_of_port(host, "mlx5_0", 1) is None  # InfiniBand
    machine.down("mlx5_1/1")
    assert gid_of_port(host, "mlx5_1", 1) is None
    assert gid_of_port(host, "mlx5_9", 1) is None


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyTree]:
    with FaultyTree(tmp_path_factory.mktemp("faulty")) as tree:
        yield tree


def belongs(file: str) -> set[str]:
    """Return the families that a file of a port fills, each with `/` and the counter's name."""
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


def samples(readings: Readings) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(s.family, s.labels): s.value for s in readings.samples}


def family_of(sample: tuple[str, tuple[str, ...]]) -> str:
    family, labels = sample
    short = family.removeprefix(PREFIX)
    named = short in ("errors_total", "congestion_total", "saturated")
    return f"{short}/{labels[3]}" if named else short


@pytest.fixture(scope="module")
def broken_files(faulty: FaultyTree) -> dict[str, Path]:
    """Return a file for each fault: a driver's error through FUSE, or a text that is no value."""
    files = {}
    for error in ERRORS:
        (faulty.backing / error).write_text("0\n")
        faulty.fail(error, error)
        files[error] = faulty.mountpoint / error
        with pytest.raises(OSError, match=os.strerror(getattr(errno, error))):
            files[error].read_bytes()
    for name, text in TEXTS.items():
        files[name] = faulty.backing / name
        files[name].write_bytes(text)
    return files


@contextmanager
def replaced(path: Path, by: Path) -> Iterator[None]:
    """Replace a file by a link to another one: of a port's files only the broken one is then read
    through FUSE, which takes longer than all the others together.
    """
    text = path.read_bytes()
    path.unlink()
    path.symlink_to(by)
    yield
    path.unlink()
    path.write_bytes(text)


@pytest.mark.parametrize("kind", KINDS)
def test_unreadable_file_affects_only_its_own_samples(
    tmp_path: Path, broken_files: dict[str, Path], kind: str
) -> None:
    machine = Machine(tmp_path / "sys", **{kind: 1})
    probe = new_probe(machine.folder)
    before = samples(run(probe))
    folder = machine.path(machine.ports[0], ".")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) > 15
    affected = 0
    for path in files:
        file = str(path.relative_to(folder))
        for fault, broken in broken_files.items():
            with replaced(path, broken):
                found = run(new_probe(machine.folder, probe.state))
            after = samples(found)
            lost = {family_of(sample) for sample in before.keys() - after.keys()}
            assert lost <= belongs(file), (file, fault)
            assert after.items() <= before.items(), (file, fault)
            assert flaps(found) == [0]
            affected += bool(lost)
    assert affected > 30  # the faults did arrive
    assert samples(run(new_probe(machine.folder, probe.state))) == before


def test_driver_without_performance_management(faulty: FaultyTree) -> None:
    """Broadcom's: every file in `counters/` exists, and each read fails with EINVAL."""
    machine = Machine(faulty.backing / "broadcom", bnxt_re=1)
    machine.set("bnxt_re0/1", hw_counters__rx_bytes=7000, hw_counters__oos_drop_count=3)
    for path in machine.path("bnxt_re0/1", "counters").iterdir():
        faulty.fail(str(path.relative_to(faulty.backing)), "EINVAL")
    found = run(new_probe(faulty.mountpoint / "broadcom"))
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
    found = run(new_probe(faulty.mountpoint / "excluded", exclude=("mlx5_1",)))
    assert {labels[0] for labels in values(found, "up")} == {"mlx5_0"}
    for path in home.rglob("*"):
        if path.is_file():
            faulty.fail(str(path.relative_to(faulty.backing)), None)


def test_refused_counter_is_not_read_again_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read that a driver refuses may write a line to the kernel's log."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    machine.set("mlx5_0/1", counters__symbol_error="N/A (no PMA)")
    probe = new_probe(machine.folder)
    run(probe)
    machine.set("mlx5_0/1", counters__symbol_error=5)
    assert value(run(probe), "errors_total", "mlx5_0/1", "symbol_error") is None
    monkeypatch.setattr(reader, "REFRESH_SECONDS", 0)
    assert value(run(probe), "errors_total", "mlx5_0/1", "symbol_error") == 5


def test_device_whose_ports_cannot_be_listed_loses_no_port(faulty: FaultyTree) -> None:
    machine = Machine(faulty.backing / "unlisted", mlx5_infiniband=2)
    probe = new_probe(faulty.mountpoint / "unlisted")
    run(probe)
    ports = "unlisted/devices/0000:20:00.0/infiniband/mlx5_1/ports"
    faulty.fail(ports, "EACCES")
    for path in machine.path("mlx5_1/1", ".").glob("*"):
        if path.is_file():
            faulty.fail(str(path.relative_to(faulty.backing)), "EACCES")
    found = run(probe)
    assert value(found, "up", "mlx5_1/1") is None  # unknown, not lost
    assert {c.device: c.state for c in found.conditions}["mlx5_1/1"] == "unknown"


# With an agent.


def settings(**more: object) -> dict[str, object]:
    timing = {"interval": "300ms", "timeout": "300ms", "stale_after": "5s"}
    return {"probes": {"rdma": {"enabled": "auto", **timing, **more}}}


def test_faults_are_exposed_and_recorded_in_the_history(tmp_path: Path) -> None:
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
        # Events while the agent was down are counted, and known ports are still known.
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 3)
        assert node.value(up, device="mlx5_1") == 0
        assert node.value(expected, device="mlx5_1") == NDR
        done = command("history", "forget", "mlx5_1/1", f"--config.file={node.config_file}")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: node.value(up, device="mlx5_1") is None)
        text = command("history", f"--config.file={node.config_file}", "--csv").stdout
        states = [line.split(",")[3] for line in text.splitlines() if ",mlx5_1/1," in line]
        assert states == ["ok", "missing", "forgotten"]
        states = [line.split(",")[3] for line in text.splitlines() if ",mlx5_0/1," in line]
        assert states[:2] == ["ok", "flapped"]


def test_firmware_that_hangs_affects_only_the_probe(tmp_path: Path) -> None:
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
            wait_until(lambda: "; reading mlx5_1/1, in /" in node.log())
            assert node.value(success, probe="node") == 1
            tree.fail(str(path), None)
            wait_until(lambda: node.value(PREFIX + "up", device="mlx5_0") == 1, 40)


def test_reload_shortens_the_interval_and_keeps_the_counters(tmp_path: Path) -> None:
    """What operators do while they search for a fault: no restart, no counter starts again."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=8, mlx5_roce=1)
    slow = {"rdma": {"interval": "1h"}, "network": {"interval": "1h"}}
    with Node(tmp_path, {"probes": slow}, *machine.flags) as node:
        wait_until(lambda: node.get("/readyz").ok)
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 0)
        machine.flap("mlx5_0/1")
        fast = {"rdma": {"interval": "400ms"}, "network": {"interval": "400ms"}}
        node.write({"probes": fast})
        node.hang_up()
        wait_until(lambda: node.value(PREFIX + "flaps_total", device="mlx5_0") == 1)
        assert node.value("nodevitals_probe_interval_seconds", probe="network") == 0.4
        started = "process_start_time_seconds"
        before = node.value(started)
        runs = "nodevitals_probe_runs_total"
        first = {p: node.value(runs, probe=p, outcome="ok") or 0 for p in ("rdma", "network")}
        path = "/metrics?collect[]=rdma&collect[]=network"

        def received() -> set[float]:
            samples = node.samples(path)
            assert {name.split("_")[1] for name, _ in samples} <= {"rdma", "network", "probe"}
            name = PREFIX + "received_bytes_total"
            return {value for (one, _), value in samples.items() if one == name}

        for number in (3, 5, 8):  # words of four bytes
            machine.set("mlx5_0/1", counters__port_rcv_data=number)
            wait_until(lambda number=number: 4.0 * number in received())  # type: ignore[misc]
        for name, count in first.items():
            enough = partial(node.value, runs, probe=name, outcome="ok")
            wait_until(lambda enough=enough, count=count: (enough() or 0) >= count + 3)  # type: ignore[misc]
        assert node.value(started) == before


def test_main_process_opens_no_file_of_rdma(tmp_path: Path) -> None:
    """A read in sysfs may hang."""
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    with Node(tmp_path, settings(), *machine.flags) as node:
        wait_until(lambda: node.value(PREFIX + "up", device="mlx5_0") == 1)
        folder = Path(f"/proc/{node.process.pid}/fd")
        opened = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()]
        assert not [path for path in opened if str(machine.folder) in path]


def test_commands_probe_and_check_config(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=1)
    done = command("probe", "rdma", "--raw", *machine.flags)
    assert done.returncode == 0
    assert 'nodevitals_rdma_port_up{device="mlx5_0",port="1",link_layer="InfiniBand"} 1' in (
        done.stdout
    )
    config = tmp_path / "c.yaml"
    config.write_text("probes: {rdma: {expected: {mlx5_0/1: 400, eth0: 1Gb/s}, exclude: [mlx5*]}}")
    done = command("check-config", str(config))
    assert done.returncode == 1
    assert "probes.rdma.expected.mlx5_0/1: 400 is not a rate: write it like 400Gb/s" in done.stderr
    config.write_text("probes: {rdma: {expected: {eth0: 1Gb/s, mlx5_0/1: 1Gb/s}, exclude: [mlx*]}}")
    done = command("check-config", str(config))
    assert "probes.rdma.expected.eth0: no port: write DEVICE/PORT" in done.stderr
    assert "probes.rdma.expected.mlx5_0/1: excluded as well" in done.stderr
    config.write_text("probes: {rdma: {expected: {mlx5_0/1: 400Gb/s}}}")
    wrong = f"--path.sysfs={tmp_path / 'nowhere'}"
    done = command("probe", "rdma", "--raw", f"--config.file={config}", wrong)
    assert (done.returncode, "is --path.sysfs right?" in done.stderr) == (1, True)
