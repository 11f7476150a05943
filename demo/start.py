"""Starts the pipeline, and says in one line why it cannot run here.

In: this checkout and this machine. Out: a running Pipeline, or a DemoError.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo import ROOT
from demo.ending import DemoError, kill_children
from demo.pipeline import HEALTHY_TARGETS, SPEED, Pipeline
from demo.report import STARTING, Progress
from testbed.node import wait_until

FOLDER = ROOT / ".demo"
FUSE = Path("/dev/fuse")
START_SECONDS = 300.0
OTHER_ALERTS = 'ALERTS{alertname!="Watchdog"}'
SUCCESS = "nodevitals_probe_success"
WARNING = "level=warn"
_MOST_CHARACTERS = 600


@contextmanager
def started(speed: float = SPEED) -> Iterator[Pipeline]:
    """Check this machine, start everything, and wait until Prometheus has a result of every
    target. At the end everything stops, and the files are removed. Raises DemoError.
    """
    check_namespace()
    check_fuse()
    with locked(ROOT), emptied(FOLDER), ExitStack() as stack:
        stack.callback(kill_children)  # after a signal; what lives on could write files again
        progress = Progress(STARTING)
        try:
            pipeline = Pipeline(stack, FOLDER, speed)
            wait_until_healthy(pipeline, progress)
        except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            text = " ".join(str(error).split())[:_MOST_CHARACTERS]
            raise DemoError(f"cannot start: {text or repr(error)}") from error
        finally:
            progress.end()
        yield pipeline


def check_namespace() -> None:
    """Raise DemoError outside a private mount namespace."""
    if "PRIVATE_MOUNTS" not in os.environ:
        text = "start it with `make demo`: it mounts over /mnt, in a mount namespace of its own"
        raise DemoError(text)


def check_fuse(device: Path = FUSE) -> None:
    """Raise DemoError where no FUSE file system can be mounted: the simulated filers are some."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        hint = "`modprobe fuse` as root, or start the container with --device /dev/fuse"
        if isinstance(error, PermissionError):
            hint = f"run it as root, or `chmod 666 {device}` as root"
        text = f"{device}: {error.strerror}; the simulated mounts need FUSE: {hint}"
        raise DemoError(text) from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a checkout; it leaves no file. Raises DemoError where another demo has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"another demo runs in {folder}; end it first") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def emptied(folder: Path) -> Iterator[None]:
    """Make an empty folder, and remove it at the end. Raises DemoError."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir()
    except FileExistsError:
        text = f"cannot remove what an earlier demo has left: as its owner, rm -rf {folder}"
        raise DemoError(text) from None
    except OSError as error:
        text = (
            f"cannot write {folder}: {error.strerror}; run it in a checkout that you can write to"
        )
        raise DemoError(text) from None
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_healthy(pipeline: Pipeline, progress: Progress) -> None:
    """Wait until Prometheus has a successful run of every target, and no alert. Raises
    DemoError.
    """

    def healthy() -> bool:
        count = len(pipeline.prometheus.query(f"{SUCCESS} == 1"))
        progress.show(f"{count} of {HEALTHY_TARGETS} targets")
        # Before the first scrape no agent is known, which is an alert too.
        return count >= HEALTHY_TARGETS and not pipeline.prometheus.query(OTHER_ALERTS)

    try:
        wait_until(healthy, START_SECONDS)
    except AssertionError:
        failing = [one["metric"] for one in pipeline.prometheus.query(f"{SUCCESS} == 0")]
        names = [f"{one['probe']} {one['target']} on {one['instance']}" for one in failing]
        alerts = pipeline.prometheus.query(OTHER_ALERTS)
        names += sorted({one["metric"]["alertname"] for one in alerts})
        warnings = [
            line for node in pipeline.nodes for line in node.log().splitlines() if WARNING in line
        ]
        text = f"not healthy within {START_SECONDS:g} s: {', '.join(names) or 'some target'}"
        raise DemoError(f"{text}; {' '.join(warnings[-1:])}") from None
