"""A check that the hub runs: started, followed, canceled by Ctrl-C, and printed.

In: a CheckRequest and the options of the command. Out: a table, JSON or CSV, and an exit status.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Literal

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult, TestRequest
from nodevitals.checks.pair_report import as_csv, matrix
from nodevitals.checks.ssh_pairs import Pair
from nodevitals.commands.hub_client import HubClient, HubError, NoAnswerError, client_of
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    GOOD,
    CommandError,
    print_json,
    print_table,
    printable,
)
from nodevitals.probes.fabric.report import Report, failed
from nodevitals.probes.fabric.settings import TestSettings

POLL_SECONDS = 1.0
# A hub that restarts goes on with the check.
SILENCE_SECONDS = 120.0
# The longest check takes a day, and may wait for another one.
LONGEST_SECONDS = 2 * 86400.0
STATUSES = {"ok": GOOD, "bad": FOUND_WRONG, "unknown": COULD_NOT_TELL}
_BAR = 40


def run_on_hub(request: CheckRequest, options: argparse.Namespace) -> int:
    """Run a check on the hub; 0 where its verdict is ok, 1 where it names what is bad, else 2."""
    client = client_of(options)
    key, identity = str(uuid.uuid4()), ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        identity = client.submit(request, key).id
        print(f"check {identity}: {client.link(identity)}", file=sys.stderr, flush=True)
        detail = _followed(client, identity)
    except KeyboardInterrupt:
        # The hub may have started it, and not have answered yet.
        _cancel(client, identity or client.submit(request, key).id)
        raise
    _print(detail, options)
    verdict = detail.check.verdict
    return COULD_NOT_TELL if verdict is None else STATUSES[verdict.outcome]


def _cancel(client: HubClient, identity: str) -> None:
    print(f"\ncanceling check {identity}", file=sys.stderr, flush=True)
    try:
        client.cancel(identity)
    except HubError as error:
        raise CommandError(f"{error}; it may go on: {client.link(identity)}") from None


def _followed(client: HubClient, identity: str) -> CheckDetail:
    """The check once it has ended."""
    progress, began = _Progress(), time.monotonic()
    answered = began
    while time.monotonic() < began + LONGEST_SECONDS:
        try:
            detail = client.get(identity)
            answered = time.monotonic()
        except NoAnswerError as error:
            if time.monotonic() > answered + SILENCE_SECONDS:
                raise CommandError(f"{error}; it may go on: {client.link(identity)}") from None
            progress.show("the hub does not answer; trying again")
        else:
            check = detail.check
            if check.phase in ("done", "canceled"):
                progress.end()
                return detail
            progress.count(check.phase, check.runs_done, check.cost.runs)
        time.sleep(POLL_SECONDS)
    raise CommandError(f"no end within 2 days; it may go on: {client.link(identity)}")


class _Progress:
    """One line on a terminal, that is rewritten; elsewhere nothing."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def count(self, phase: str, done: int, total: int) -> None:
        filled = min(_BAR, _BAR * done // max(1, total))
        bar = "#" * filled + "." * (_BAR - filled)
        self.show("queued" if phase == "queued" else f"[{bar}] {done}/{total} runs")

    def show(self, text: str) -> None:
        if self._terminal:
            self._shown = True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def _print(detail: CheckDetail, options: argparse.Namespace) -> None:
    kind, test = detail.check.request.kind, detail.check.request.test
    pairs = [_pair(one) for one in detail.results if len(one.nodes) == 2]
    if options.json:
        print_json(detail)
        return
    if getattr(options, "csv", False):
        print(as_csv(pairs), end="")
        return
    if kind in ("pair", "matrix"):
        head, *rows = matrix(pairs, _settings(test))
        print_table(head, rows)
    else:
        print_table(*_sizes(detail.results))
    print()
    _print_verdict(detail)


def _print_verdict(detail: CheckDetail) -> None:
    verdict = detail.check.verdict
    if verdict is None:
        print(f"{detail.check.phase}: no verdict")
        return
    if verdict.findings:
        head = ("WHAT", "REASON", "PROBLEM", "SUSPECTS")
        found = [
            (one.subject, one.reason, one.message, ", ".join(one.suspects))
            for one in verdict.findings
        ]
        print_table(head, found)
        print()
    print(f"{verdict.outcome}: {printable(verdict.message)}".rstrip(": "))


def _pair(result: RunResult) -> Pair:
    """The result of the largest size, or why there is none."""
    source, target = result.nodes
    return Pair(source=source, target=target, report=_last(result))


def _last(result: RunResult) -> Report:
    if result.skipped or not result.reports:
        return failed("harness", result.skipped or "no result")
    return result.reports[-1]


def _settings(test: TestRequest) -> TestSettings:
    operation = test.operation or ("tcp" if test.tool == "iperf3" else "write_bw")
    tool: Literal["perftest", "iperf3"] = "iperf3" if operation == "tcp" else "perftest"
    return TestSettings(tool=tool, operation=operation, device=test.device)


def _sizes(results: Sequence[RunResult]) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Rows of a table, below their head: one per message size of each collective."""
    rows: list[Sequence[object]] = []
    for one in results:
        nodes = f"{len(one.nodes)}: {','.join(one.nodes)}"
        for report in one.reports or (_last(one),):
            if report.outcome != "ok":
                rows.append((nodes, "", f"{report.reason}: {report.message}"))
            for row in report.rows:
                bus = row.bus_bandwidth_bytes_per_second
                shown = "" if bus is None else f"{bus / 1e9:.2f}"
                rows.append((nodes, row.message_bytes, shown))
    return ("NODES", "BYTES", "BUS GB/s"), rows
