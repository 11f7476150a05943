"""The agent's settings: YAML text in, a `Config` out.

Every probe declares its own Settings; this module has only what all of them share. A file that
does not fit is refused whole, with every problem and its path (`document.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Optional, cast

import msgspec

from nodevitals.document import Problem, SettingsDocument, convert, read_file
from nodevitals.probe import Probe, ProbeSettings, Timing
from nodevitals.quantities import Seconds

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Prometheus sets these on every series; labels of the same name become exported_…
_TAKEN_LABELS = ("instance", "job", "cluster")
STALE_INTERVALS = 3


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing of the probes that set none of their own."""

    interval: Seconds = 15.0
    """Time between two runs."""
    timeout: Seconds = 10.0
    """Time that a run may take. A probe's timeout is at most its interval."""


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
    """Labels of nodevitals_node_info, to group and to route by; no other series has them.
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
        interval = settings.interval or self.defaults.interval
        return Timing(
            interval_seconds=interval,
            timeout_seconds=min(settings.timeout or self.defaults.timeout, interval),
            stale_after_seconds=settings.stale_after or STALE_INTERVALS * interval,
        )


def parse(text: bytes, probes: Mapping[str, type[Probe]]) -> Config:
    """A Config in which every probe has its Settings. Raises DocumentError with every problem."""
    document = SettingsDocument(text)
    raw = document.values()
    problems: list[Problem] = []
    config = cast("Config | None", convert(raw, Config, "", problems))
    sections = raw.get("probes") if isinstance(raw, dict) else None
    settings = _convert_probes(sections if isinstance(sections, dict) else {}, probes, problems)
    if config is not None:
        problems.extend(_label_problems(config.labels))
        for name, section in settings.items():
            problems.extend(_timing_problems(f"probes.{name}", section, config.defaults))
    error = document.error(problems)
    if error is not None:
        raise error
    assert config is not None
    return msgspec.structs.replace(config, probes=settings)


def load(path: str | None, probes: Mapping[str, type[Probe]]) -> Config:
    """The Config in a file, or the defaults when there is none. Raises DocumentError."""
    return parse(b"" if path is None else read_file(path), probes)


def _convert_probes(
    sections: Mapping[Any, Any], probes: Mapping[str, type[Probe]], problems: list[Problem]
) -> dict[str, ProbeSettings]:
    for name in sections:
        if name not in probes:
            known = ", ".join(sorted(probes))
            problems.append(Problem(f"probes.{name}", f"unknown probe; known: {known}"))
    found = {}
    for name, kind in probes.items():
        section = {} if sections.get(name) is None else sections[name]
        if kind.unusable:  # its settings cannot be checked, and it fails in each run anyway
            section = {}
        settings = convert(section, kind.Settings, f"probes.{name}", problems)
        if settings is not None:
            settings = found[name] = _with_default(settings, kind, section)
            problems.extend(
                Problem(f"probes.{name}.{problem.path}", problem.message)
                for problem in settings.problems()
            )
    return found


def _with_default(
    settings: ProbeSettings, kind: type[Probe], section: Mapping[Any, Any]
) -> ProbeSettings:
    """The settings, with the probe's own default where the file does not mention `enabled`."""
    if "enabled" in section:
        return settings
    enabled = {"auto": "auto", "on": True, "off": False}[kind.default]
    return msgspec.structs.replace(settings, enabled=enabled)


def _timing_problems(path: str, settings: ProbeSettings, defaults: Defaults) -> Iterator[Problem]:
    interval = settings.interval or defaults.interval
    # A default is capped instead.
    written = settings.timeout != type(settings)().timeout
    if settings.timeout is not None and written and settings.timeout > interval:
        yield Problem(
            f"{path}.timeout", f"{settings.timeout:g}s is over the interval of {interval:g}s"
        )
    if settings.stale_after is not None and settings.stale_after < interval:
        yield Problem(f"{path}.stale_after", f"under the interval of {interval:g}s")


def _label_problems(labels: Mapping[str, str]) -> Iterator[Problem]:
    for name in labels:
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
            yield Problem(f"labels.{name}", "not a Prometheus label name")
        elif name in _TAKEN_LABELS:
            yield Problem(f"labels.{name}", "Prometheus sets this label itself")
