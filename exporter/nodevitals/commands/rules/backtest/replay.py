"""promtool evaluates the rules that depend on faults: series in, alerts over time out.

A test that expects no alert to begin or end is written for every evaluation; what promtool got
instead is read from its complaints.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from nodevitals.commands.rules.backtest.pieces import Piece
from nodevitals.commands.rules.backtest.plan import LocalRule
from nodevitals.commands.rules.backtest.routing import seconds_of
from nodevitals.commands.rules.backtest.rule_set import EVALUATION_SECONDS
from nodevitals.commands.rules.backtest.stretches import Labels, Stretch
from nodevitals.commands.terminal import CommandError

TIMEOUT_SECONDS = 3600.0
_STEP = f"{EVALUATION_SECONDS:g}s"
_CHANGES = "nodevitals:backtest:changes"
_FIRING = 'ALERTS{alertstate="firing"}'
_CHANGES_RULE = f"""
({_FIRING} unless {_FIRING} offset {_STEP})
or
label_replace({_FIRING} offset {_STEP} unless {_FIRING}, "backtest_end", "$1", "alertname", "(.*)")
"""
_FAILURE = re.compile(
    r'expr: "[^"\n]{0,200}", time: ([0-9a-z]{1,40}),\s{1,20}'
    r"exp: ?[^\n]{0,200}\n\s{0,20}got: ?([^\n]*)"
)
_SERIES = re.compile(r'\{((?:[^"{}]|"(?:\\.|[^"\\])*")*)\}')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]{0,100})="((?:\\.|[^"\\]){0,8000})"')
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Replay:
    """Runs pieces one after the other; `alerts` has the time of each alert afterwards."""

    def __init__(self, rules: Sequence[LocalRule], promtool: str, step: float) -> None:
        self._rules = rules
        self._promtool = promtool
        self._step = step
        self._templates = {
            value for rule in rules for value in rule.rule.labels.values() if "{{" in value
        }
        self._open: dict[Labels, float] = {}
        self.alerts: dict[Labels, list[tuple[float, float]]] = {}
        """By labels, the times from and until which an alert fired; inf: it still did."""

    def run(self, piece: Piece, series: Mapping[Labels, Sequence[Stretch]]) -> None:
        """Evaluate one piece. Raises CommandError."""
        with tempfile.TemporaryDirectory(prefix="nodevitals-backtest-") as folder:
            (Path(folder) / "rules.yaml").write_text(json.dumps(self._rule_file()))
            (Path(folder) / "test.yaml").write_text(
                json.dumps(_test_file(piece, series, self._step))
            )
            output = self._output(Path(folder))
        firing: set[Labels] = set()
        warm = False
        for slot, begins, labels in changes(output, self._templates):
            if slot >= piece.warm_up and not warm:
                self._take_over(firing, piece.time_of(piece.warm_up))
                warm = True
            if warm:
                self._change(piece.time_of(slot), labels, begins)
            else:
                (firing.add if begins else firing.discard)(labels)
        if not warm:
            self._take_over(firing, piece.time_of(piece.warm_up))

    def finish(self) -> None:
        """End the last piece: what fires has no end."""
        for labels, start in self._open.items():
            self.alerts.setdefault(labels, []).append((start, math.inf))
        self._open = {}

    def _take_over(self, firing: set[Labels], time: float) -> None:
        """Continue the previous piece with what the warm-up of this one brought back."""
        for labels in [*self._open]:
            if labels not in firing:
                self._change(time, labels, begins=False)
        for labels in sorted(firing):
            if labels not in self._open:
                self._change(time, labels, begins=True)

    def _change(self, time: float, labels: Labels, begins: bool) -> None:
        if begins:
            self._open.setdefault(labels, time)
        elif labels in self._open:
            self.alerts.setdefault(labels, []).append((self._open.pop(labels), time))

    def _rule_file(self) -> dict[str, object]:
        rules = [_rule(rule) for rule in self._rules]
        rules.append({"record": _CHANGES, "expr": _CHANGES_RULE})
        # One group, whose rules see what those above them recorded in the same evaluation.
        return {"groups": [{"name": "backtest", "rules": rules}]}

    def _output(self, folder: Path) -> str:
        argv = [self._promtool, "test", "rules", "test.yaml"]
        try:
            done = subprocess.run(
                argv,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except OSError as error:
            raise CommandError(f"{self._promtool}: {error.strerror}; choose --promtool") from None
        except subprocess.TimeoutExpired:
            text = f"{self._promtool}: not finished after {TIMEOUT_SECONDS:g} s"
            raise CommandError(f"{text}; choose fewer --days") from None
        output = done.stderr + done.stdout
        if done.returncode and not _FAILURE.search(output):
            raise CommandError(f"{self._promtool}: {' '.join(output.split())[:500]}")
        return output


def changes(output: str, templates: Collection[str]) -> Iterator[tuple[int, bool, Labels]]:
    """What promtool got instead of nothing: the evaluation, whether an alert begins, its labels.

    Where the template of an alert's label expands to nothing, ALERTS has the template itself, and
    what is sent to Alertmanager has no such label.
    """
    found = []
    for time, samples in _FAILURE.findall(output):
        slot = round(seconds_of(time) / EVALUATION_SECONDS)
        for series in _SERIES.findall(samples):
            labels = {name: _plain(value) for name, value in _LABEL.findall(series)}
            begins = "backtest_end" not in labels
            kept = {
                name: value
                for name, value in labels.items()
                if name not in ("__name__", "alertstate", "backtest_end") and value not in templates
            }
            found.append((slot, begins, tuple(sorted(kept.items()))))
    return iter(sorted(found))


def _rule(local: LocalRule) -> dict[str, object]:
    rule = local.rule
    if not rule.is_alert:
        return {"record": rule.name, "expr": local.expression, "labels": rule.labels}
    return {
        "alert": rule.name,
        "expr": local.expression,
        "labels": rule.labels,
        "for": _milliseconds(rule.wait),
        "keep_firing_for": _milliseconds(rule.keep_firing),
    }


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _test_file(
    piece: Piece, series: Mapping[Labels, Sequence[Stretch]], step: float
) -> dict[str, object]:
    """A test of one piece, in which each sample of the server lasts for a step."""
    input_series = []
    for labels, stretches in series.items():
        values = _values(piece, stretches, step)
        if values:
            input_series.append({"series": _notation(labels), "values": values})
    tests = [
        {"expr": _CHANGES, "eval_time": f"{round(slot * EVALUATION_SECONDS)}s"}
        for slot in range(piece.slots())
    ]
    test = {"interval": _STEP, "input_series": input_series, "promql_expr_test": tests}
    return {"rule_files": ["rules.yaml"], "evaluation_interval": _STEP, "tests": [test]}


def _values(piece: Piece, stretches: Sequence[Stretch], step: float) -> str:
    """The cells of a series in a piece; '' where it has none. Absence ends with `stale`."""
    cells: list[str] = []
    position = offset = 0
    present = False
    for window in piece.windows:
        for stretch in stretches:
            first = max(0, round((stretch.start - window.start) / EVALUATION_SECONDS))
            after = min(
                window.slots, round((stretch.end + step - window.start) / EVALUATION_SECONDS)
            )
            if after <= first:
                continue
            first, after = first + offset, after + offset
            if first > position:
                _append_gap(cells, first - position, present)
            count = after - first
            cells.append(stretch.value if count == 1 else f"{stretch.value}x{count - 1}")
            position, present = after, True
        offset += window.slots
    if present and position < offset:
        _append_gap(cells, offset - position, present)
    return " ".join(cells)


def _append_gap(cells: list[str], count: int, present: bool) -> None:
    if present:
        cells.append("stale")
        count -= 1
    if count:
        cells.append(f"_x{count}")


def _notation(labels: Labels) -> str:
    pairs = ",".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in labels
        if name != "__name__"
    )
    return f"{dict(labels)['__name__']}{{{pairs}}}"


def _plain(text: str) -> str:
    """A label value from Go's quotes."""

    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)
