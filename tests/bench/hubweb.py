"""The hub's pages and REST API with 1,000 stored checks of 64 nodes, and with 10,000 nodes."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import msgspec

from bench.measure import table
from nodevitals.checks.model import Check, RunResult
from testbed.hubpages import Site, keep, matrix_check, site

CHECKS = 1000
REQUESTS = 100
AIM_MILLISECONDS = 200
LARGE, LARGE_ROUNDS = 10_000, 4


def main(folder: Path) -> None:
    """Print the table; a list over the aim ends it with AssertionError."""
    asyncio.run(_measure(folder))


async def _measure(folder: Path) -> None:
    async with site(folder, {"anonymous": "read"}, {}) as found:
        check, results = matrix_check(64, "gpu-7", _identity(0))
        began = time.monotonic()
        for number in range(CHECKS):
            await keep(
                found.hub.store, msgspec.structs.replace(check, id=_identity(number)), results
            )
        stored = time.monotonic() - began
        rows = []
        for path in (
            "/",
            "/?node=gpu-7&outcome=bad",
            "/api/v1/checks",
            "/api/v1/checks?limit=1000",
            "/metrics",
        ):
            row, middle = await _requests(found, path, REQUESTS)
            rows.append(row)
            assert middle < AIM_MILLISECONDS or "limit" in path, row
        newest = _identity(CHECKS - 1)
        for path in (f"/checks/{newest}", f"/api/v1/checks/{newest}"):
            rows.append((await _requests(found, path, 20))[0])
        await keep(found.hub.store, *_tournament())
        large = _identity(CHECKS)
        for path in (
            "/",
            f"/checks/{large}",
            f"/checks/new?copy={large}",
            f"/api/v1/checks/{large}",
        ):
            rows.append((await _requests(found, path, 5))[0])
        table(["path", "bytes", "first ms", "median ms", "p99 ms", "loop held ms"], rows)
        print(f"{CHECKS} checks of {len(results)} runs were stored in {stored:.0f} s.")


def _identity(number: int) -> str:
    return f"20260101-{number:06}-abcdef"


def _tournament() -> tuple[Check, list[RunResult]]:
    """A finished tournament of 10,000 nodes."""
    check, (first, *_) = matrix_check(3, "gpu-1", _identity(CHECKS))
    names = tuple(f"gpu-{number:05}" for number in range(LARGE))
    half = LARGE // 2
    pairs = [
        (names[place], names[half + (place + round_) % half])
        for round_ in range(LARGE_ROUNDS)
        for place in range(half)
    ]
    results = [
        msgspec.structs.replace(first, number=number, nodes=pair)
        for number, pair in enumerate(pairs)
    ]
    request = msgspec.structs.replace(check.request, nodes=names, rounds=LARGE_ROUNDS)
    return msgspec.structs.replace(check, request=request, runs_done=len(results)), results


async def _requests(found: Site, path: str, count: int) -> tuple[list[str], float]:
    times, held, size = [], 0.0, 0
    for _ in range(count):
        ticker = asyncio.ensure_future(_longest_gap())
        await asyncio.sleep(0)
        began = time.monotonic()
        answer = await found.call("GET", path)
        times.append((time.monotonic() - began) * 1000)
        assert answer.status_code == 200, answer.text
        size = len(answer.content)
        ticker.cancel()
        await asyncio.wait([ticker])
        held = max(held, _gaps.pop())
    first, middle = times[0], statistics.median(times)
    last = sorted(times)[int(0.99 * (count - 1))]
    figures = [f"{value:.0f}" for value in (first, middle, last, held)]
    return [path, f"{size:,}", *figures], middle


_gaps: list[float] = []


async def _longest_gap() -> None:
    """Put the longest time in which the loop did nothing else, in ms, into _gaps."""
    longest, last = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    finally:
        _gaps.append(max(longest, time.monotonic() - last) * 1000)
