"""Probe `transceivers`: an agent on simulated ports, whose drivers a server answers for (netlink)
and whose mlxlink is a fake program; and reads that hang.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from nodevitals.probes.transceivers.bounded import Answers, read_all
from nodevitals.probes.transceivers.probe import TransceiversProbe
from testbed.mlxlink import COPPER, EMPTY, OPTICAL, Mlxlink
from testbed.modules import LANE_WATTS, osfp, qsfp, sfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine
from testbed.node import Node, run, wait_until

P = "nodevitals_transceiver_"
COUNTS = {2: 1000, 3: 0}
WITHOUT_NET_ADMIN = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"]


class Site(msgspec.Struct):
    """A simulated node with two RoCE ports and two ports of InfiniBand."""

    machine: Machine
    kernel: EthtoolKernel
    mlxlink: Mlxlink
    node: Node

    @property
    def interfaces(self) -> list[str]:
        """Of the RoCE ports."""
        return [self.machine.interfaces[one] for one in ("mlx5_2", "mlx5_3")]

    def value(self, family: str, **labels: str) -> float | None:
        return self.node.value(P + family, **labels)

    def succeeds(self) -> bool:
        """Whether the last run did; on a busy machine some time out."""
        return self.node.value("nodevitals_probe_success", probe="transceivers") == 1

    def lanes(self, family: str, **labels: str) -> list[float]:
        """The values by lane."""
        wanted = set(labels.items())
        found = {
            dict(pairs)["lane"]: value
            for (name, pairs), value in self.node.samples().items()
            if name == P + family and wanted <= pairs
        }
        return [found[lane] for lane in sorted(found)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    machine = Machine(tmp_path / "sys", mlx5_infiniband=2, mlx5_roce=2)
    mlxlink = Mlxlink(tmp_path)
    for slot in ("0000:18:00.0", "0000:20:00.0"):
        mlxlink.set(slot)
    with EthtoolKernel(tmp_path) as kernel:
        for device in ("mlx5_2", "mlx5_3"):
            kernel.interfaces[machine.interfaces[device]] = Driver(osfp(), dict(COUNTS))
        settings = {"interval": "2s", "timeout": "2s", "mlxlink": str(mlxlink.program)}
        node = Node(
            tmp_path,
            {"probes": {"transceivers": settings}},
            *machine.flags,
            **kernel.environment,
        )
        yield Site(machine, kernel, mlxlink, node)


def test_modules_of_both_kinds_are_exposed(site: Site) -> None:
    first, second = site.interfaces
    site.kernel.interfaces[second] = Driver(qsfp(), {2: 7, 3: 1, 4: 9}, {0: 5000, 1: 12})
    site.mlxlink.set("0000:20:00.0", COPPER)
    with site.node:
        wait_until(lambda: site.value("readable", device="mlx5_1") == 1)
        assert site.lanes("receive_watts", interface=first) == pytest.approx(LANE_WATTS)
        assert site.value("receive_low_watts", interface=first) == pytest.approx(0.2e-3)
        ours = {"device": "mlx5_3", "port": "1", "interface": second}
        assert site.value("temperature_celsius", **ours) == 45.5
        assert site.value("voltage_volts", **ours) == pytest.approx(3.3)
        assert site.value("corrected_blocks_total", **ours) == 7
        assert site.value("uncorrected_blocks_total", **ours) == 1
        assert site.value("corrected_bit_errors_total", **ours) == 9
        assert site.value("blocks_total", **ours, symbols="1") == 12
        assert site.value("link_up", **ours) == 1
        info = {"kind": "QSFP", "manufacturer": "TESTBED OPTICS", "serial": "TB0000001"}
        assert site.value("info", **ours, **info, medium="optical") == 1
        infiniband = {"device": "mlx5_0", "port": "1"}
        assert site.lanes("receive_watts", **infiniband)[1] == pytest.approx(1e-3)
        assert site.lanes("raw_errors_total", **infiniband) == [120, 30, 0, 7]
        assert site.value("effective_errors_total", **infiniband) == 0
        assert site.value("info", device="mlx5_1", medium="copper") == 1
        assert site.lanes("receive_watts", device="mlx5_1") == []
        assert site.value("temperature_celsius", device="mlx5_1") is None
        wait_until(site.succeeds)
        exposed = {name for name, _ in site.node.samples()}
        readable = {f.name for f in TransceiversProbe.families} - {P + "unreadable"}
        assert readable <= exposed


def test_cage_without_a_module_is_missing_not_unreadable(site: Site) -> None:
    first, second = site.interfaces
    site.machine.down("mlx5_3/1")
    site.kernel.interfaces[second] = Driver(None, dict(COUNTS))
    site.mlxlink.set("0000:20:00.0", EMPTY)
    with site.node:
        wait_until(lambda: site.value("readable", interface=first) == 1)
        assert site.value("readable", interface=second) is None
        assert site.value("link_up", interface=second) == 0
        assert site.value("corrected_blocks_total", interface=second) == 1000
        assert site.value("readable", device="mlx5_1") is None
        # The driver's error is the same for an empty cage and for a module that broke.
        assert site.value("unreadable", interface=second, reason="no_link") == 1
        assert site.value("unreadable", interface=first, reason="no_link") is None
        wait_until(site.succeeds)


@pytest.mark.parametrize(
    "driver",
    [
        Driver({**qsfp(), **{key: page[::-1] for key, page in qsfp().items() if key[2]}}),
        Driver(sfp(), error=errno.EIO),
        Driver(garbled=b"\x10\0\0\0"),
        Driver(garbled=b"\xff" * 64),
        Driver({key: page[:100] for key, page in qsfp().items()}),
    ],
    ids=["wrong checksum", "error", "truncated", "lying length", "short page"],
)
def test_module_of_a_link_that_is_up_and_cannot_be_read(site: Site, driver: Driver) -> None:
    first, second = site.interfaces
    site.kernel.interfaces[second] = driver
    with site.node:
        wait_until(lambda: site.value("readable", interface=second) == 0)
        assert site.value("temperature_celsius", interface=second) is None
        assert site.value("unreadable", interface=second, reason="error") == 1
        assert site.value("readable", interface=first) == 1
        wait_until(site.succeeds)
        flag = f"--config.file={site.node.config_file}"
        wait_until(
            lambda: f"{second},unreadable" in run("history", "--csv", flag).stdout.replace('"', "")
        )


def test_driver_that_cannot_read_modules_is_absent(site: Site) -> None:
    for name in site.interfaces:
        site.kernel.interfaces[name] = Driver(error=errno.EOPNOTSUPP)
    site.mlxlink.program.unlink()
    with site.node:
        wait_until(lambda: "absent: no driver that can read a module" in site.node.log())
        assert not any(name.startswith(P) for name, _ in site.node.samples())


def test_module_that_may_not_be_read_is_neither_healthy_nor_absent(site: Site) -> None:
    """The link of one is up, that of the other down: both are unknown, and say why."""
    first, second = site.interfaces
    site.machine.down("mlx5_3/1")
    site.kernel.interfaces[second] = Driver(osfp())
    site.mlxlink.program.unlink()
    site.node.wrapper = WITHOUT_NET_ADMIN
    flags, environment = site.machine.flags, site.kernel.environment
    command = [*WITHOUT_NET_ADMIN, sys.executable, "-m", "nodevitals", "probe", "transceivers"]
    done = subprocess.run(
        [*command, *flags], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert (done.returncode, "not on this node" in done.stderr) == (0, False), done.stderr
    assert f"modules of {first}, {second} cannot be read without CAP_NET_ADMIN" in done.stderr
    assert "nodevitals-hardware-health.conf" in done.stderr
    with site.node:
        for name in site.interfaces:
            labels = {"interface": name, "reason": "permission"}
            wait_until(partial(site.value, "unreadable", **labels))
            assert site.value("readable", interface=name) is None
            assert site.value("info", interface=name) is None
        assert site.value("corrected_blocks_total", interface=first) == 1000
        wait_until(site.succeeds)
    site.node.write({"probes": {"transceivers": {"enabled": True, "interval": "2s"}}})
    with site.node:
        wait_until(lambda: "needs CAP_NET_ADMIN" in site.node.log())


def test_excluded_port_is_not_asked(site: Site) -> None:
    first, second = site.interfaces
    exclude = {"exclude": [second, "mlx5_*"], "interval": "2s"}
    site.node.write({"probes": {"transceivers": exclude}})
    with site.node:
        wait_until(lambda: site.value("readable", interface=first) == 1)
        assert set(site.kernel.asked) == {first}


def test_mlxlink_that_fails_or_prints_nonsense_costs_only_its_port(site: Site) -> None:
    for text in ("Segmentation fault", '{"result": {"output": []}}', "[" * 3000):
        site.mlxlink.print("0000:18:00.0", text)
        with site.node:
            wait_until(lambda: site.value("readable", device="mlx5_0") == 0)
            assert site.value("readable", device="mlx5_1") == 1


def test_port_whose_read_hangs_costs_only_itself(site: Site) -> None:
    """Reads of the others are exposed, and the probe says which port it is."""
    site.mlxlink.print("0000:18:00.0", "hang")
    with site.node:
        wait_until(lambda: "mlx5_0/1: the driver does not answer" in site.node.log())
        # The one that hung is read last from then on.
        wait_until(lambda: site.value("readable", device="mlx5_1") == 1)
        assert site.value("readable", device="mlx5_0") is None
        assert site.value("readable", interface=site.interfaces[0]) == 1
        site.mlxlink.set("0000:18:00.0", OPTICAL)
        wait_until(lambda: site.value("readable", device="mlx5_0") == 1)


def read(names: list[str], seconds: float = 0.3, until: float = 20.0) -> Answers:
    """Names say what their read does."""

    def one(name: str) -> bytes:
        if "sleep" in name:
            time.sleep(600)
        if "stop" in name:
            os.kill(os.getpid(), signal.SIGSTOP)
        if "crash" in name:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "raise" in name:
            raise RuntimeError(name)
        return b"x" * 100_000 if "large" in name else b"" if "empty" in name else name.encode()

    return read_all(names, one, seconds, time.monotonic() + until)


def test_reads_go_on_after_one_that_hangs_or_crashes() -> None:
    answers = read(["a", "sleep", "b", "crash", "c", "stop", "d"], seconds=2)
    assert answers.read == {"a": b"a", "b": b"b", "c": b"c", "d": b"d"}
    assert (answers.hung, answers.failed) == (["sleep", "stop"], ["crash"])
    assert (answers.left, answers.unread) == ({}, [])


def test_many_that_hang_end_the_run() -> None:
    answers = read([f"sleep {number}" for number in range(9)])
    assert len(answers.hung) == 3
    assert len(answers.unread) == 6


def test_reads_end_at_the_deadline() -> None:
    answers = read(["sleep 1", "sleep 2"], seconds=600, until=0.2)
    assert answers.hung == ["sleep 1"]
    assert answers.unread == ["sleep 2"]


def test_answers_may_be_large_but_not_empty(capfd: pytest.CaptureFixture[str]) -> None:
    answers = read(["large", "empty", "a"], seconds=20)
    assert len(answers.read["large"]) == 100_000
    assert answers.failed == ["empty"]
    assert answers.read["a"] == b"a"
    assert read(["raise", "b"], seconds=20).failed == ["raise"]
