"""Downtime of RDMA ports and network interfaces: in trees of small files, and of a real link."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nodevitals.linux.netlink import LinkEvents, index_of
from nodevitals.probes.common.downtime import MAX_GAP_SECONDS
from nodevitals.probes.common.link_watch import InterfaceFiles, PortFiles, now_seconds
from testbed.namespaces import Network, ip
from testbed.nics import Machine
from testbed.node import Node, run, wait_until

RDMA, NETWORK = "nodevitals_rdma_port_", "nodevitals_network_"
TOTAL, LONGEST = "down_seconds_total", "longest_down_seconds"
PROBES = {name: {"interval": "300ms", "timeout": "300ms"} for name in ("rdma", "network")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys", mlx5_infiniband=1, mlx5_roce=1)


@pytest.fixture
def node(tmp_path: Path, machine: Machine) -> Iterator[Node]:
    with Node(tmp_path, {"probes": PROBES}, *machine.flags) as running:
        wait_until(lambda: len(downtimes(running)) == 4)
        yield running


def downtimes(node: Node, suffix: str = TOTAL) -> dict[str, float]:
    """By port or interface."""
    found = {}
    for (name, pairs), value in node.samples().items():
        labels = dict(pairs)
        if name in (RDMA + suffix, NETWORK + suffix):
            found[labels.get("device") or labels["interface"]] = value
    return found


def wait_for_looks(node: Node) -> None:
    """Wait until every link was looked at several times: each run looks, too."""
    ends = {probe: runs(node, probe) + 6 for probe in PROBES}
    wait_until(lambda: all(runs(node, probe) > end for probe, end in ends.items()))


def runs(node: Node, probe: str) -> float:
    return node.value("nodevitals_probe_runs_total", probe=probe, outcome="ok") or 0.0


def test_counters_start_at_0_and_only_links_that_were_down_have_more(
    machine: Machine, node: Node
) -> None:
    roce = machine.interfaces["mlx5_1"]
    # The interface of the InfiniBand port is down, and never was up.
    names = ["mlx5_0", "mlx5_1", *machine.interfaces.values()]
    assert downtimes(node) == dict.fromkeys(names, 0)
    assert downtimes(node, LONGEST) == dict.fromkeys(names, 0)
    machine.down("mlx5_0/1")
    wait_until(lambda: downtimes(node)["mlx5_0"] >= 2)
    machine.up("mlx5_0/1")
    wait_until(lambda: node.value(RDMA + "up", device="mlx5_0") == 1)
    machine.down("mlx5_1/1")
    wait_until(lambda: downtimes(node)["mlx5_1"] > 0 and downtimes(node)[roce] > 0)
    machine.up("mlx5_1/1")
    assert downtimes(node)["mlx5_0"] == wait_until(lambda: downtimes(node, LONGEST)["mlx5_0"])


@pytest.mark.parametrize("port", ["mlx5_0/1", "mlx5_1/1"])
def test_port_that_is_switched_off_has_no_downtime(machine: Machine, node: Node, port: str) -> None:
    device = port.partition("/")[0]
    interface = machine.interfaces[device]
    if device == "mlx5_0":
        machine.set(port, phys_state="3: Disabled")
        machine.set(port, state="1: DOWN")
    else:
        machine.set_interface(interface, flags="0x1002")
        machine.down(port, counted=False)
    wait_until(lambda: node.value(RDMA + "up", device=device) == 0)
    wait_for_looks(node)
    assert set(downtimes(node).values()) == {0}
    # It trains, after it was switched on.
    machine.set_interface(interface, flags="0x1003")
    machine.down(port, counted=False)
    wait_for_looks(node)
    assert set(downtimes(node).values()) == {0}


def test_outage_is_in_the_history(machine: Machine, node: Node) -> None:
    machine.down("mlx5_0/1")
    wait_until(lambda: downtimes(node)["mlx5_0"] >= 1)
    machine.up("mlx5_0/1")
    flag = f"--config.file={node.config_file}"
    wait_until(lambda: ",outage,down for " in run("history", "--csv", flag).stdout)


@pytest.mark.parametrize("end", [Node.end, Node.kill])
def test_total_does_not_fall_and_the_outage_goes_on_after_a_restart(
    tmp_path: Path, machine: Machine, node: Node, end: Callable[[Node], None]
) -> None:
    """The port was down before and after, and its driver counted no further loss."""
    machine.down("mlx5_0/1")
    before = wait_until(lambda: downtimes(node)["mlx5_0"])
    end(node)
    with Node(tmp_path, {"probes": PROBES}, *machine.flags) as again:
        after = wait_until(lambda: downtimes(again).get("mlx5_0"))
        assert after >= before
        wait_until(lambda: downtimes(again)["mlx5_0"] > after + 1)
        if end is Node.end:  # else the last state may not be written
            assert downtimes(again, LONGEST)["mlx5_0"] > after


def send(number: int, processes: Iterable[psutil.Process]) -> None:
    """Send a signal to those that still exist."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def rests(process: psutil.Process) -> bool:
    """Whether it is stopped, or has ended: one that ends is reaped only when all go on."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_pause_of_the_agent_is_no_downtime(machine: Machine, node: Node) -> None:
    """It was stopped while the port was down, and when it goes on the port is up."""
    down_at = now_seconds()
    machine.down("mlx5_0/1")
    wait_until(lambda: downtimes(node)["mlx5_0"])
    agent = psutil.Process(node.process.pid)
    # The agent first: it would end workers that do not answer.
    family = [agent, *agent.children(recursive=True)]
    send(signal.SIGSTOP, family)
    wait_until(lambda: all(map(rests, family)))
    stopped_at = now_seconds()
    machine.up("mlx5_0/1")
    wait_until(lambda: now_seconds() > stopped_at + 2 * MAX_GAP_SECONDS)
    send(signal.SIGCONT, reversed(family))
    wait_until(lambda: node.value(RDMA + "up", device="mlx5_0") == 1)
    wait_until(lambda: machine_is_watched_again(machine, node))
    # What was counted before it stopped.
    assert downtimes(node)["mlx5_0"] <= stopped_at - down_at + MAX_GAP_SECONDS


def machine_is_watched_again(machine: Machine, node: Node) -> bool:
    """Whether another port's downtime is counted now."""
    machine.down("mlx5_1/1")
    return downtimes(node)["mlx5_1"] > 0


def test_sights_of_a_port(machine: Machine) -> None:
    directory = str(machine.path("mlx5_0/1", "state").parent)
    files = PortFiles(directory, 255)
    assert files.look() == "up"
    for state, physical, sight in (
        ("5: ACTIVE_DEFER", "5: LinkUp", "up"),
        ("2: INIT", "5: LinkUp", "down"),
        ("1: DOWN", "2: Polling", "down"),
        ("1: DOWN", "3: Disabled", "away"),
        ("1: DOWN", "", "unknown"),
        ("0: NOP", "2: Polling", "unknown"),
        ("", "2: Polling", "unknown"),
        ("\x00", "2: Polling", "unknown"),
    ):
        machine.set("mlx5_0/1", state=state, phys_state=physical)
        assert files.look() == sight, (state, physical)
    machine.set("mlx5_0/1", counters__link_downed=7)
    assert files.down_count() == 7
    machine.set("mlx5_0/1", counters__link_downed=255)
    assert files.down_count() is None
    machine.vanish("mlx5_0")
    assert files.look() == "away"


def test_sights_of_an_interface(machine: Machine) -> None:
    name = machine.interfaces["mlx5_1"]
    files = InterfaceFiles(name, str((machine.folder / "class/net" / name).resolve()))
    for flags, state, sight in (
        ("0x1003", "up", "up"),
        ("0x1003", "lowerlayerdown", "down"),
        ("0x1002", "down", "away"),
        ("0x1003", "", "unknown"),
        ("", "down", "unknown"),
        ("-", "down", "unknown"),
    ):
        machine.set_interface(name, flags=flags, operstate=state)
        assert files.look() == sight, (flags, state)
    machine.vanish("mlx5_1")
    assert files.look() == "away"


def test_kernel_announces_changes_of_a_real_interface() -> None:
    with Network() as network:
        peer = network.add("far")
        other = network.add("other")
        index, others = index_of(peer.link), index_of(other.link)
        assert index is not None
        assert others is not None
        events = LinkEvents()
        try:
            peer.down()
            wait_until(lambda: events.changed({index}))
            assert not events.changed({others})
        finally:
            events.close()
    assert index_of(peer.link) is None
    assert index_of("x" * 40) is None


def test_queue_of_announcements_that_was_full_means_a_change() -> None:
    with Network() as network:
        peer = network.add("far")
        events = LinkEvents()
        try:
            for number in range(2000):
                ip("link", "set", peer.link, "mtu", str(1400 + number % 2))
                if number % 100 == 0 and flooded(events):
                    break
            assert events.changed(set())
        finally:
            events.close()


def flooded(events: LinkEvents) -> bool:
    """Whether a queue of the kernel for this socket has lost messages."""
    with open("/proc/net/netlink", encoding="ascii") as lines:
        rows = [line.split() for line in lines][1:]
    inode = str(os.fstat(events.fileno()).st_ino)
    return any(row[-1] == inode and int(row[8]) > 0 for row in rows)


def test_real_link_is_seen_down_at_once(tmp_path: Path) -> None:
    """Runs are too rare to see it: the kernel announces it."""
    with Network() as network:
        peer = network.add("far")
        real = tmp_path / "mnt/class/net" / peer.link
        folder = tmp_path / "sys/class/net" / peer.link
        folder.mkdir(parents=True)
        (tmp_path / "mnt").mkdir()
        subprocess.run(["mount", "-t", "sysfs", "sysfs", tmp_path / "mnt"], check=True)
        try:
            for file in ("operstate", "carrier", "flags", "ifindex", "carrier_down_count"):
                (folder / file).symlink_to(real / file)
            (folder / "device").symlink_to("../../../devices/0000:18:00.0")
            with Node(
                tmp_path, {"probes": {"network": {}}}, f"--path.sysfs={tmp_path / 'sys'}"
            ) as node:
                wait_until(lambda: node.value(NETWORK + TOTAL) == 0)
                peer.down()
                down_at = now_seconds()
                wait_until(lambda: now_seconds() > down_at + 2)
                peer.up()
                wait_until(lambda: node.value(NETWORK + LONGEST), 40)
                assert node.value(NETWORK + "up") == 1
        finally:
            subprocess.run(["umount", "-l", tmp_path / "mnt"], check=True)
