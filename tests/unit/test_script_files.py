"""Probe `scripts`: what may be run, and text files of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals import probes
from nodevitals.config import parse
from nodevitals.document import DocumentError
from nodevitals.engine.configuration import plan_targets
from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.scripts.probe import ScriptsProbe
from nodevitals.probes.scripts.program import started_at
from nodevitals.probes.scripts.settings import (
    ScriptSettings,
    ScriptsSettings,
    ScriptsTarget,
    TextfilesSettings,
)
from nodevitals.probes.scripts.textfile import UnreadableTextError, parse_textfile
from nodevitals.probes.scripts.trust import UntrustedError, trusted_path
from testbed.node import environment

UUID = "0a1b2c3d-0000-1111-2222-333344445555"
LABELS = (
    'version="v5.1",slurm_job_id="4711",node="node-1",gpu="GPU0",comm_name="DP 0",'
    'n_nodes="2",nranks="16",collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"'
)
INSPECTOR = (
    f"nccl_bus_bandwidth_gbs{{{LABELS}}} 310.5\n"
    f"nccl_collective_exec_time_microseconds{{{LABELS}}} 9500\n"
)


def executable(path: Path, text: str = "#!/bin/sh\necho fine\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_file_of_root_is_trusted_also_behind_links(tmp_path: Path) -> None:
    file = executable(tmp_path / "real/check")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/check").symlink_to("../real/check")
    assert trusted_path(str(tmp_path / "folder/check")) == str(file)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
@pytest.mark.parametrize("place", ["file", "folder", "folder of the link's target"])
def test_what_others_can_write_to_is_not_trusted(tmp_path: Path, mode: int, place: str) -> None:
    file = executable(tmp_path / "real/check")
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder/check"
    link.symlink_to(file)
    changed = {"file": file, "folder": link.parent}.get(place, file.parent)
    changed.chmod(mode)
    with pytest.raises(UntrustedError, match=r"chmod go-w"):
        trusted_path(str(link))


def test_what_another_user_owns_is_not_trusted(tmp_path: Path) -> None:
    file = executable(tmp_path / "check")
    os.chown(file, 12345, 0)
    with pytest.raises(UntrustedError, match=r"owned by user 12345: chown root"):
        trusted_path(str(file))


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(UntrustedError, match="loop"):
        trusted_path(str(tmp_path / "one"))


def test_each_script_is_a_target_with_its_own_timing(tmp_path: Path) -> None:
    executable(tmp_path / "a")
    executable(tmp_path / "b with spaces")
    executable(tmp_path / "off")
    executable(tmp_path / ".hidden")
    (tmp_path / "README").write_text("")
    settings = f"""
probes:
  scripts:
    folder: {tmp_path}
    scripts:
      - {{name: a, interval: 5m, timeout: 2m}}
      - {{name: "off", enabled: false}}
      - {{name: absent}}
    textfiles: [{{path: /run/nccl}}]
"""
    config = parse(settings.encode(), probes.registered())
    specs = {spec.target: spec for spec in plan_targets(config, only=["scripts"])}
    assert specs.keys() == {str(tmp_path), "a", "b with spaces", "absent", "/run/nccl"}
    times = {
        name: (spec.timing.interval_seconds, spec.timing.timeout_seconds)
        for name, spec in specs.items()
    }
    assert times["a"] == (300, 120)
    assert times["b with spaces"] == times[str(tmp_path)] == (60, 30)
    assert times["/run/nccl"] == (15, 15)
    assert specs["a"].timing.stale_after_seconds == 900


def test_a_probe_without_settings_has_no_target() -> None:
    config = parse(b"", probes.registered())
    assert plan_targets(config, only=["scripts"]) == []


@pytest.mark.parametrize(
    "settings",
    [
        "folder: relative",
        "folder: /a/../b",
        "scripts: [{name: a}]",
        "{folder: /a, scripts: [{name: a/b}]}",
        "{folder: /a, scripts: [{name: a}, {name: a}]}",
        "{folder: /a, scripts: [{name: a, timeout: 5m}]}",
        "textfiles: [{path: relative}]",
        "textfiles: [{path: /a}, {path: /a}]",
        "textfiles: [{path: /a, prefixes: [Nccl]}]",
        "textfiles: [{path: /a, prefixes: ['']}]",
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: str) -> None:
    with pytest.raises(DocumentError):
        parse(f"probes: {{scripts: {{{settings.strip('{}')}}}}}".encode(), probes.registered())


def test_a_script_is_not_started_beside_a_process_that_could_not_be_killed(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    executable(tmp_path / "folder/check", f"#!/bin/sh\ntouch {marker}\n")
    found = dict(ScriptsProbe.targets(ScriptsSettings(folder=str(tmp_path / "folder"))))
    probe = ScriptsProbe(Host(), found["check"], "check")
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        probe.state.left = [(sleeper.pid, started_at(sleeper.pid))]
        with pytest.raises(ProbeError) as problem:
            probe.run(Readings())
        assert problem.value.reason == "stuck"
        assert not marker.exists()
        sleeper.kill()
    probe.run(Readings(families=ScriptsProbe.families))
    assert marker.exists()


def test_a_late_script_is_ended_with_the_sessions_that_it_starts(tmp_path: Path) -> None:
    """As nhc starts one. Here there is no fork server that ends what is left."""
    pids = tmp_path / "pids"
    body = f"echo $$ >>{pids}; setsid sh -c 'echo $$ >>{pids}; sleep 1000; :' & wait"
    file = executable(tmp_path / "check", f"#!/bin/sh\ntrap '' TERM\n{body}\n")
    code = f"""
from nodevitals.probes.scripts.program import run
import os; os.setsid()
ended = run([{str(file)!r}], 2.0, 5.0)
assert (ended.status, ended.left) == (None, ()), ended
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    started = pids.read_text().split()
    assert len(started) == 2
    assert [pid for pid in started if started_at(int(pid))] == []


def test_labels_that_change_with_each_run_are_bounded(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    body = f"n=$(cat {counter} 2>/dev/null || echo 0); echo $((n+40)) >{counter}\n"
    body += "printf 'OK |'; i=0; while [ $i -lt 40 ]; do printf ' l%d=1' $((n+i)); i=$((i+1)); done"
    executable(tmp_path / "folder/check", f"#!/bin/sh\n{body}\n")
    found = dict(ScriptsProbe.targets(ScriptsSettings(folder=str(tmp_path / "folder"))))
    probe = ScriptsProbe(Host(), found["check"], "check")
    names = set()
    for _ in range(8):
        readings = Readings(families=ScriptsProbe.families)
        probe.run(readings)
        values = [one for one in readings.samples if one.family == "nodevitals_scripts_value"]
        names |= {one.labels[1] for one in values}
    assert len(names) == 256


def test_an_unknown_user_is_an_error_of_the_probe(tmp_path: Path) -> None:
    executable(tmp_path / "check")
    script = ScriptSettings(name="check", user="no-such-user")
    settings = ScriptsSettings(folder=str(tmp_path), scripts=(script,))
    probe = ScriptsProbe(Host(), dict(ScriptsProbe.targets(settings))["check"], "check")
    with pytest.raises(ProbeError) as problem:
        probe.run(Readings())
    assert problem.value.reason == "user"


# Text files.


def read(folder: Path, **more: object) -> dict[tuple[str, ...], float]:
    """One run on a folder; its samples by name, without the common prefix, and labels."""
    settings = TextfilesSettings(path=str(folder), **more)  # type: ignore[arg-type]
    readings = Readings(families=ScriptsProbe.families)
    ScriptsProbe(Host(), ScriptsTarget(textfiles=settings), str(folder)).run(readings)
    return {
        (one.family.removeprefix("nodevitals_scripts_"), *one.labels): one.value
        for one in readings.samples
    }


def counts(folder: Path, found: dict[tuple[str, ...], float]) -> dict[str, float]:
    """The numbers that are not 0, of files and of refused lines."""
    return {
        key[-1]: value
        for key, value in found.items()
        if key[0] in ("textfiles", "textfile_refused_lines") and value
    }


def test_files_of_nccl_inspector_are_typed(tmp_path: Path) -> None:
    (tmp_path / f"nccl_inspector_metrics_{UUID}.prom").write_text(INSPECTOR)
    found = read(tmp_path)
    labels = (f"GPU-{UUID}", "GPU0", "node-1", "4711", "DP 0", "2", "16", "4-5GB")
    bandwidth = ("nccl_bus_bandwidth_bytes_per_second", *labels, "AllReduce", "Ring_ll")
    duration = ("nccl_collective_seconds", *labels, "AllReduce", "Ring_ll")
    assert found[bandwidth] == pytest.approx(310.5e9)
    assert found[duration] == pytest.approx(0.0095)
    assert counts(tmp_path, found) == {"read": 1}


def test_p2p_and_unknown_labels(tmp_path: Path) -> None:
    labels = (
        'version="v5.1",slurm_job_id="unknown",node="n",gpu="GPU1",comm_name="unknown",'
        'n_nodes="1",nranks="4",p2p_operation="Send",message_size="512-513MB"'
    )
    lines = [
        f"nccl_p2p_bus_bandwidth_gbs{{{labels}}} 0\n",
        f"nccl_p2p_exec_time_microseconds{{{labels}}} 5\n",
    ]
    (tmp_path / "a.prom").write_text("".join(lines))
    found = read(tmp_path)
    assert [key for key in found if key[0].startswith("nccl")] == [
        ("nccl_p2p_seconds", "", "GPU1", "n", "", "", "1", "4", "512-513MB", "Send")
    ]


def test_other_metrics_keep_their_labels_with_the_name_as_one(tmp_path: Path) -> None:
    text = '# HELP rccl_x y\n# TYPE rccl_x gauge\nrccl_x{b="2",a="a \\"b\\" c"} 1.5\nnode_load1 3\n'
    (tmp_path / "a.prom").write_text(text)
    found = read(tmp_path)
    assert found["textfile_value", "rccl_x", "a", 'a "b" c', "b", "2"] == 1.5
    assert counts(tmp_path, found) == {"read": 1, "name": 1}


@pytest.mark.parametrize(
    "line",
    [
        "nccl_x",
        "nccl_x 1 1700000000000",
        "nccl_x +Inf",
        "nccl_x 0x10",
        "nccl_x 1_0",
        'nccl_x{a="1"b="2"} 1',
        'nccl_x{a="1",a="2"} 1',
        'nccl_x{A="1"} 1',
        'nccl_x{a="1} 1',
        'nccl_x{job="nodevitals"} 1',
        'nccl_x{instance="other"} 1',
        'nccl_x{metric="other"} 1',
        'nccl_x{__name__="other"} 1',
        'nccl_x{a="\x1b[2J"} 1',
        f'nccl_x{{a="{"y" * 200}"}} 1',
        'nccl_bus_bandwidth_gbs{collective="AllReduce"} 1',
        f"nccl_bus_bandwidth_gbs{{{LABELS}}} -1",
        f"nccl_bus_bandwidth_gbs{{{LABELS.replace('16', '-1')}}} 1",
    ],
)
def test_an_invalid_line_is_missing_and_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.prom").write_text(f"{line}\nnccl_y 1\n")
    found = read(tmp_path)
    assert [key for key in found if not key[0].startswith("textfile")] == []
    assert [key for key in found if key[0] == "textfile_value"] == [("textfile_value", "nccl_y")]
    assert counts(tmp_path, found) == {"read": 1, "invalid": 1}


@pytest.mark.parametrize("data", [b"", b"nccl_x 1", b"nccl_x 1\n\0\n", b"nccl_x \xff\n"])
def test_a_file_that_is_not_whole_is_unreadable_and_others_go_on(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "a.prom").write_bytes(data)
    (tmp_path / "b.prom").write_text("nccl_y 1\n")
    found = read(tmp_path)
    assert counts(tmp_path, found) == {"read": 1, "unreadable": 1}
    assert found["textfile_value", "nccl_y"] == 1


def test_what_a_job_could_put_there_does_no_harm(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("nccl_secret 1\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.prom").symlink_to(secret)
    (folder / "device.prom").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo.prom")
    (folder / "folder.prom").mkdir()
    with (folder / "huge.prom").open("wb") as file:
        file.truncate(1 << 40)
    (folder / ".hidden.prom").write_text("nccl_hidden 1\n")
    (folder / "other.txt").write_text("nccl_other 1\n")
    (folder / os.fsdecode(b"\xff.prom")).write_text("nccl_name 1\n")
    found = read(folder)
    assert counts(folder, found) == {"read": 1, "unreadable": 5}
    assert [key[1] for key in found if key[0] == "textfile_value"] == ["nccl_name"]


def test_a_file_that_stands_still_is_stale_whatever_time_its_owner_sets(tmp_path: Path) -> None:
    file = tmp_path / "a.prom"
    file.write_text("nccl_x 1\n")
    os.utime(file, (time.time() + 1e6, time.time() + 1e6))
    assert counts(tmp_path, read(tmp_path)) == {"read": 1}
    os.utime(file, (time.time() - 200, time.time() - 200))
    found = read(tmp_path)
    assert counts(tmp_path, found) == {"stale": 1}
    assert not [key for key in found if key[0] == "textfile_value"]


def test_files_and_series_are_bounded(tmp_path: Path) -> None:
    for index in range(5):
        (tmp_path / f"{index}.prom").write_text(f"nccl_x 1\nnccl_{index} 1\n")
    found = read(tmp_path, max_files=4, max_series=3)
    assert counts(tmp_path, found) == {"read": 4, "refused": 1, "duplicate": 3, "limit": 2}


def test_the_folder_is_one_of_the_node(tmp_path: Path) -> None:
    folder = tmp_path / "run/nccl"
    folder.mkdir(parents=True)
    (folder / "a.prom").write_text("nccl_x 1\n")
    settings = ScriptsTarget(textfiles=TextfilesSettings(path="/run/nccl"))
    readings = Readings(families=ScriptsProbe.families)
    ScriptsProbe(Host(rootfs=str(tmp_path)), settings, "/run/nccl").run(readings)
    read_files = [one for one in readings.samples if one.labels == ("/run/nccl", "read")]
    assert [one.value for one in read_files] == [1]


def test_a_folder_that_is_not_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        read(tmp_path / "none")


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        parsed = parse_textfile(data + b"\n", 100)
    except UnreadableTextError:
        return
    for sample in parsed.samples:
        assert all(text.isprintable() for _, text in sample.labels)
