"""The scheduler by a site's commands: what they print, when they hang, what they are given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals_hub.isolation.schedulers.command_scheduler import (
    CommandScheduler,
    parse_status,
    words_of,
)
from nodevitals_hub.isolation.schedulers.schedulers import NodeState, SchedulerError
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings
from testbed.isolations import fault
from testbed.respond import Site

IDENTITY = "20270101-000000-abcdef"
ISOLATION = Isolation(
    id=IDENTITY, node="gpu-1", dry_run=False, state="isolated", faults=(fault("gpu-1"),), created=0
)


def scheduler(site: Site, **more: Any) -> CommandScheduler:
    section = {"scheduler": "command", "command": site.commands(**more)}
    return CommandScheduler(msgspec.convert(section, OutOfServiceSettings))


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("in service\n", NodeState(in_service=True)),
        (" out of service ", NodeState(in_service=False)),
        (f"isolated {IDENTITY}\n", NodeState(in_service=False, mark=IDENTITY)),
        ("unknown\n", None),
    ],
)
def test_a_status_is_one_of_four(text: str, state: NodeState | None) -> None:
    assert parse_status(text) == state


@pytest.mark.parametrize("text", ["", "in", "isolated", f"isolated {IDENTITY} x", "isolated ../x"])
def test_another_status_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it has to print"):
        parse_status(text)


@given(st.text(), st.text())
def test_no_text_makes_more_words_or_options(node: str, reason: str) -> None:
    try:
        words = words_of(["do", "{node}", "--reason={reason}"], node, IDENTITY, reason)
    except SchedulerError as error:
        words = ["do", "x", str(error.kind)]
    assert len(words) == 3
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", words[1])
    assert words[2].isprintable()
    assert not set(words[2]) & set("$`;|&<>\\\"'\n")


def test_a_name_in_a_value_is_not_replaced_again() -> None:
    words = words_of(["{reason}", "{id}{node}"], "gpu-1", IDENTITY, "{node}")
    assert words == [f"nodevitals {IDENTITY}: ?node?", f"{IDENTITY}gpu-1"]


def test_a_node_goes_out_and_comes_back_and_repeats_do_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, ["gpu-1", "gpu-2"])
    own = scheduler(site)

    async def steps() -> None:
        await own.isolate(ISOLATION)
        await own.isolate(ISOLATION)
        states = await own.states(["gpu-1", "gpu-2", "gpu-3"])
        assert states == {
            "gpu-1": NodeState(in_service=False, mark=IDENTITY),
            "gpu-2": NodeState(in_service=True),
        }
        await own.restore(ISOLATION)
        with pytest.raises(SchedulerError) as caught:
            await own.restore(ISOLATION)
        assert caught.value.kind == "taken"

    run(steps())
    assert (site.log("isolate"), site.log("restore")) == (["gpu-1"], ["gpu-1"])


@pytest.mark.parametrize(
    ("state", "kind"),
    [("out of service", "taken"), ("nonsense", "refused"), ("unknown", "unknown_node")],
)
def test_a_node_that_is_not_in_service_is_not_touched(
    tmp_path: Path, state: str, kind: str
) -> None:
    site = Site(tmp_path, ["gpu-1"])
    site.set("gpu-1", state)

    async def steps() -> None:
        with pytest.raises(SchedulerError) as caught:
            await scheduler(site).isolate(ISOLATION)
        assert caught.value.kind == kind

    run(steps())
    assert site.log("isolate") == []


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    site = Site(tmp_path, ["gpu-1"])
    (site.folder / "hang").touch()

    async def steps() -> None:
        with pytest.raises(SchedulerError, match=r"not ended within 0\.5 s") as caught:
            await scheduler(site, timeout=0.5).isolate(ISOLATION)
        assert caught.value.kind == "unreachable"

    run(steps())
    assert site.get("gpu-1") == "in service"


def test_a_command_that_fails_or_is_not_there_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path, ["gpu-1"])
    (site.folder / "fail").touch()

    async def steps() -> None:
        with pytest.raises(SchedulerError, match="status 1: no connection"):
            await scheduler(site).states(["gpu-1"])
        gone = scheduler(site, status=["/nowhere/status", "{node}"])
        with pytest.raises(SchedulerError, match=r"/nowhere/status: status 12\d: .*No such file"):
            await gone.states(["gpu-1"])

    run(steps())
