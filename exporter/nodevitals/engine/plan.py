"""The targets of a configuration, as the supervisor takes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from nodevitals import catalogue, probes
from nodevitals.config import Config
from nodevitals.engine.target import TargetSpec
from nodevitals.linux.capabilities import Kept, kept_by_environment
from nodevitals.probe import Probe, ProbeSettings, Timing
from nodevitals.state.history import HistoryProbe, HistoryProbeSettings
from nodevitals.wire import encode, one_line

HISTORY_TIMEOUT_SECONDS = 10.0


class ProbePlan(msgspec.Struct, frozen=True):
    """Targets of one probe with one timing, as the process that loads the configuration sends
    them: each target's name and msgpack of its own settings.
    """

    probe: str
    timing: Timing
    required: bool
    targets: tuple[tuple[str, bytes], ...]
    problem: str = ""
    """Why none of them can run at all."""


def plan_targets(config: Config, only: Iterable[str] | None = None) -> list[TargetSpec]:
    """The targets of a configuration; of the probes in `only`, when given."""
    return target_specs(plan_probes(config, only))


def plan_probes(config: Config, only: Iterable[str] | None = None) -> list[ProbePlan]:
    """The probes of a configuration that are not off; those in `only`, when given."""
    chosen = set(probes.registered()) if only is None else set(only)
    plans = []
    for name, kind in probes.registered().items():
        settings: ProbeSettings = config.probes[name]
        if name in chosen and settings.enabled is not False:
            plans += _plan(kind, settings, config.timing(settings))
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
        plans += _plan(HistoryProbe, history, timing)
    return plans


def _plan(kind: type[Probe], settings: ProbeSettings, timing: Timing) -> list[ProbePlan]:
    """One plan per timing of the probe's targets, or one without a target."""
    targets: dict[Timing, list[tuple[str, bytes]]] = {timing: []}
    problem = kind.unusable
    if not problem:
        try:
            for target, own in kind.targets(settings):
                held = kind.target_timing(own, timing)
                targets.setdefault(held, []).append((target, encode(own)))
        except Exception as error:  # a mistake in a site's probe must not end the others
            problem = one_line(f"targets(): {type(error).__name__}: {error}")
    if problem:
        targets = {timing: [(kind.name, encode(settings))]}
    return [
        ProbePlan(kind.name, held, settings.required, tuple(named), problem)
        for held, named in targets.items()
        if named or len(targets) == 1
    ]


def target_specs(plans: Iterable[ProbePlan]) -> list[TargetSpec]:
    """The targets of these plans. A resident that keeps a capability does not stay open in a shared
    process: that has those that no probe needs.
    """
    specs = []
    kept: Kept = {}
    with contextlib.suppress(ValueError):  # `serve` does not start with a wrong variable
        kept = kept_by_environment()
    for plan in plans:
        kind = catalogue.probe_class(plan.probe)
        families = tuple(family.name for family in kind.families)
        specs += [
            TargetSpec(
                probe=plan.probe,
                target=target,
                settings=own,
                timing=plan.timing,
                resident=kind.resident,
                prompt=kind.prompt,
                shared=kind.is_shared(target) and not (kind.resident and kind.name in kept),
                persistent=kind.persistent,
                start_seconds=kind.start_seconds,
                required=plan.required,
                families=families,
                problem=plan.problem,
            )
            for target, own in plan.targets
        ]
    return specs
