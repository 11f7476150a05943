"""The `nodevitals` command line: its commands, and what `serve` imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodevitals.commands.cli import COMMANDS
from testbed.node import environment, run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(command: str) -> None:
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: nodevitals {command} ")


def test_the_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ")]
    assert set(COMMANDS) <= set(listed)


@pytest.mark.parametrize("arguments", [(), ("unknown",), ("rules",), ("serve", "--unknown")])
def test_wrong_usage_is_status_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: nodevitals")


def test_an_unknown_probe_is_status_2() -> None:
    done = run("probe", "unknown")
    assert done.returncode == 2
    assert done.stderr.startswith("unknown probe 'unknown'; known probes: ascend, ")


def test_serve_does_not_import_other_commands() -> None:
    """The agent must not pay for the memory of code that it never runs."""
    script = (
        "import sys; from nodevitals.commands.cli import parser_of; parser_of(['serve']);"
        "print(*[name for name in sys.modules if name.startswith('nodevitals.commands.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    parts = {name.split(".")[2] for name in done.stdout.split()}
    assert parts == {"cli", "options", "serve", "terminal"}


def _shell(arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m nodevitals {arguments}"],
        env={**environment(), **variables},
        capture_output=True,
        timeout=300,
        check=False,
    )


def test_closed_output_is_discarded() -> None:
    """A program that starts a command may have closed its standard output."""
    done = _shell("metrics >&-")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["metrics", "completion bash"])
def test_output_to_a_full_disk_is_status_2(command: str) -> None:
    """Status 1 says that something wrong was found."""
    done = _shell(f"{command} >/dev/full")
    assert done.returncode == 2
    assert done.stderr == b"standard output: No space left on device\n"


def test_output_that_the_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    """A path that is no text, or a unit such as \u00b0C in a locale without it."""
    folder = tmp_path / "\N{DEGREE SIGN}"
    folder.mkdir()
    (folder / "a.yaml").touch()
    done = _shell(f"check-config {folder}/a.yaml", PYTHONIOENCODING="ascii:strict")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"\\xb0/a.yaml: ok\n")
