"""Reads both configuration files and plans the targets.

In: paths, or a checked configuration. Out: what the agent uses, or every problem, one line each. A
running agent calls `load` in a process of its own, which may hang or crash without the agent: the
agent itself opens no file that can hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from nodevitals import config, probes, web_config
from nodevitals.config import Config
from nodevitals.document import DocumentError, Problem, UnreadableError, read_file
from nodevitals.engine.protocol import Files, Loaded, TargetSpec
from nodevitals.probe import Probe, ProbeSettings, Timing
from nodevitals.state.history import HistoryProbe, HistoryProbeSettings
from nodevitals.wire import ProtocolError, encode, frame, one_line

MAX_TARGETS = 5000
HISTORY_TIMEOUT_SECONDS = 10.0
Read = TypeVar("Read")


def load(files: Files, *, look: bool = False) -> Loaded:
    """Read and check the files, and plan the targets. Never raises. With `look`, warnings also name
    the files and programs of settings that are not on this machine.
    """
    errors: list[str] = []
    unreadable: list[str] = []
    planned = _attempt(partial(_read, look=look), files.config, errors, unreadable)
    web = _attempt(web_config.read, files.web, errors, unreadable)
    if planned is None or web is None:
        return Loaded(errors=(*errors, *unreadable), invalid=bool(errors))
    return msgspec.structs.replace(planned, web=web)


def _attempt(
    read: Callable[[str | None], Read],
    path: str | None,
    errors: list[str],
    unreadable: list[str],
) -> Read | None:
    try:
        return read(path)
    except DocumentError as error:
        place = unreadable if isinstance(error, UnreadableError) else errors
        place += [problem.within(str(path)) for problem in error.problems]
    except Exception as error:  # a mistake in the settings of a site's probe
        errors.append(one_line(f"{path}: {type(error).__name__}: {error}"))
    return None


def _read(path: str | None, *, look: bool) -> Loaded:
    content = b"" if path is None else read_file(path)
    checked, warnings = config.check(content, probes.registered(), look=look)
    targets = tuple(plan_targets(checked))
    if len(targets) > MAX_TARGETS:
        text = f"{len(targets)} targets, over {MAX_TARGETS}: remove some"
        raise DocumentError([Problem("probes", text)])
    lines = tuple(warning.within(str(path)) for warning in warnings)
    return Loaded(checked.labels, checked.state_directory, targets, warnings=lines)


def framed(loaded: Loaded) -> bytes:
    """The frame that replies to the agent; an error where the reply is too large for a frame."""
    try:
        return frame(loaded)
    except ProtocolError as error:
        return frame(Loaded(errors=(str(error),)))


def plan_targets(checked: Config, only: Iterable[str] | None = None) -> list[TargetSpec]:
    """The targets of the probes that the configuration does not turn off; with `only`, of these
    probes alone.
    """
    chosen = set(probes.registered()) if only is None else set(only)
    targets: list[TargetSpec] = []
    for name, kind in probes.registered().items():
        settings: ProbeSettings = checked.probes[name]
        if name in chosen and settings.enabled is not False:
            targets += _planned(kind, settings, checked.timing(settings))
    if only is None and checked.state_directory is not None:
        history = HistoryProbeSettings(
            enabled=True,
            state_directory=checked.state_directory,
            max_age=checked.history.max_age,
            max_rows=checked.history.max_rows,
        )
        interval = checked.history.interval
        timing = Timing(
            interval_seconds=interval,
            timeout_seconds=HISTORY_TIMEOUT_SECONDS,
            stale_after_seconds=max(3 * interval, 3 * HISTORY_TIMEOUT_SECONDS),
        )
        targets += _planned(HistoryProbe, history, timing)
    return targets


def _planned(kind: type[Probe], settings: ProbeSettings, timing: Timing) -> list[TargetSpec]:
    """The targets of one probe; where they cannot run, one target with its `problem`."""
    problem = kind.unusable
    if not problem:
        try:
            return [
                _spec(kind, settings, target, own, kind.target_timing(own, timing))
                for target, own in kind.targets(settings)
            ]
        except Exception as error:  # a mistake in a site's probe must not end the others
            problem = one_line(f"targets(): {type(error).__name__}: {error}")
    return [_spec(kind, settings, kind.name, settings, timing, problem)]


def _spec(
    kind: type[Probe],
    settings: ProbeSettings,
    target: str,
    own: msgspec.Struct,
    timing: Timing,
    problem: str = "",
) -> TargetSpec:
    return TargetSpec(
        probe=kind.name,
        target=target,
        settings=encode(own),
        timing=timing,
        resident=kind.resident,
        prompt=kind.prompt,
        shared=kind.is_shared(target) and not kind.resident,
        persistent=kind.persistent,
        start_seconds=kind.start_seconds,
        required=settings.required,
        problem=problem,
    )
