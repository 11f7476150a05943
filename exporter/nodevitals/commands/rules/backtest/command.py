"""`nodevitals rules backtest`: what the rules would have notified over the last days.

In: a Prometheus that has the agents' metrics, rule files, an Alertmanager configuration. Out: who
would have been notified, how often, of what.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from nodevitals.commands.rules.backtest.evaluate import Span, evaluate
from nodevitals.commands.rules.backtest.report import Reporter, pagers_of
from nodevitals.commands.rules.backtest.routing import Routing, parse_routing
from nodevitals.commands.rules.backtest.rule_set import EVALUATION_SECONDS, read_rule_set
from nodevitals.commands.rules.backtest.server import Server, ServerError
from nodevitals.commands.rules.backtest.tables import print_report
from nodevitals.commands.terminal import CommandError, document_error, print_json
from nodevitals.document import DocumentError
from nodevitals.quantities import parse_duration

COULD_NOT_TELL = 2
_LONGEST_STEP_SECONDS = 240
"""Below Prometheus' look-back of five minutes."""


def run(options: argparse.Namespace) -> int:
    """Print the report; the status is 2 where the server could not answer."""
    rules = read_rule_set(Path(options.rules))
    routing = _routing(options.alertmanager_config)
    pagers = pagers_of(routing, options.pager)
    for name in pagers - set(routing.receivers):
        raise CommandError(f"{options.alertmanager_config}: no receiver {name!r}: --pager")
    promtool = options.promtool or shutil.which("promtool")
    if promtool is None:
        raise CommandError("promtool is not on PATH: install Prometheus, or give --promtool PATH")
    span = _span(options)
    try:
        server = Server(options.prometheus, _duration(options.timeout))
        promtool = str(Path(promtool).absolute())
        evaluated = evaluate(rules, server, span, promtool, _Progress(sys.stderr.isatty()))
    except ServerError as error:
        print(error, file=sys.stderr)
        return COULD_NOT_TELL
    report = Reporter(evaluated, routing, pagers).report()
    if options.json:
        print_json(report)
    else:
        print_report(report)
    return 0


class _Progress:
    """One line on a terminal that is written over; nothing elsewhere."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown

    def __call__(self, text: str) -> None:
        if self._shown:
            print(f"\r\033[K{text}\r", end="", file=sys.stderr, flush=True)


def _routing(file: str) -> Routing:
    try:
        return parse_routing(Path(file).read_bytes())
    except OSError as error:
        text = f"{file}: {error.strerror}; choose another --alertmanager-config"
        raise CommandError(text) from None
    except DocumentError as error:
        raise document_error(file, error) from None


def _span(options: argparse.Namespace) -> Span:
    step = _duration(options.step)
    if step % EVALUATION_SECONDS or not 0 < step <= _LONGEST_STEP_SECONDS:
        raise CommandError(f"--step {options.step}: choose a multiple of 15s up to 4m")
    if not 0 < options.days <= 400:
        raise CommandError(f"--days {options.days:g}: choose more than 0 and at most 400")
    end = time.time() if options.end is None else _time(options.end)
    end = end // step * step
    return Span(end - options.days * 86400 // step * step, end, step)


def _time(text: str) -> float:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise CommandError(f"--end {text}: write it like 2026-11-22T10:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError(str(error)) from None
