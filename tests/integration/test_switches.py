"""Probe `switches`: lldpctl on PATH, the files of a site and a simulated sysfs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings, Timing
from nodevitals.probes.switches.probe import (
    MAX_PORTS,
    SwitchesProbe,
    SwitchesSettings,
    SwitchesState,
)
from nodevitals.wire import decode, encode
from testbed.nics import Machine
from testbed.node import Node, wait_until
from testbed.switches import NO_DAEMON, Lldpd, compact, json0, neighbour, topology
from testbed.trees import write

Series = dict[tuple[str, str], tuple[str, str, str]]
DAY = 86400.0
LEAF = neighbour("leaf-1", "Ethernet7")
MANAGED = "MF0;leaf-a3:MQM9700/U1"
GUID = 0x02FE5A0000180001


class Site:
    """A node with two InfiniBand and two RoCE ports, and lldpd."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.machine = Machine(folder / "sys", mlx5_infiniband=2, mlx5_roce=2)
        self.roce = self.machine.interfaces["mlx5_2"]
        self.lldpd = Lldpd(folder)
        self.settings: dict[str, Any] = {}
        self.timing = Timing(interval_seconds=300.0, timeout_seconds=10.0)
        self.state = SwitchesState()
        self.readings = Readings()
        monkeypatch.setenv("PATH", self.lldpd.environment["PATH"])
        monkeypatch.setenv("NODE_NAME", "node-7")

    def file(self, name: str, text: str, age_seconds: float = 0.0) -> None:
        """Write a file of the site, and name it in the settings."""
        path = self.folder / f"{name}.txt"
        write(self.folder, {path.name: text})
        os.utime(path, (time.time() - age_seconds,) * 2)
        self.settings[name] = str(path)

    def run(self, *interrupted: str) -> Series:
        """A run; the state goes through the engine's encoding."""
        host = Host(sysfs=str(self.folder / "sys"))
        probe = SwitchesProbe(host, SwitchesSettings(**self.settings), "switches", self.timing)
        probe.state = decode(encode(self.state), SwitchesState)
        self.readings = Readings((), (), SwitchesProbe.families, interrupted)
        try:
            probe.run(self.readings)
        finally:
            self.state = probe.state
        return self.series()

    def fail(self, reason: str, *interrupted: str) -> tuple[Series, str]:
        """A run that fails for this reason, and its message."""
        with pytest.raises(ProbeError) as caught:
            self.run(*interrupted)
        assert caught.value.reason == reason
        return self.series(), caught.value.message

    def series(self) -> Series:
        """The series of the last run, by port."""
        found = [one.labels for one in self.readings.samples if one.family.endswith("_info")]
        series: Series = {one[:2]: one[2:] for one in found}  # type: ignore[misc]
        assert len(series) == len(found)
        return series


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_neighbour_is_that_of_the_interface_and_of_its_rdma_port(site: Site) -> None:
    site.lldpd.see((site.roce, LEAF), ("eno1", neighbour("tor-2", "3", "local")))
    assert site.run() == {
        ("mlx5_2", "1"): ("leaf-1", "Ethernet7", "lldp"),
        (site.roce, ""): ("leaf-1", "Ethernet7", "lldp"),
        ("eno1", ""): ("tor-2", "3", "lldp"),
    }


def test_the_other_format_of_lldpctl_is_read_too(site: Site) -> None:
    site.lldpd.print(compact([(site.roce, LEAF)]))
    assert site.run()["mlx5_2", "1"] == ("leaf-1", "Ethernet7", "lldp")


def test_ports_of_infiniband_are_found_by_guid(site: Site) -> None:
    text = topology({GUID: (0x10, 3, MANAGED), 0x99: (0x11, 4, "MF0;leaf-b1:MQM9700/U1")})
    site.file("ibnetdiscover", text, age_seconds=100)
    interface = site.machine.interfaces["mlx5_0"]
    assert site.run() == {
        ("mlx5_0", "1"): ("leaf-a3", "3", "ibnetdiscover"),
        (interface, ""): ("leaf-a3", "3", "ibnetdiscover"),
    }
    written = [s.value for s in site.readings.samples if s.family.endswith("timestamp_seconds")]
    assert written == [os.stat(site.settings["ibnetdiscover"]).st_mtime]


def test_configuration_is_before_the_list_and_both_before_what_is_seen(site: Site) -> None:
    site.lldpd.see((site.roce, LEAF))
    rows = (
        "host,device,port,switch,switch_port\nnode-*,mlx5_1,1,rail-1,\nnode-7,mlx5_2,1,rail-2,12\n"
    )
    site.file("ports_file", rows)
    site.settings["ports"] = {"mlx5_1/1": "leaf-x"}
    found = site.run()
    assert found["mlx5_1", "1"] == ("leaf-x", "", "configuration")
    assert found["mlx5_2", "1"] == found[site.roce, ""] == ("rail-2", "12", "configuration")


def test_port_that_is_down_keeps_its_switch(site: Site) -> None:
    """A switch that reboots takes its LLDP with it; so does a device that falls off the bus."""
    site.lldpd.see((site.roce, LEAF))
    before = site.run()
    site.lldpd.see()
    site.machine.down("mlx5_2/1")
    assert site.run() == before
    site.machine.vanish("mlx5_2")
    assert site.run() == before
    site.state.seen = {
        name: type(one)(one.neighbour, one.source, one.time - 7.5 * DAY)
        for name, one in site.state.seen.items()
    }
    assert site.run() == {}


def test_moved_port_has_the_new_switch_alone_and_a_row_in_the_history(site: Site) -> None:
    site.lldpd.see((site.roce, LEAF))
    site.run()
    assert site.readings.events == []
    site.lldpd.see((site.roce, neighbour("leaf-2", "Ethernet9")))
    assert site.run()["mlx5_2", "1"] == ("leaf-2", "Ethernet9", "lldp")
    rows = [(one.device, one.state, one.detail) for one in site.readings.events]
    detail = "from leaf-1 port Ethernet7 to leaf-2 port Ethernet9"
    assert rows == [(site.roce, "moved", detail)]


def test_of_two_neighbours_the_known_one_stays(site: Site) -> None:
    """An unmanaged switch in between forwards what several send."""
    other = neighbour("leaf-2", "Ethernet9")
    site.lldpd.see((site.roce, LEAF))
    site.run()
    site.lldpd.see((site.roce, other), (site.roce, LEAF))
    assert site.run()["mlx5_2", "1"] == ("leaf-1", "Ethernet7", "lldp")
    assert site.readings.events == []


def test_old_file_is_no_news(site: Site) -> None:
    """What it has counts as seen when it was written, and is dropped after the same time."""
    site.file("ibnetdiscover", topology({GUID: (0x10, 3, MANAGED)}), age_seconds=6 * DAY)
    assert ("mlx5_0", "1") in site.run()
    site.file("ibnetdiscover", topology({GUID: (0x10, 3, MANAGED)}), age_seconds=8 * DAY)
    site.state = SwitchesState()
    assert site.run() == {}
    assert [s.family for s in site.readings.samples] == [
        "nodevitals_port_switch_ibnetdiscover_timestamp_seconds"
    ]


def test_half_written_file_takes_nothing_away(site: Site) -> None:
    text = topology({GUID: (0x10, 3, MANAGED), 0x99: (0x10, 4, MANAGED)})
    site.file("ibnetdiscover", text)
    site.file("ports_file", "host,device,port,switch\nnode-7,mlx5_2,1,rail-2\n")
    whole = site.run()
    last = text.rindex("Ca\t1")
    others = text.replace(f"{GUID:016x}", f"{0x98:016x}").replace(f"({GUID:x})", "(98)")
    for part in (text[:last], others):
        site.file("ibnetdiscover", part)
        assert site.run() == whole
    for part in ("", text[:200], "garbage\n" * 50_000):
        site.file("ibnetdiscover", part)
        found, message = site.fail("ibnetdiscover")
        assert found == whole
        assert "is it the output of ibnetdiscover?" in message
    site.file("ibnetdiscover", text)
    site.file("ports_file", "host,device,port,switch\nnode-7,mlx5_2,1,ra")
    found, message = site.fail("ports_file")
    assert found == whole
    assert message.endswith("the last line has no end: is the file half written?")


@pytest.mark.parametrize("name", ["ports_file", "ibnetdiscover"])
def test_file_that_is_gone_or_none_is_reported(site: Site, name: str) -> None:
    site.settings = {"ports": {"mlx5_0/1": "leaf-1"}, name: str(site.folder / "none")}
    found, message = site.fail(name)
    assert message == f"{site.folder}/none: No such file or directory"
    os.mkfifo(site.folder / "fifo")
    site.settings[name] = str(site.folder / "fifo")
    again, message = site.fail(name)
    assert message == f"{site.folder}/fifo: not a regular file"
    assert (
        found
        == again
        == {
            ("mlx5_0", "1"): ("leaf-1", "", "configuration"),
            (site.machine.interfaces["mlx5_0"], ""): ("leaf-1", "", "configuration"),
        }
    )


def test_without_a_source_the_probe_is_absent(site: Site) -> None:
    site.settings["lldpctl"] = str(site.folder / "none")
    with pytest.raises(Absent, match="none: No such file"):
        site.run()
    site.settings["lldp"] = False
    with pytest.raises(Absent, match="lldp: false"):
        site.run()


def test_lldpd_that_never_answered_is_not_in_use(site: Site) -> None:
    """A package that an image has; with a list of ports it does not matter at all."""
    site.lldpd.print("no daemon")
    with pytest.raises(Absent, match=r"unable to connect to socket .*lldpd\.socket"):
        site.run()
    site.settings["ports"] = {"mlx5_0/1": "leaf-1"}
    assert ("mlx5_0", "1") in site.run()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (json0([]) + NO_DAEMON, "lldp"),
        ("no daemon", "lldp"),
        ("", "lldp"),
        ("garbage", "lldp"),
        ("hang", "timeout"),
    ],
)
def test_lldpd_that_fails_after_it_worked_is_a_failure(site: Site, how: str, reason: str) -> None:
    site.lldpd.see((site.roce, LEAF))
    before = site.run()
    site.lldpd.print(how)
    if how == "hang":
        site.timing = Timing(interval_seconds=300.0, timeout_seconds=1.0)
    found, message = site.fail(reason)
    assert found == before
    assert "lldpctl -f json0" in message


def test_source_that_is_turned_off_is_forgotten(site: Site) -> None:
    site.lldpd.see((site.roce, LEAF))
    site.file("ports_file", "host,device,port,switch\nnode-7,mlx5_3,1,rail-3\n")
    site.file("ibnetdiscover", topology({GUID: (0x10, 3, MANAGED)}))
    devices = {device for device, port in site.run() if port}
    assert devices == {"mlx5_0", "mlx5_2", "mlx5_3"}
    site.settings = {"lldp": False, "ports": {"mlx5_1/1": "leaf-1"}}
    assert {device for device, port in site.run() if port} == {"mlx5_1"}


def test_bond_of_two_switches_has_none(site: Site) -> None:
    one, two = site.machine.interfaces["mlx5_2"], site.machine.interfaces["mlx5_3"]
    site.machine.bond("bond0", one, two, speed=400_000)
    site.lldpd.see((one, LEAF), (two, neighbour("leaf-2", "Ethernet7")))
    assert ("bond0", "") not in site.run()
    site.lldpd.see((one, LEAF), (two, neighbour("leaf-1", "Ethernet8")))
    assert site.run()["bond0", ""] == ("leaf-1", "Ethernet7,Ethernet8", "lldp")


def test_file_that_a_run_was_ended_at_is_read_after_the_report(site: Site) -> None:
    """Else one hung file would hide what the others have."""
    site.lldpd.see((site.roce, LEAF))
    site.file("ibnetdiscover", topology({GUID: (0x10, 3, MANAGED)}))
    found = site.run("ibnetdiscover")
    assert ("mlx5_2", "1") in found
    assert ("mlx5_0", "1") not in found
    assert ("mlx5_0", "1") in site.run()


def test_number_of_ports_is_bounded(site: Site) -> None:
    rows = "".join(f"node-7,dev{n},1,leaf-1\n" for n in range(2 * MAX_PORTS))
    site.file("ports_file", f"host,device,port,switch\n{rows}")
    site.lldpd.see(*((f"eth{n}", LEAF) for n in range(2 * MAX_PORTS)))
    assert len(site.run()) == MAX_PORTS
    assert len(site.state.listed) == len(site.state.seen) == MAX_PORTS


def test_switch_outlives_a_restart_of_the_agent(site: Site) -> None:
    """The leaf reboots, and the agent with it."""
    site.lldpd.see((site.roce, LEAF))
    config = {"probes": {"switches": {"interval": "300ms"}}}
    family = "nodevitals_port_switch_info"
    labels = {"device": "mlx5_2", "port": "1", "switch": "leaf-1"}
    flags, environment = site.machine.flags, site.lldpd.environment
    with Node(site.folder, config, *flags, **environment) as node:
        wait_until(lambda: node.value(family, **labels) == 1)
        site.lldpd.see()
        node.end()
        node.start()
        wait_until(lambda: node.value(family, **labels) == 1)
        runs = {"probe": "switches", "outcome": "ok"}
        wait_until(lambda: (node.value("nodevitals_probe_runs_total", **runs) or 0) >= 2)
        assert node.value(family, **labels) == 1
