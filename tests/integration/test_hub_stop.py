"""SIGTERM ends a hub, whatever it does at that moment."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import requests

from testbed.faultyfs import FaultyFileSystem
from testbed.hub import HubProcess
from testbed.longforms import long_forms
from testbed.node import wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send


@contextmanager
def load(hub: HubProcess) -> Iterator[None]:
    """Messages of Alertmanager, each with another alert, and readers of pages, until the end."""
    is_over = threading.Event()
    numbers = iter(range(10**6))

    def alertmanager() -> None:
        while not is_over.is_set():
            with suppress(requests.RequestException):
                send(hub, message(next(numbers)), timeout=5)

    def reader() -> None:
        paths = ("/incidents", "/notifications", "/api/v1/deliveries", "/metrics")
        while not is_over.is_set():
            for path in paths:
                with suppress(requests.RequestException):
                    requests.get(f"http://127.0.0.1:{hub.port}{path}", timeout=5)

    threads = [threading.Thread(target=work) for work in (alertmanager, alertmanager, reader)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        is_over.set()
        for one in threads:
            one.join()


def has_more(far: FarSide, before: int) -> bool:
    """Whether the far side has taken ten more messages."""
    return len(far.taken) > before + 10


@pytest.mark.parametrize("rounds", long_forms("kills", (2, 10), short=(2,)))
def test_a_hub_under_load_ends_each_time(tmp_path: Path, rounds: int) -> None:
    """With requests, deliveries and their answers under way."""
    moments = random.Random(7)
    channels = ("first", "second", "third")
    with FarSide() as far, hub_with_channels(tmp_path, far, channels) as hub:
        for _ in range(rounds):
            before = len(far.taken)
            with load(hub):
                wait_until(partial(has_more, far, before), 60, "load")
                time.sleep(moments.uniform(0.0, 0.2))  # any moment
                began = time.monotonic()
                assert hub.kill(signal.SIGTERM) == 0, hub.log.read_text()
                took = time.monotonic() - began
            assert took < 10
            assert "did not end" not in hub.log.read_text()
            hub.start()


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("task", "stuck"),
        ("loop", r"the event loop \(hub\.py:[0-9]+\)"),
        ("thread", r"asyncio_[0-9]+ \(hub\.py:[0-9]+\)"),
    ],
)
def test_a_hub_ends_without_what_does_not_end(tmp_path: Path, what: str, named: str) -> None:
    """And says what that was. What it had received is there at its next start."""
    with FarSide() as far:
        hub = hub_with_channels(tmp_path, far)
        hub.environment = {"STUCK": what, "STOP_SECONDS": "3", "TASKS_SECONDS": "1"}
        far.status = 503
        with hub:
            assert send(hub, message(1)).json() == {"new": True}
            assert hub.kill(signal.SIGTERM) == 1
            lines = [line for line in hub.log.read_text().splitlines() if "did not end" in line]
            [line] = lines
            assert re.search(rf"stopping: (.*, )?{named}(, .*)? did not end; the process", line)
            hub.environment = {}
            far.status = 200
            hub.start()
            wait_until(lambda: far.numbers("first") == {1: 1}, 30, "what waited")


def test_what_lost_a_cancellation_is_canceled_again(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, simulated=True)
    hub.environment = {"STUCK": "once", "AGAIN_SECONDS": "0.5"}
    with hub:
        assert hub.kill(signal.SIGTERM) == 0
    assert "did not end" not in hub.log.read_text()


def test_a_hub_whose_start_hangs_ends(tmp_path: Path) -> None:
    """Its list of nodes is on a file system that does not answer: the process is gone once the
    kernel lets go of that call.
    """
    with FaultyFileSystem(tmp_path) as filer:
        lists = {"file_sd": [str(filer.mountpoint / "nodes.yaml")]}
        hub = HubProcess(tmp_path, simulated=True, nodes=lists)
        hub.environment = {"STOP_SECONDS": "1"}
        filer.fault("hang")
        hub.start(wait=False)
        process = hub.process
        assert process is not None

        def hangs() -> bool:
            calls = Path(f"/proc/{process.pid}/task").glob("*/wchan")
            return "request_wait_answer" in {call.read_text() for call in calls}

        wait_until(hangs, 30, "the call that hangs")
        process.terminate()
        wait_until(lambda: "stopping: the start, asyncio_0 (" in hub.log.read_text(), 30, "a line")
    assert process.wait(60) == 1
