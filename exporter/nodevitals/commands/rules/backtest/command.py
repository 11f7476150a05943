"""`nodevitals rules backtest`: how often the alerts would have fired over the last days.

In: a Prometheus that has the agents' metrics, rule files and, for the receivers, an Alertmanager
configuration. Out: per alert and instance how often, how long, and to whom it goes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nodevitals.commands.rules.backtest.firing import Span, ask
from nodevitals.commands.rules.backtest.questions import read_questions
from nodevitals.commands.rules.backtest.report import make_report, print_report
from nodevitals.commands.rules.backtest.server import Server, ServerError
from nodevitals.commands.rules.routes import matcher_labels
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    GOOD,
    CommandError,
    document_error,
    print_json,
)
from nodevitals.document import DocumentError, parse_yaml
from nodevitals.quantities import parse_duration

_LONGEST_STEP_SECONDS = 240
"""Below Prometheus' look-back of five minutes."""


class Routes:
    """The routes of a configuration file: amtool tests the labels of an alert against them. Raises
    CommandError.
    """

    def __init__(self, file: str, amtool: str | None) -> None:
        program = amtool or shutil.which("amtool")
        if program is None:
            raise CommandError("amtool is not on PATH: install Alertmanager, or give --amtool PATH")
        self._argv = [program, "config", "routes", "test", f"--config.file={file}"]
        try:
            config: Any = parse_yaml(Path(file).read_bytes())
        except OSError as error:
            text = f"{file}: {error.strerror}; choose another --alertmanager-config"
            raise CommandError(text) from None
        except DocumentError as error:
            raise document_error(file, error) from None
        try:
            # amtool runs once per set of values of the labels that the routes match.
            self._names = matcher_labels(config)
        except ValueError as error:
            raise CommandError(f"{file}: {error}", FOUND_WRONG) from None
        self._receivers: dict[tuple[str, ...], tuple[str, ...]] = {}

    def receivers(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The receivers of an alert, in the order of the routes. Raises CommandError."""
        pairs = tuple(
            f"{name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in sorted(labels.items())
            if name in self._names
        )
        if pairs not in self._receivers:
            self._receivers[pairs] = tuple(self._tested(pairs))
        return self._receivers[pairs]

    def _tested(self, pairs: tuple[str, ...]) -> Iterator[str]:
        try:
            done = subprocess.run(
                [*self._argv, *pairs],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            text = f"{self._argv[0]}: {error.strerror}; choose another --amtool"
            raise CommandError(text) from None
        if done.returncode:
            text = " ".join((done.stderr + done.stdout).split())[:500]
            raise CommandError(f"{self._argv[0]}: {text}", FOUND_WRONG)
        # Two routes to one receiver are two groups of one receiver.
        yield from dict.fromkeys(done.stdout.strip().split(","))


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
    """Shows the progress in one line of a terminal; elsewhere it prints nothing."""

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
        time_ = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise CommandError(f"--end {text}: write it like 2026-11-22T10:00:00Z") from None
    return (time_ if time_.tzinfo else time_.replace(tzinfo=timezone.utc)).timestamp()


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError(str(error)) from None
