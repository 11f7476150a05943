"""The demo: what it says where it cannot run, which alerts it prints, how a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo.ending import DemoError
from demo.faults import InjectedFault
from demo.report import Changes
from demo.start import check_fuse, emptied, locked
from demo.tour import tour

from testbed.node import ROOT, wait_until
from testbed.webhook import Receiver


def alert(status: str, since: str = "1", name: str = "NodeDown") -> dict[str, Any]:
    return {
        "fingerprint": f"{name}-fingerprint",
        "startsAt": since,
        "status": status,
        "labels": {"alertname": name},
    }


def test_each_change_is_printed_once_whatever_the_tiers_of_escalation_repeat() -> None:
    changes = Changes()
    sequence = ["firing", "firing", "resolved", "firing", "resolved"]
    assert [changes.is_news(alert(one)) for one in sequence] == [True, False, True, False, False]
    assert changes.is_news(alert("firing", since="2"))
    assert not changes.is_news(alert("firing", name="Watchdog"))
    assert changes.firing() == ["NodeDown"]
    changes.is_news(alert("resolved", since="2"))
    assert changes.firing() == []


def test_missing_fuse_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"No such file or directory; .*`modprobe fuse`") as error:
        check_fuse(tmp_path / "fuse")
    assert "\n" not in str(error.value)


def test_one_demo_at_a_time_in_a_checkout(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(DemoError, match="another demo runs in"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"cannot write .*: Not a directory"):
        emptied(tmp_path / "file" / ".demo").__enter__()
    with pytest.raises(DemoError, match="rm -rf"):
        emptied(tmp_path / "file").__enter__()


def test_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    with emptied(tmp_path / "made") as _:
        (tmp_path / "made" / "state").write_text("")
    assert list(tmp_path.iterdir()) == []


ENDS = """
import signal, subprocess, sys, time
from demo import ending
with ending.complete():
    try:
        script = "setsid sleep 4243 & exec sleep 4243"
        subprocess.Popen(["sh", "-c", script], start_new_session=True)
        print("ready", flush=True)
        time.sleep(60)
    except ending.Signal as received:
        print(received.name, flush=True)
        signal.raise_signal(signal.SIGINT)  # an impatient user
        sys.exit(128 + received.number)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_it_with_all_that_it_has_started(number: int) -> None:
    """Also what a program that it started has started in a session of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", ENDS]
    with subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        own = psutil.Process(process.pid)
        started = wait_until(lambda: len(own.children(True)) == 2 and own.children(True))
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stdout.read() == f"{signal.Signals(number).name}\n"
        assert [one for one in started if one.is_running()] == []


def test_alert_that_does_not_arrive_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("demo.tour.ARRIVAL_SECONDS", 0.3)
    nothing = lambda: None  # noqa: E731
    faults = [
        InjectedFault("a", "GPU 1 is lost", "AcceleratorLost", {}, nothing, nothing),
        InjectedFault("d", "the agent is killed", "NodeDown", {}, nothing, nothing, permanent=True),
    ]
    with Receiver() as receiver:
        receiver.record(
            "team", {"alerts": [alert("firing") | {"annotations": {"summary": "down"}}]}
        )
        missing = tour(faults, receiver)
    assert missing == [
        *("AcceleratorLost not firing", "AcceleratorLost not resolved", "NodeDown not firing")
    ]
    assert "MISSING   AcceleratorLost" in capsys.readouterr().out


def test_outside_a_mount_namespace_it_says_how_to_start_it() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PRIVATE_MOUNTS"}
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--once"],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("demo: start it with `make demo`")
    assert done.stderr.count("\n") == 1


NO_NAMESPACES = "echo 0 >/proc/sys/user/max_mnt_namespaces; exec tools/private-mounts true"


def test_without_namespaces_it_says_which_limit_is_in_the_way() -> None:
    """The limit is that of a user namespace of its own."""
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "sysctl user.max_mnt_namespaces forbids it" in done.stderr
    assert done.stderr.count("\n") == 1
