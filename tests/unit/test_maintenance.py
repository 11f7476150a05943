"""Probe `maintenance` and the command: files of every kind, and what they declare."""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.maintenance import (
    MAX_FILE_BYTES,
    MAX_REASON_CHARACTERS,
    MaintenanceProbe,
    MaintenanceSettings,
    parse_declaration,
    parse_time,
    read_maintenance,
)
from testbed.inotify import Watch
from testbed.node import run

HOUR, DAY = 3600.0, 86400.0


def observe(file: Path) -> tuple[dict[tuple[str, ...], float], ProbeError | None]:
    """Run the probe once; its samples by name, without the common prefix, and labels."""
    readings = Readings(families=MaintenanceProbe.families)
    problem = None
    try:
        MaintenanceProbe(Host(), MaintenanceSettings(file=str(file))).run(readings)
    except ProbeError as error:
        problem = error
    prefix = "nodevitals_node_maintenance"
    return {
        (sample.family.removeprefix(prefix), *sample.labels): sample.value
        for sample in readings.samples
    }, problem


def look(file: Path) -> dict[tuple[str, ...], float]:
    """The samples of a run that succeeds."""
    samples, problem = observe(file)
    assert problem is None
    return samples


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "maintenance"


def test_node_without_the_file_is_not_in_maintenance(file: Path) -> None:
    assert look(file) == {("",): 0}
    assert look(file / "below" / "nothing") == {("",): 0}
    file.write_text("")
    assert look(file / "below") == {("",): 0}


def test_empty_file_is_a_maintenance_of_the_default_duration(file: Path) -> None:
    file.write_text("")
    found = look(file)
    assert found[("",)] == 1
    assert found[("_info", "")] == 1
    assert found[("_end_timestamp_seconds",)] == pytest.approx(time.time() + DAY, abs=60)


@pytest.mark.parametrize(
    ("text", "reason", "seconds"),
    [
        ("driver upgrade\n", "driver upgrade", DAY),
        ("for=2h", "", 2 * HOUR),
        ("# ticket 17\nreason=new DIMM\nfor=90m\nfor=1m\nignored", "new DIMM", 1.5 * HOUR),
        ("for=30d", "", 7 * DAY),
        ("until=2999-01-01T00:00:00Z", "", 7 * DAY),
        ("a=b", "a=b", DAY),
        ("reason=\x1b[2J\x00x", "?[2J?x", DAY),
        ("x" * 1000, "x" * MAX_REASON_CHARACTERS, DAY),
    ],
)
def test_file_states_reason_and_end(file: Path, text: str, reason: str, seconds: float) -> None:
    file.write_text(text)
    found = look(file)
    assert found[("",)] == found[("_info", reason)] == 1
    assert found[("_end_timestamp_seconds",)] == pytest.approx(time.time() + seconds, abs=60)


def test_maintenance_ends_at_its_time_with_the_file_still_there(file: Path) -> None:
    now = int(time.time())
    for moment, value in ((now + 600, 1), (now - 1, 0)):
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
        file.write_text(f"until={until}\nreason=r\n")
        found = look(file)
        assert found[("",)] == value
        assert found.get(("_end_timestamp_seconds",)) == (moment if value else None)
        assert (("_info", "r") in found) == bool(value)


def test_forgotten_file_ends_whatever_times_a_user_sets(file: Path) -> None:
    """`touch -d` and `rsync --times` set the time of the content, not that of the inode."""
    file.write_text("")
    for moment in (time.time() + 1000 * DAY, 0):
        os.utime(file, (moment, moment))
        end = look(file)[("_end_timestamp_seconds",)]
        assert end == pytest.approx(time.time() + DAY, abs=60)


@pytest.mark.parametrize(
    "text",
    [
        b"until=2026-11-2",
        b"until=",
        b"until=2026-11-22T18:00:00",
        b"until=tomorrow\nreason=r",
        b"for=soon",
        b"\xff\xfe" * (MAX_FILE_BYTES // 2 + 1),
        b"until=" + b"9" * 4000,
    ],
)
def test_damaged_text_is_a_maintenance_and_a_failed_run(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    found, problem = observe(file)
    assert problem is not None
    assert problem.reason == "content"
    assert problem.message.endswith("in maintenance all the same")
    assert "\n" not in problem.message
    assert found[("",)] == 1
    assert found[("_end_timestamp_seconds",)] == pytest.approx(time.time() + DAY, abs=60)


def test_huge_file_is_not_read_whole(file: Path) -> None:
    with file.open("wb") as handle:
        handle.truncate(2**40)
    found, problem = observe(file)
    assert f"larger than {MAX_FILE_BYTES} bytes" in str(problem)
    assert found[("",)] == 1


def test_what_is_no_regular_file_is_unknown_and_not_opened(file: Path) -> None:
    trap = file.parent / "trap"
    os.mkfifo(trap)
    file.symlink_to(trap)
    with Watch(trap) as watch:
        found, problem = observe(file)
        assert watch.events() == []
    assert found == {}
    assert "not a regular file: state unknown" in str(problem)
    for other in (file.parent, Path("/dev/zero")):
        found, problem = observe(other)
        assert found == {}
        assert "not a regular file" in str(problem)


def test_link_is_followed_and_a_link_to_nothing_is_no_file(file: Path) -> None:
    """A ConfigMap's files are links."""
    file.symlink_to("..data")
    assert look(file) == {("",): 0}
    (file.parent / "..data").write_text("kernel update")
    assert look(file)[("_info", "kernel update")] == 1


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    said = parse_declaration(text)
    assert len(said.reason) <= MAX_REASON_CHARACTERS
    assert said.reason == "" or said.reason.isprintable()


@given(st.text(max_size=40) | st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"))
def test_any_time_is_finite_or_an_error(text: str) -> None:
    with suppress(ValueError):
        assert math.isfinite(parse_time(text))


class Command:
    """`nodevitals maintenance` with a configuration of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "etc/maintenance"
        self.config = folder / "nodevitals.yaml"
        self.config.write_text(json.dumps({"probes": {"maintenance": {"file": str(self.file)}}}))

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = run("maintenance", *arguments, f"--config.file={self.config}")
        assert done.returncode == status, done.stderr
        if status:
            assert done.stdout == ""
            assert done.stderr.count("\n") == 1
        return done.stderr if status else done.stdout


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_start_show_and_end(command: Command) -> None:
    assert command("show") == f"not in maintenance (no {command.file})\n"
    assert "driver upgrade" in command("start", "--for=2h", "--reason=driver upgrade")
    shown = json.loads(command("show", "--json"))
    assert shown["maintenance"] is True
    assert shown["until"] - shown["since"] == pytest.approx(2 * HOUR, abs=2)
    assert look(command.file)[("_end_timestamp_seconds",)] == shown["until"]
    command("start", "--for=4h")  # a second one replaces the first
    found = read_maintenance(str(command.file), MaintenanceSettings())
    assert found is not None
    assert found.until > shown["until"]
    assert found.reason == ""
    assert command.file.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in command.file.parent.iterdir()] == ["maintenance"]
    assert command("end").endswith("\nalerts stay muted for 10 minutes more\n")
    assert command("end") == command("show")  # the second one finds nothing to do
    assert not command.file.exists()


def test_errors_are_one_line(command: Command) -> None:
    assert "is not a duration" in command("start", "--for=soon", status=2)
    assert "30d is longer than 7d: choose " in command("start", "--for=30d", status=2)
    assert "one line" in command("start", "--reason=a\nb", status=2)
    assert "belong to start" in command("end", "--for=1h", status=2)
    assert not command.file.exists()
    command.file.mkdir(parents=True)
    for action in ("start", "end", "show"):
        assert str(command.file) in command(action, status=2)
    assert [one.name for one in command.file.parent.iterdir()] == ["maintenance"]


def test_command_says_that_a_file_is_damaged(command: Command) -> None:
    command.file.parent.mkdir()
    command.file.write_text("until=tomorrow")
    assert "maintenance start writes it anew" in command("show", status=1)
    command("start")
    command("show")
