"""Requests a check from the hub, follows it, cancels it at Ctrl-C, and prints the result.

In: the options of the command. Out: a table, JSON or CSV, and an exit status. Raises CommandError.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import msgspec

from nodevitals.checks import CheckError
from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.parameters import checked
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts.collectives import expected_of
from nodevitals.checks.verdicts.tables import as_csv, tables
from nodevitals.commands.fabric.options import expected_rate
from nodevitals.commands.hub.client import (
    HubClient,
    HubError,
    NoAnswerError,
    add_hub_options,
    client_of,
)
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    GOOD,
    CommandError,
    print_json,
    print_table,
    printable,
)
from nodevitals.probes.fabric.tools.report import Report, failed

HUB_ONLY = ("where", "limit", "note", "token_file", "ca_file")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """The options that only a hub has."""
    group = parser.add_argument_group("on the hub")
    add_hub_options(group)
    add = group.add_argument
    where = "nodes of the hub with this label; may be repeated (default: any)"
    add("--where", action="append", default=[], metavar="LABEL=VALUE", help=where)
    preset = "parameters that the hub has under this name (default: none)"
    add("--preset", default="", metavar="NAME", help=preset)
    limit = "longest time of the whole check, in seconds (default: by its cost)"
    add("--limit", type=float, metavar="SECONDS", help=limit)
    add("--note", default="", metavar="TEXT", help="why, for people (default: none)")


def add_test_options(parser: argparse.ArgumentParser) -> None:
    """The options of the test, with a hub and without one."""
    add = parser.add_argument
    seconds = "seconds per size, in place of iterations (default: iterations)"
    add("--seconds", type=int, metavar="N", help=seconds)
    pairs = "queue pairs, or streams of iperf3 (default 1)"
    add("--queue-pairs", type=int, metavar="N", help=pairs)
    gid = "GID index of the ports (default: chosen on each node)"
    add("--gid-index", type=int, metavar="N", help=gid)
    add("--traffic-class", type=int, metavar="N", help="traffic class of the packets (default 0)")


def refuse_given(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise CommandError where one of these options was given."""
    parser: argparse.ArgumentParser = options.parser
    for name in names:
        if getattr(options, name) != parser.get_default(name):
            raise CommandError(f"--{name.replace('_', '-')} {why}")


def request_of(options: argparse.Namespace, kind: str, test: dict[str, Any]) -> CheckRequest:
    """The request of these options; `test` has the fields of a TestRequest, None where not given.
    Only what cannot be a request is refused: the hub knows its presets, nodes and limits.
    """
    nodes = [name.strip() for name in (options.nodes or "").split(",") if name.strip()]
    where = {**_labels(options.where), **({"pool": options.pool} if options.pool else {})}
    if not nodes and not where:
        raise CommandError("which nodes? --nodes A,B,C, --pool NAME or --where LABEL=VALUE")
    fields = {
        "kind": "pair" if kind == "matrix" and len(set(nodes)) == 2 and not where else kind,
        "nodes": list(dict.fromkeys(nodes)),
        "where": where,
        "preset": options.preset,
        "test": _given(test),
        "rounds": getattr(options, "rounds", None),
        "expected_bytes_per_second": expected_rate(options.expected),
        "expected_latency_seconds": _seconds(getattr(options, "expected_latency", None)),
        "share": options.share,
        "isolate": not getattr(options, "no_isolate", False),
        "limit_seconds": options.limit,
        "force": options.force,
        "note": options.note,
    }
    try:
        return msgspec.convert(_given(fields), CheckRequest)
    except msgspec.ValidationError as error:
        raise CommandError(f"{error}") from None


def checked_here(request: CheckRequest) -> CheckRequest:
    """The request with all defaults, for a run without a hub. Raises CommandError with all
    problems.
    """
    try:
        return checked(request, PRESETS)
    except CheckError as error:
        lines = (f"--{_option(problem.path)}: {problem.message}" for problem in error.problems)
        raise CommandError("\n".join(lines)) from None


def _option(path: str) -> str:
    name = path.removeprefix("test.").removesuffix("_bytes_per_second").removesuffix("_seconds")
    return {"environment": "env"}.get(name, name).replace("_", "-")


def sizes_of(options: argparse.Namespace) -> Optional[str]:
    """The sizes of --sizes or --message-bytes, as the hub takes them; None where not given."""
    size: Optional[int] = options.message_bytes
    return options.sizes if size is None else f"{size}B"


def assignments(option: str, given: Iterable[str]) -> Optional[dict[str, str]]:
    """The mapping of an option that is repeated as NAME=VALUE; None where it was not given."""
    assigned = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise CommandError(f"{option}: {assignment!r} is not NAME=VALUE")
        assigned[name] = value
    return assigned or None


def _seconds(microseconds: Optional[float]) -> Optional[float]:
    return None if microseconds is None else microseconds / 1e6


def _labels(given: Iterable[str]) -> dict[str, str]:
    return assignments("--where", given) or {}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


POLL_SECONDS = 1.0
# Longest wait for an answer: a restarted hub continues the check.
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
        # The hub may have started the check without having answered yet.
        _cancel(client, identity or client.submit(request, key).id)
        raise
    print_detail(detail, options)
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
    progress, began = Progress(), time.monotonic()
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
            progress(check.phase, *counted(detail))
        time.sleep(POLL_SECONDS)
    raise CommandError(f"no end within 2 days; it may go on: {client.link(identity)}")


def counted(detail: CheckDetail) -> tuple[int, int, str]:
    """How much of a check is done, of how much: the sizes of a collective over all nodes, otherwise
    runs.
    """
    check = detail.check
    if check.request.kind != "collective" or check.runs_done:
        return check.runs_done, check.runs, "runs"
    done = max((len(result.reports) for result in detail.results), default=0)
    return done, len(parse_sizes(check.request.test.sizes)), "sizes"


class Progress:
    """Shows the progress in one line of a terminal; elsewhere it prints nothing."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def __call__(self, phase: str, done: int, total: int, what: str = "runs") -> None:
        """Show a check's phase, and how many of its runs have ended."""
        filled = min(_BAR, _BAR * done // max(1, total))
        bar = "#" * filled + "." * (_BAR - filled)
        self.show("queued" if phase == "queued" else f"[{bar}] {done}/{total} {what}")

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._terminal:
            self._shown = True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line as it is."""
        if self._shown:
            print(file=sys.stderr)


def print_detail(detail: CheckDetail, options: argparse.Namespace) -> None:
    """Print a check with its results, as the options ask."""
    if options.json:
        print_json(detail)
        return
    if getattr(options, "csv", False):
        print(as_csv(detail), end="")
        return
    if detail.check.request.kind in ("pair", "matrix"):
        for head, *rows in tables(detail):
            print_table(head, rows)
            print()
    else:
        print_table(*_sizes(detail))
        print()
    _print_verdict(detail)


def _print_verdict(detail: CheckDetail) -> None:
    verdict = detail.check.verdict
    if verdict is None:
        print(f"{detail.check.phase}: no verdict")
        return
    if verdict.findings:
        head = ("WHAT", "REASON", "PROBLEM", "SUSPECTS")
        rows = [
            (finding.subject, finding.reason, finding.message, ", ".join(finding.suspects))
            for finding in verdict.findings
        ]
        print_table(head, rows)
        print()
    print(f"{verdict.outcome}: {printable(verdict.message)}".rstrip(": "))


def _last(result: RunResult) -> Report:
    if result.skipped or not result.reports:
        return failed("harness", result.skipped or "no result")
    return result.reports[-1]


def _sizes(detail: CheckDetail) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Rows of a table, below their head: one per message size of each collective, with its share of
    what the one over all nodes should reach.
    """
    expected, _ = expected_of(detail.check)
    rows: list[Sequence[object]] = []
    for result in detail.results:
        nodes = f"{len(result.nodes)}: {','.join(result.nodes)}"
        for report in result.reports or (_last(result),):
            if report.outcome != "ok":
                rows.append((nodes, "", f"{report.reason}: {report.message}", ""))
            for row in report.rows:
                bus = row.bus_bandwidth_bytes_per_second
                shown = "" if bus is None else f"{bus / 1e9:.2f}"
                share = f"{100 * bus / expected:.0f} %" if bus and expected else ""
                rows.append((nodes, row.message_bytes, shown, share))
    if expected is None:
        return ("NODES", "BYTES", "BUS GB/s"), [row[:3] for row in rows]
    return ("NODES", "BYTES", "BUS GB/s", f"OF {expected / 1e9:.3g}"), rows
