"""Programs that checks run in the event loop: their output, their end, and what cannot start."""

from __future__ import annotations

import asyncio
import os

import psutil
import pytest

from nodevitals.checks import processes
from testbed.node import wait_until


def run(*argv: str, seconds: float = 30.0, grace: float = 0.5) -> processes.Ended:
    return asyncio.run(processes.run(argv, seconds, grace))


def test_output_of_both_streams_and_the_status() -> None:
    done = run("sh", "-c", "echo out; echo error >&2; exit 7")
    assert (sorted(done.text.split()), done.status) == (["error", "out"], 7)


def test_child_that_holds_the_pipe_does_not_delay_the_end() -> None:
    done = run("sh", "-c", "setsid sleep 300 & echo $!")
    child = psutil.Process(int(done.text))
    assert child.status() != psutil.STATUS_ZOMBIE
    child.kill()


def test_program_that_ignores_sigterm_is_killed() -> None:
    done = run("sh", "-c", "trap '' TERM; echo here; while :; do sleep 0.1; done", seconds=2)
    assert done.timed_out
    assert done.text == "here\n"


@pytest.mark.parametrize(
    ("argv", "status"),
    [(("/no/such/program",), 127), (("/etc/passwd",), 126), (("true", "x" * (1 << 18)), 126)],
)
def test_program_that_cannot_start_is_reported(argv: tuple[str, ...], status: int) -> None:
    assert run(*argv).status == status


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20])
def test_canceled_at_any_moment_it_leaves_nothing(turns: int) -> None:
    """Also while the program is being started."""
    word = f"{os.getpid()}{turns:02}"

    async def cancel() -> None:
        task = asyncio.ensure_future(processes.run(["sleep", f"300{word}"], 300, 0.5))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def left() -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                found += [one for one in process.cmdline() if one.endswith(word)]
            except psutil.Error:
                continue
        return found

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(cancel())
    wait_until(lambda: not left(), 20, "the end of the program")
    assert len(os.listdir("/proc/self/fd")) == before
