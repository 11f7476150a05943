"""The files of `nodevitals init` as pure functions: what was found in, texts out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nodevitals import probes
from nodevitals.commands.cli import main
from nodevitals.commands.init import command, outputs
from nodevitals.commands.init.expected import (
    Expected,
    Link,
    expected_of,
    key,
    quoted,
    spelled,
    without_slow,
)
from nodevitals.commands.init.node import Node, groups_of, shared_mounts
from nodevitals.commands.init.outputs import Site
from nodevitals.commands.init.writer import Folder
from nodevitals.config import parse
from nodevitals.probes.mounts.mountinfo import Mount
from nodevitals.quantities import parse_bit_rate
from nodevitals.wire import ProbeResult, Sample
from testbed.node import ROOT

EXAMPLE = (ROOT / "exporter/packaging/nodevitals.example.yaml").read_text()
UNIT = (ROOT / "exporter/packaging/nodevitals.service").read_text()
MOUNTINFO = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:40 / /data rw - nfs4 filer:/export rw
3 1 0:41 / /scratch\\040a rw - lustre 10.0.0.1@o2ib:/fs rw
4 1 0:42 / /cache rw - fuse.juicefs JuiceFS:x rw
5 1 0:43 / /old rw - nfs filer:/old rw
6 1 8:2 / /old rw - xfs /dev/sdb1 rw
7 1 0:44 / /var/lib/kubelet/pods/a/volumes/b rw - nfs4 filer:/pod rw
8 1 0:45 / /run/user/1000/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw
9 1 0:46 / /bad\\012name rw - nfs4 filer:/bad rw
10 1 0:47 / /runs rw - ceph 10.0.0.2:/ ro
"""


def node(**more: object) -> Node:
    return Node(**{"name": "gpu-1", "date": "2026-11-22", **more})  # type: ignore[arg-type]


def result(*samples: tuple[str, tuple[str, ...], float], outcome: str = "ok") -> ProbeResult:
    found = tuple(Sample(f"nodevitals_{name}", labels, value) for name, labels, value in samples)
    return ProbeResult(outcome=outcome, samples=found, text="why")  # type: ignore[arg-type]


def of(found: list[Expected], probe: str) -> Expected:
    return next(one for one in found if one.probe == probe)


def test_network_file_systems_are_watched_and_what_passes_is_not() -> None:
    found = {one.mountpoint: one.fstype for one in shared_mounts(MOUNTINFO)}
    assert found == {
        "/cache": "fuse.juicefs",
        "/data": "nfs4",
        "/runs": "ceph",
        "/scratch a": "lustre",
    }


def test_mounts_of_another_root_directory_are_named_as_the_node_names_them() -> None:
    text = MOUNTINFO.replace(" /data ", " /host/data ").replace(" /cache ", " /hosted ")
    assert [one.mountpoint for one in shared_mounts(text, "/host")] == ["/data"]


@pytest.mark.parametrize("text", ["", "garbage\n", "1 2 3 4 5 6 - \n", "\0" * 100])
def test_garbage_is_no_mount(text: str) -> None:
    assert shared_mounts(text) == ()


@pytest.mark.parametrize(
    ("found", "lines", "summary"),
    [
        (result(("disks_present", (), 7), ("disks_expected", (), 8)), "7", "7"),
        (result(outcome="absent"), "", "none"),
        (result(outcome="error"), "", "unknown"),
        (None, "", "unknown"),
    ],
)
def test_disks_that_were_found_are_expected(
    found: ProbeResult | None, lines: str, summary: str
) -> None:
    disks = of(expected_of(node(results={} if found is None else {"disks": found})), "disks")
    assert disks.summary == summary
    assert [line.split(" #")[0] for line in disks.lines] == [f"expected: {lines}"] * bool(lines)


def test_groups_are_those_that_exist() -> None:
    assert groups_of("root:x:0:\nlldpd:x:9:\nHwHiAiUser:x:1000:a,b\n") == ("HwHiAiUser", "lldpd")
    assert groups_of("MyHwHiAiUser:x:1:\n") == ()


def chips(pci: int, listed: int, answer: int) -> Node:
    return node(
        results={
            "ascend": result(
                ("ascend_devices", ("pci",), pci),
                ("ascend_devices", ("npu_smi",), listed),
                ("accelerators_present", ("ascend",), answer),
            )
        }
    )


@pytest.mark.parametrize(
    ("found", "lines", "warned"),
    [
        (chips(8, 8, 8), "expected: 8 # found on gpu-1, 2026-11-22", False),
        (chips(8, 16, 16), "expected: 16 # found on gpu-1, 2026-11-22", False),
        (chips(8, 16, 15), "expected: 16 # found on gpu-1, 2026-11-22", True),
        (chips(8, 15, 15), "", True),
        (chips(8, 0, 0), "", True),
        (chips(0, 8, 8), "expected: 8 # found on gpu-1, 2026-11-22", False),
    ],
)
def test_npus_that_do_not_divide_evenly_are_not_counted(
    found: Node, lines: str, warned: bool
) -> None:
    one = of(expected_of(found), "ascend")
    assert "\n".join(one.lines) == lines
    assert bool(one.warnings) == warned


def gpus(on_bus: int, listed: int, present: int | None, outcome: str = "ok") -> Node:
    samples = [("nvidia_devices", ("nvml",), float(listed))]
    if present is not None:
        samples.append(("accelerators_present", ("nvidia",), float(present)))
    return node(gpus_on_bus=on_bus, results={"nvidia": result(*samples, outcome=outcome)})


@pytest.mark.parametrize(
    ("found", "number", "warned"),
    [
        (gpus(8, 8, 8), 8, False),
        (gpus(1, 1, 1), 1, False),
        (gpus(0, 8, 8), 8, False),  # a container that does not see the bus
        (gpus(8, 7, 7), 8, True),
        (gpus(8, 8, 7, "error"), 8, True),
        (gpus(8, 0, None, "error"), 8, True),
        (gpus(7, 7, 7), 7, True),  # an odd number: one may be off the bus
        (gpus(0, 0, None, "absent"), None, False),
        (gpus(0, 0, None, "timeout"), None, True),
    ],
)
def test_gpus_are_those_on_the_bus(found: Node, number: int | None, warned: bool) -> None:
    one = of(expected_of(found), "nvidia")
    expected = None if not one.lines else int(one.lines[0].split()[1])
    assert (expected, bool(one.warnings)) == (number, warned)


def test_a_link_is_slow_beside_others_of_its_kind_only() -> None:
    fast, slow = parse_bit_rate("400Gb/s"), parse_bit_rate("100Gb/s")
    links = [
        Link(name="a", up=True, rate=fast, kind="x"),
        Link(name="b", up=True, rate=slow, kind="x"),
        Link(name="c", up=True, rate=slow, kind="y"),
        Link(name="d", up=False, rate=None, kind="x"),
        Link(name="e", up=True, rate=None, kind="x"),
    ]
    broken = {one.name: one.broken for one in without_slow(links)}
    assert broken == {
        "a": "",
        "b": "at 100Gb/s, others of its kind at 400Gb/s",
        "c": "",
        "d": "down",
        "e": "",
    }


def test_a_bond_without_a_member_has_no_expected_speed() -> None:
    labels = [("bond0", "bond"), ("ens1", "physical"), ("eno9", "physical")]
    samples = [("network_up", one, 1.0) for one in labels[:2]]
    samples += [("network_up", labels[2], 0.0)]
    samples += [("network_speed_bytes_per_second", one, 12.5e9) for one in labels[:2]]
    samples += [("network_bond_member_up", ("bond0", "ens2"), 0.0)]
    one = of(expected_of(node(results={"network": result(*samples)})), "network")
    assert one.lines == (
        "expected: # found on gpu-1, 2026-11-22",
        "  #bond0: without its member ens2",
        "  #eno9: down",
        "  ens1: 100Gb/s",
    )
    assert len(one.warnings) == 1  # an interface that is not used is ordinary


def test_hostile_names_are_read_back_as_they_are() -> None:
    names = ["on", "a: b", 'x"y', "# z", "{}", "ü", "1e3", "-", "a\\b"]
    text = "".join(f"{key(name)}: {quoted(name)}\n" for name in names)
    assert yaml.safe_load(text) == {name: name for name in names}


@pytest.mark.parametrize("rate", ["400Gb/s", "2.5Gb/s", "100Mb/s", "1.6Tb/s", "56Gb/s"])
def test_rates_are_read_back_as_they_are(rate: str) -> None:
    assert parse_bit_rate(spelled(parse_bit_rate(rate))) == parse_bit_rate(rate)


def test_whatever_is_found_the_configuration_is_valid() -> None:
    mounts = tuple(
        Mount(f"/m{number}/: #", "nfs4", 'a"b\x7f' if number else "s: {", False, number)
        for number in range(150)
    )
    found = expected_of(node(mounts=mounts, gpus_on_bus=4))
    text = outputs.configuration(EXAMPLE, node(), found)
    config = parse(text.encode(), probes.registered())
    assert len(config.probes["mounts"].targets) == 100
    assert "50 more" in of(found, "mounts").warnings[0]
    assert config.probes["nvidia"].expected == 4
    nothing = outputs.configuration(EXAMPLE, node(), expected_of(node()))
    settings = parse(nothing.encode(), probes.registered()).probes
    assert settings == parse(b"", probes.registered()).probes
    assert "    # could not be read on gpu-1, 2026-11-22\n    #expected: null\n" in nothing


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["/usr/local/bin/nodevitals"], "/usr/local/bin/nodevitals"),
        (["/a b/100%/x", "-m", "nodevitals"], '"/a b/100%%/x" -m nodevitals'),
        (['/a"b\\c'], '"/a\\"b\\\\c"'),
    ],
)
def test_the_unit_starts_this_command(command: list[str], line: str) -> None:
    assert f"\nExecStart={line} serve --config.file=/etc/" in outputs.unit(UNIT, command)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["/opt/pipx/venvs/nodevitals", "/usr"], []),
        (["/root/.local/bin/nodevitals", "/root/.local"], ["hides /root/.local from"]),
        (["/home/me/venv", "/rooted", "/homes"], ["a user may change /home/me/venv"]),
    ],
)
def test_places_that_the_unit_hides_are_reported(places: list[str], said: list[str]) -> None:
    found = outputs.place_warnings(places, installed=True)
    assert [text in line for text, line in zip(said, found, strict=True)] == [True] * len(said)


def test_the_choices_of_a_site_are_in_its_files() -> None:
    site = Site(
        cluster='a "b": {c}',
        nodes=("n1:9855", "[::1]:9855"),
        prometheus="https://prometheus.example.com/p",
        alertmanager="am:9093",
        webhook="http://hook/x",
    )
    shipped: Callable[[str], str] = lambda path: Path(ROOT, path).read_text()  # noqa: E731
    made = outputs.prometheus(shipped("exporter/packaging/prometheus.yaml"), site)
    config = yaml.safe_load(made["prometheus.yml"])
    assert config["global"]["external_labels"] == {"cluster": site.cluster}
    jobs = {one["job_name"]: one for one in config["scrape_configs"]}
    assert jobs["nodevitals"]["file_sd_configs"] == [{"files": ["targets/nodevitals.yml"]}]
    assert jobs["alertmanager"]["static_configs"] == [{"targets": ["am:9093"]}]
    assert yaml.safe_load(made["targets/nodevitals.yml"]) == [{"targets": [*site.nodes]}]
    routes = outputs.alertmanager(
        shipped("alertmanager/minimal.yaml"), shipped("alertmanager/alertmanager.yaml"), {}, site
    )
    receivers = yaml.safe_load(routes["alertmanager.yml"])["receivers"]
    assert "Nothing is sent" not in routes["alertmanager.yml"]
    assert receivers[1] == {"name": "operators", "webhook_configs": [{"url": "http://hook/x"}]}
    grafana = outputs.grafana(
        {"en/a.json": json.dumps({})},
        shipped("dashboards/provisioning/dashboards/nodevitals.yaml"),
        shipped("dashboards/provisioning/datasources/nodevitals.yaml"),
        site,
    )
    provider = yaml.safe_load(grafana["provisioning/dashboards/nodevitals.yaml"])["providers"][0]
    assert provider["options"]["path"] == "/etc/grafana/dashboards/en"
    sources = yaml.safe_load(grafana["provisioning/datasources/nodevitals.yaml"])["datasources"]
    assert [one["url"] for one in sources] == [site.prometheus, "http://am:9093"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vfat refuses link(2), as a stick for a site without a network has it."""

    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "kept").write_text("another")
    with Folder(str(tmp_path)) as folder:
        outcomes = folder.write({"a": "1", "below/b": "2", "kept": "3"})
    assert outcomes == {"a": "written", "below/b": "written", "kept": "differs"}
    files = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"a": "1", "b": "2", "kept": "another"}


def test_statuses_and_modes_where_nothing_is_wrong_with_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout is warned of, and then any status is 1; files are read by others' servers."""
    monkeypatch.setattr(command, "_place_warnings", lambda _: [])
    arguments = ["init", str(tmp_path / "made"), "--expected", "none"]
    before = os.umask(0o077)
    try:
        assert main(arguments) == 0
    finally:
        os.umask(before)
    modes = {(one.is_dir(), one.stat().st_mode & 0o777) for one in (tmp_path / "made").rglob("*")}
    assert modes == {(True, 0o755), (False, 0o644)}
    assert main(arguments) == 0
    (tmp_path / "made/nodevitals.yaml").write_text("# mine\n")
    assert main(arguments) == 1
    assert "Warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://prometheus-1:9091", "prometheus-1:9091"),
        ("http://prometheus-1:9091/prefix", "prometheus-1:9091"),
        ("https://prometheus.example.com", "127.0.0.1:9090"),
    ],
)
def test_prometheus_scrapes_itself_where_it_listens(url: str, target: str) -> None:
    """An address without a port is that of a proxy in front of it."""
    shipped = (ROOT / "exporter/packaging/prometheus.yaml").read_text()
    site = Site(cluster="atlas", nodes=("gpu-1:9855",), prometheus=url)
    made = yaml.safe_load(outputs.prometheus(shipped, site)["prometheus.yml"])
    (job,) = [one for one in made["scrape_configs"] if one["job_name"] == "prometheus"]
    assert job["static_configs"] == [{"targets": [target]}]
