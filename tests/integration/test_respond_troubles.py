"""Every call of the API server fails in every way, once and for a while; then the work is done."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from nodevitals_hub.isolation.schedulers.kubernetes_objects import MARK, REASON
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.failures import TROUBLES
from testbed.kubernetes_api.nodes import NodeApi
from testbed.nodehub import NODES, XID, NodeHub, node_hub

ADA = Requester(trigger="page", name="ada", role="act")
SECOND = ("gpu-1", "ecc")
CALLS = (
    ("get", "nodes"),
    ("patch", "nodes"),
)
BESIDE = (
    ("list", "nodes"),
    ("patch", "nodes/status"),
    ("create", "events"),
)
ROUNDS = 3
MOST_LINES = 40
MOST_REQUESTS = 40
"""In one phase of a few rounds: about six per round."""


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    """The level of the hub's log, whatever earlier tests have set."""
    caplog.set_level(logging.INFO, "nodevitals")


def assert_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The hub's own lines: those of a library depend on the level of the root logger."""
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("nodevitals")]
    assert len(lines) <= MOST_LINES, lines


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


def failing(call: tuple[str, str], trouble: str, times: int) -> Callable[[Call], str]:
    """So many answers to a call are wrong."""
    left = [times]

    def found(asked: Call) -> str:
        if (asked.verb, asked.resource) != call or not left[0]:
            return ""
        left[0] -= 1
        return trouble

    return found


async def phase(hub: NodeHub, trouble: Callable[[Call], str], *faults: tuple[str, str]) -> None:
    """Some rounds with trouble, and two without."""
    before = hub.api.requests.total()
    hub.api.trouble = trouble
    await hub.rounds(15 * ROUNDS, *faults)
    hub.api.heal()
    await hub.rounds(30, *faults)
    assert hub.api.requests.total() - before <= MOST_REQUESTS


async def out_and_back(hub: NodeHub, trouble: Callable[[], Callable[[Call], str]]) -> None:
    """A fault, a second one, and a person who returns the node, each with trouble."""
    await hub.rounds(60, XID)
    await phase(hub, trouble(), XID)
    one = await hub.newest()
    assert (one.state, one.acted is not None) == ("isolated", True)
    assert hub.api.annotations("gpu-1")[MARK] == one.id
    await phase(hub, trouble(), XID, SECOND)
    assert "ecc" in hub.api.annotations("gpu-1")[REASON]
    await hub.found.isolations.book.give_back(one.id, ADA)
    await phase(hub, trouble(), XID, SECOND)
    await hub.found.rounds(360, XID, SECOND, every=60)
    assert MARK not in hub.api.annotations("gpu-1")
    after = await hub.newest()
    assert (after.id, after.state) == (one.id, "canceled")
    assert hub.api.cordons == [("gpu-1", True), ("gpu-1", False)]
    assert hub.api.taints("gpu-1") == ["site/own"]


@pytest.mark.parametrize("times", [1, 1000], ids=["once", "always"])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("call", CALLS, ids="-".join)
def test_each_call_fails_and_the_work_is_done_once(
    tmp_path: Path,
    api: NodeApi,
    caplog: pytest.LogCaptureFixture,
    call: tuple[str, str],
    trouble: str,
    times: int,
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await out_and_back(hub, lambda: failing(call, trouble, times))

    run(steps())
    assert not [record for record in caplog.records if record.exc_info]
    assert_few_lines(caplog)


@pytest.mark.parametrize("call", BESIDE, ids="-".join)
def test_what_is_beside_the_work_does_not_stop_it(
    tmp_path: Path, api: NodeApi, caplog: pytest.LogCaptureFixture, call: tuple[str, str]
) -> None:
    """Condition, event and the search for marks, each answer wrong in another way."""
    troubles = itertools.cycle(TROUBLES)

    def found(asked: Call) -> str:
        return next(troubles) if (asked.verb, asked.resource) == call else ""

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await out_and_back(hub, lambda: found)

    run(steps())
    assert not [record for record in caplog.records if record.exc_info]
    assert_few_lines(caplog)
