"""`nodevitals rules backtest`: how often the alerts would have fired over the last days.

In: a Prometheus that has the agents' metrics, rule files and, for the receivers, an Alertmanager
configuration. Out: per alert and instance how often, how long, and to whom it goes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from nodevitals.commands.rules.backtest.firing import Span, ask
from nodevitals.commands.rules.backtest.questions import read_questions
from nodevitals.commands.rules.backtest.receivers import Routes
from nodevitals.commands.rules.backtest.report import make_report, print_report
from nodevitals.commands.rules.backtest.server import Server, ServerError
from nodevitals.commands.terminal import COULD_NOT_TELL, GOOD, CommandError, print_json
from nodevitals.quantities import parse_duration

_LONGEST_STEP_SECONDS = 240
"""Below Prometheus' look-back of five minutes."""


def run(options: argparse.Namespace) -> int:
    """Print the report; the status is 2 where the server could not answer."""
    questions = read_questions(Path(options.rules))
    routes = None
    if options.alertmanager_config:
        routes = Routes(options.alertmanager_config, options.amtool)
    span = _span(options)
    server = Server(options.prometheus, _duration(options.timeout))
    try:
        answers = ask(questions, server, span, _Progress(sys.stderr.isatty()))
    except ServerError as error:
        print(error, file=sys.stderr)
        return COULD_NOT_TELL
    report = make_report(answers, routes.receivers if routes else _none, server.cost)
    if options.json:
        print_json(report)
    else:
        print_report(report)
    return COULD_NOT_TELL if answers.refused or not answers.answered else GOOD


def _none(_: Mapping[str, str]) -> tuple[str, ...]:
    return ()


class _Progress:
    """One line on a terminal that is written over; nothing elsewhere."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown

    def __call__(self, text: str) -> None:
        if self._shown:
            print(f"\r\033[K{text}\r", end="", file=sys.stderr, flush=True)


def _span(options: argparse.Namespace) -> Span:
    step = _duration(options.step)
    if step > _LONGEST_STEP_SECONDS:
        raise CommandError(f"--step {options.step}: choose up to 4m")
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
