"""The targets of a configuration, as the supervisor takes them."""

from __future__ import annotations

from collections.abc import Iterable

from nodevitals import probes
from nodevitals.config import Config
from nodevitals.engine.target import TargetSpec
from nodevitals.probe import Probe, ProbeSettings, Timing
from nodevitals.state.history import HistoryProbe, HistoryProbeSettings
from nodevitals.wire import encode, one_line

HISTORY_TIMEOUT_SECONDS = 10.0


def plan_targets(config: Config, only: Iterable[str] | None = None) -> list[TargetSpec]:
    """The targets of a configuration; of the probes in `only`, when given."""
    chosen = set(probes.registered()) if only is None else set(only)
    specs: list[TargetSpec] = []
    for name, kind in probes.registered().items():
        settings: ProbeSettings = config.probes[name]
        if name in chosen and settings.enabled is not False:
            specs += _specs(kind, settings, config.timing(settings))
    if only is None and config.state_directory is not None:
        settings = HistoryProbeSettings(
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
        specs += _specs(HistoryProbe, settings, timing)
    return specs


def _specs(kind: type[Probe], settings: ProbeSettings, timing: Timing) -> list[TargetSpec]:
    problem = kind.unusable
    pairs = [(kind.name, encode(settings))]
    if not problem:
        try:
            pairs = [(target, encode(own)) for target, own in kind.targets(settings)]
        except Exception as error:  # a mistake in a site's probe must not end the others
            problem = one_line(f"targets(): {type(error).__name__}: {error}")
    return [
        TargetSpec(
            probe=kind.name,
            target=target,
            settings=own,
            timing=timing,
            resident=kind.resident,
            persistent=kind.persistent,
            start_seconds=kind.start_seconds,
            required=settings.required,
            families=tuple(family.name for family in kind.families),
            problem=problem,
        )
        for target, own in pairs
    ]
