"""Waits with a time limit, without losing a cancellation.

Before Python 3.12, `asyncio.wait_for` can lose a cancellation: where the awaited task ends at the
moment of the cancellation, it returns the result, the caller goes on, and whatever canceled it
waits for ever.
https://github.com/python/cpython/issues/86296
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Optional, TypeVar

Value = TypeVar("Value")


async def within(awaited: Awaitable[Value], seconds: Optional[float]) -> Value:
    """The result of `awaited`, without a limit where `seconds` is None. Raises
    asyncio.TimeoutError. On a timeout and on a cancellation, `awaited` is canceled, and has ended
    before this returns.
    """
    task = asyncio.ensure_future(awaited)
    task.add_done_callback(_ignore)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


def _ignore(task: asyncio.Future[Any]) -> None:
    """Retrieve the error: the awaiting code raises it, or nothing does after a cancellation."""
    if not task.cancelled():
        task.exception()
