"""Waiting with a deadline loses no cancellation; tasks are canceled until they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from nodevitals.checks.deadlines import within
from nodevitals_hub import stopping


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def forever() -> None:
    await asyncio.sleep(3600)


def test_a_cancellation_in_the_moment_of_the_end_is_not_lost() -> None:
    """A loop that waits for events under load: they come all the time."""

    async def main() -> None:
        event = asyncio.Event()

        async def work() -> None:
            while True:
                event.clear()
                try:
                    await within(event.wait(), 5.0)
                except asyncio.TimeoutError:
                    continue

        for _ in range(20):
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            event.set()
            await asyncio.sleep(0)  # what is awaited has ended, the task has not gone on yet
            task.cancel()
            await asyncio.wait({task}, timeout=2.0)
            assert task.cancelled()

    run(main())


def test_what_is_awaited_ends_with_its_result_its_error_or_the_deadline() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def slow() -> str:
            try:
                await forever()
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                ended.append("slow")
                raise
            return ""

        async def stubborn() -> str:
            try:
                await forever()
            except asyncio.CancelledError:
                return "all the same"
            return ""

        async def fails() -> None:
            raise ValueError("x")

        assert await within(asyncio.sleep(0, "result"), None) == "result"
        assert await within(asyncio.sleep(0, "result"), 5.0) == "result"
        with pytest.raises(ValueError, match="x"):
            await within(fails(), 5.0)
        with pytest.raises(asyncio.TimeoutError):
            await within(slow(), 0.01)
        assert ended == ["slow"], "it has ended when the wait ends"
        assert await within(stubborn(), 0.01) == "all the same"
        task = asyncio.ensure_future(within(slow(), None))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        assert (task.cancelled(), ended) == (True, ["slow", "slow"])

    run(main())


def test_tasks_are_canceled_until_they_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not without end: those that are left are not waited for."""
    monkeypatch.setattr(stopping, "AGAIN_SECONDS", 0.02)

    async def main() -> None:
        async def deaf(times: int) -> None:
            for _ in range(times):
                try:
                    await forever()
                except asyncio.CancelledError:
                    continue

        async def fails() -> None:
            raise ValueError("x")

        tasks = [asyncio.ensure_future(one) for one in (deaf(1), deaf(3), fails(), forever())]
        never = asyncio.ensure_future(deaf(1000))
        await asyncio.sleep(0)
        await stopping.canceled([*tasks, never], 0.5)
        assert [one.done() for one in (*tasks, never)] == [True, True, True, True, False]
        while not never.done():
            never.cancel()
            await asyncio.sleep(0)

    run(main())
