"""Runs Apprise in a separate process, which is killed at the deadline.

In: a message. Out: nothing, or DeliveryError. Apprise reads an answer of any size as long as a byte
arrives before each timeout, and a thread cannot be ended; a process can. The process also keeps
45 MB out of the hub.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec
from msgspec.structs import replace

from nodevitals.checks.deadlines import within
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError

MAX_PROCESSES = 8
"""Limit for all channels together; further messages wait."""
_MODULE = f"{__package__}.apprise_sender"


class Message(msgspec.Struct, frozen=True):
    """Input of the process, as JSON on its standard input."""

    url: str
    title: str
    text: str
    context: Context
    hub: int = 0
    """The hub's process id: if it is no longer the parent, the process sends nothing."""


class Progress(msgspec.Struct, frozen=True):
    """Output of the process, as lines of JSON on its standard output: the HTTP status of each
    answer as it arrives, and at the end why the message was not delivered, or ''.
    """

    status: int = 0
    is_end: bool = False
    error: str = ""


_slots = asyncio.Semaphore(MAX_PROCESSES)


async def send(message: Message, seconds: float) -> None:
    """Send one message. Raises DeliveryError, and asyncio.TimeoutError without an answer within
    `seconds` after the process has started.
    """
    seen: list[Progress] = []
    async with _slots:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE),
            cwd="/",
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        try:
            await within(_follow(process, message, seen), seconds)
        except TimeoutError:
            if seen and 200 <= seen[-1].status < 300:
                return  # only the rest of the answer is late: the message was accepted
            raise
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not seen or not seen[-1].is_end:
        raise DeliveryError("Apprise failed: its process has ended")
    if seen[-1].error:
        raise DeliveryError(seen[-1].error)


async def _follow(process: Process, message: Message, seen: list[Progress]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(replace(message, hub=os.getpid())))
    process.stdin.write_eof()
    # Not until the process exits, which takes a while: a hub killed meanwhile would send it again.
    while not (seen and seen[-1].is_end) and (line := await process.stdout.readline()):
        seen.append(msgspec.json.decode(line, type=Progress))
