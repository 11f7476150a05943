"""Waiting for at most so many seconds, without losing a cancellation.

`asyncio.wait_for` returns, before Python 3.12, what it waited for where that ends in the moment in
which its own task is canceled: the task goes on, and what canceled it waits for ever.
https://github.com/python/cpython/issues/86296
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Optional, TypeVar

Value = TypeVar("Value")


async def within(awaited: Awaitable[Value], seconds: Optional[float]) -> Value:
    """What is awaited, for any time where `seconds` is None. Raises asyncio.TimeoutError; it is
    canceled then, and with its caller, and has ended when this ends.
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
    """Its error is raised where it is awaited, or by nothing where the caller was canceled."""
    if not task.cancelled():
        task.exception()
