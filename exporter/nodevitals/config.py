"""The agent's settings: YAML text in, a `Config` out.

Every probe declares its own Settings; this module has only what all of them share. An invalid file
is refused as a whole, with every problem and its path (`document/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Optional, cast

import msgspec

from nodevitals.document import Problem, add_problems, convert_parts, meant, read_file
from nodevitals.probe import STALE_INTERVALS, Probe, ProbeSettings, TargetTiming, Timing
from nodevitals.quantities import Seconds

_LABEL_REMEDY = "use letters, digits and _, no digit first and no __"
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Prometheus sets these labels on every series, and renames exposed ones to exported_…
_TAKEN_LABELS = ("instance", "job", "cluster")


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing of the probes that set none of their own."""

    interval: Seconds = 15.0
    """Time between two runs."""
    timeout: Seconds = 10.0
    """Time that a run may take. A probe's timeout is at most its interval."""

    @property
    def timing(self) -> Timing:
        """The timing of a probe that sets none of its own, before its timeout is capped."""
        return Timing(
            interval_seconds=self.interval,
            timeout_seconds=self.timeout,
            stale_after_seconds=STALE_INTERVALS * self.interval,
        )


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the history is written, and how much of it is kept."""

    interval: Seconds = 15.0
    """Longest time until a repeated outcome of a run is counted and written; changes are written
    at once."""
    max_age: Seconds = 90 * 86400.0
    """Age at which rows are removed; the last row of each device stays."""
    max_rows: Annotated[int, msgspec.Meta(ge=100, le=10_000_000)] = 100_000
    """Number of rows above which the oldest are removed."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    labels: dict[str, str] = {}
    """Labels of nodevitals_node_info, to group and to join by; no other series has them.
    Example: `{rack: r12, rail_group: a, pool: train}`"""
    state_directory: Optional[str] = "/var/lib/nodevitals"
    """Directory of the history, and of counters and states that outlive a restart; null keeps
    nothing."""
    history: HistorySettings = HistorySettings()
    """How often the history is written, and how much of it is kept."""
    defaults: Defaults = Defaults()
    """Timing of the probes that set none of their own."""
    probes: dict[str, Any] = {}
    """Settings by probe."""

    def timing(self, settings: ProbeSettings) -> Timing:
        """A probe's timing: its own, or the defaults, with the timeout within the interval."""
        return self.defaults.timing.changed_by(settings)


def parse(text: bytes, probes: Mapping[str, type[Probe]]) -> Config:
    """A Config in which every probe has its Settings. Raises DocumentError with every problem."""
    return check(text, probes)[0]


def check(
    text: bytes, probes: Mapping[str, type[Probe]], *, look: bool = False
) -> tuple[Config, list[Problem]]:
    """The Config of `parse`, and warnings about settings that work in another way than expected;
    with `look`, also about files and programs that are not on this machine.
    """
    from nodevitals.document import SettingsDocument

    document = SettingsDocument(text)
    raw = document.values()
    problems: list[Problem] = []
    config = cast("Config | None", convert_parts(raw, Config, "", problems))
    sections = raw.get("probes") if isinstance(raw, dict) else None
    sections = sections if isinstance(sections, dict) else {}
    settings = _convert_probes(sections, probes, problems)
    timed = list(_timed(settings, sections))
    if config is not None:
        add_problems(_label_problems(config), problems)
        for section in timed:
            add_problems(_timing_problems(section, config), problems)
    error = document.error(problems)
    if error is not None:
        raise error
    assert config is not None
    config = msgspec.structs.replace(config, probes=settings)
    warnings = [*_capped_timeouts(config, raw, timed)]
    return config, document.placed([*warnings, *(_missing(settings, sections) if look else ())])


def _missing(
    settings: Mapping[str, ProbeSettings], sections: Mapping[Any, Any]
) -> Iterator[Problem]:
    """The files, folders and programs that sections of probes name, unless these are off."""
    from nodevitals.document.local import missing

    for name, probe in settings.items():
        if probe.enabled is not False and name in sections:
            yield from missing(sections[name], type(probe), f"probes.{name}")


def load(path: str | None, probes: Mapping[str, type[Probe]]) -> Config:
    """The Config in a file, or the defaults when there is none. Raises DocumentError."""
    return parse(b"" if path is None else read_file(path), probes)


def _convert_probes(
    sections: Mapping[Any, Any], probes: Mapping[str, type[Probe]], problems: list[Problem]
) -> dict[str, ProbeSettings]:
    for name in sections:
        if name not in probes:
            text = f"unknown probe; use one of {', '.join(sorted(probes))}{meant(name, probes)}"
            problems.append(Problem(f"probes.{name}", text))
    converted = {}
    for name, kind in probes.items():
        section = {} if sections.get(name) is None else sections[name]
        if kind.unusable:  # its settings cannot be checked, and it fails in each run anyway
            section = {}
        if isinstance(section, Mapping):  # the probe's own default
            enabled = {"auto": "auto", "on": True, "off": False}[kind.default]
            section = {"enabled": enabled, **section}
        settings = convert_parts(section, kind.Settings, f"probes.{name}", problems)
        if settings is not None:
            add_problems(_own_problems(name, settings), problems)
            converted[name] = settings
    return converted


def _own_problems(name: str, settings: ProbeSettings) -> Iterator[Problem]:
    for problem in settings.problems():
        yield Problem(f"probes.{name}.{problem.path}", problem.message)


class _Timed(NamedTuple):
    """A mapping of the file with the keys of a TargetTiming: a probe's section or one of its
    targets. `raw` is the mapping as written, `probe` the settings of its probe.
    """

    path: str
    own: TargetTiming
    raw: Mapping[Any, Any]
    probe: ProbeSettings

    def inherited(self, defaults: Defaults) -> Timing:
        """The timing that the mapping changes."""
        is_probe = self.own is self.probe
        return defaults.timing if is_probe else defaults.timing.changed_by(self.probe)


def _timed(settings: Mapping[str, ProbeSettings], sections: Mapping[Any, Any]) -> Iterator[_Timed]:
    """The probes' sections, and their targets that may have another timing."""
    for name, probe in settings.items():
        section = sections.get(name)
        raw = section if isinstance(section, Mapping) else {}
        yield _Timed(f"probes.{name}", probe, raw, probe)
        for key in probe.__struct_fields__:
            value = getattr(probe, key, None) if key in raw else None
            for index, own in enumerate(value if isinstance(value, tuple) else ()):
                if isinstance(own, TargetTiming):
                    yield _Timed(f"probes.{name}.{key}[{index}]", own, raw[key][index], probe)


def _timing_problems(section: _Timed, config: Config) -> Iterator[Problem]:
    path, own = section.path, section.own
    interval = own.interval or section.inherited(config.defaults).interval_seconds
    # A timeout that is not written here is capped instead.
    if own.timeout is not None and "timeout" in section.raw and own.timeout > interval:
        text = f"{own.timeout:g}s is over the interval of {interval:g}s"
        yield Problem(f"{path}.timeout", f"{text}: choose a shorter timeout or a longer interval")
    if own.stale_after is not None and own.stale_after < interval:
        text = f"{own.stale_after:g}s is under the interval of {interval:g}s"
        yield Problem(f"{path}.stale_after", f"{text}: choose at least two intervals")


def _capped_timeouts(
    config: Config, raw: Mapping[str, Any], timed: Iterable[_Timed]
) -> Iterator[Problem]:
    """Warnings about inherited timeouts that the interval of a section shortens."""
    defaults = config.defaults
    if raw.get("defaults") and defaults.timeout > defaults.interval:
        text = f"{defaults.timeout:g}s is over defaults.interval, so probes use"
        yield Problem("defaults.timeout", f"{text} {defaults.interval:g}s: set at most that")
    for section in timed:
        if "interval" not in section.raw or "timeout" in section.raw:
            continue
        inherited = section.inherited(defaults)
        timeout = section.own.timeout or inherited.timeout_seconds
        used = inherited.changed_by(section.own).timeout_seconds
        if section.probe.enabled is not False and used < timeout:
            text = f"shorter than the inherited timeout of {timeout:g}s, so a run may take"
            path = section.path
            yield Problem(f"{path}.interval", f"{text} {used:g}s: set {path}.timeout to say so")


def _label_problems(config: Config) -> Iterator[Problem]:
    for name in config.labels:
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
            yield Problem(f"labels.{name}", f"not a Prometheus label name: {_LABEL_REMEDY}")
        elif name in _TAKEN_LABELS:
            yield Problem(f"labels.{name}", "Prometheus sets this label itself: choose another")
