"""The targets of a configuration, as the supervisor takes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nodevitals import probes
from nodevitals.config import Config
from nodevitals.engine.protocol import TargetSpec
from nodevitals.probe import Probe, ProbeSettings, Timing
from nodevitals.state.history import HistoryProbe, HistoryProbeSettings
from nodevitals.wire import encode, one_line

HISTORY_TIMEOUT_SECONDS = 10.0


def plan_targets(config: Config, only: Iterable[str] | None = None) -> list[TargetSpec]:
    """The targets of a configuration, of the probes that are not off; of those in `only`, when
    given.
    """
    chosen = set(probes.registered()) if only is None else set(only)
    targets: list[TargetSpec] = []
    for name, kind in probes.registered().items():
        settings: ProbeSettings = config.probes[name]
        if name in chosen and settings.enabled is not False:
            targets += _planned(kind, settings, config.timing(settings))
    if only is None and config.state_directory is not None:
        history = HistoryProbeSettings(
            enabled=True,
            state_directory=config.state_directory,
            max_age=config.history.max_age,
            max_rows=config.history.max_rows,
        )
        interval = config.history.interval
        timing = Timing(
            interval_seconds=interval,
            timeout_seconds=HISTORY_TIMEOUT_SECONDS,
            stale_after_seconds=max(3 * interval, 3 * HISTORY_TIMEOUT_SECONDS),
        )
        targets += _planned(HistoryProbe, history, timing)
    return targets


def _planned(kind: type[Probe], settings: ProbeSettings, timing: Timing) -> list[TargetSpec]:
    """The targets of one probe; one with a problem where they cannot run."""
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
