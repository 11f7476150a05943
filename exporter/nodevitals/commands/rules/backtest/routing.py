"""Alertmanager's configuration: text in; routes, receivers, inhibition and time intervals out.

Only what decides who is notified when; receivers keep the kinds of their integrations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

import msgspec

from nodevitals.commands.rules.backtest.matching import LabelMatcher, all_match, parse_matchers
from nodevitals.commands.rules.backtest.time_intervals import IntervalShape, TimeInterval
from nodevitals.document import DocumentError, Problem, parse_yaml, translated

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdwy]))+|0")
_DURATION_PART = re.compile(r"([0-9]{1,15})(ms|[smhdwy])")
# Receivers of these names are without integrations on purpose.
_NOBODY = ("null", "none", "blackhole")
# https://prometheus.io/docs/alerting/0.25/configuration/: the default of send_resolved by kind.
_SILENT_ON_RESOLVED = ("email", "slack", "wechat")


class Integration(msgspec.Struct, frozen=True):
    """One way in which a receiver is notified: `email`, `webhook`, …"""

    kind: str
    send_resolved: bool


class Route(msgspec.Struct, frozen=True, eq=False):
    """A route with what it inherits; `group_by` None: every label."""

    path: str
    receiver: str
    matchers: tuple[LabelMatcher, ...]
    group_by: Optional[tuple[str, ...]]
    group_wait: float
    group_interval: float
    repeat_interval: float
    mute: tuple[str, ...]
    active: tuple[str, ...]
    continues: bool
    routes: tuple[Route, ...]

    def matching(self, labels: Mapping[str, str]) -> tuple[Route, ...]:
        """The routes that an alert takes: the deepest ones."""
        if not all_match(self.matchers, labels):
            return ()
        found: tuple[Route, ...] = ()
        for child in self.routes:
            matched = child.matching(labels)
            found += matched
            if matched and not child.continues:
                break
        return found or (self,)

    def group_labels(self, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The labels by which an alert is grouped here, sorted."""
        names = labels if self.group_by is None else self.group_by
        return tuple(sorted((name, labels[name]) for name in names if name in labels))


class Inhibition(msgspec.Struct, frozen=True):
    """A rule: an alert that matches `source` mutes those that match `target`."""

    source: tuple[LabelMatcher, ...]
    target: tuple[LabelMatcher, ...]
    equal: tuple[str, ...]


class Routing(msgspec.Struct, frozen=True):
    """A configuration."""

    root: Route
    receivers: dict[str, tuple[Integration, ...]]
    inhibitions: tuple[Inhibition, ...]
    intervals: dict[str, tuple[TimeInterval, ...]]


class _RouteShape(msgspec.Struct):
    receiver: str = ""
    matchers: Optional[list[str]] = None
    match: Optional[dict[str, str]] = None
    match_re: Optional[dict[str, str]] = None
    group_by: Optional[list[str]] = None
    group_wait: Optional[str] = None
    group_interval: Optional[str] = None
    repeat_interval: Optional[str] = None
    mute_time_intervals: tuple[str, ...] = ()
    active_time_intervals: tuple[str, ...] = ()
    continues: bool = msgspec.field(default=False, name="continue")
    routes: Optional[list[_RouteShape]] = None


class _InhibitionShape(msgspec.Struct):
    source_matchers: Optional[list[str]] = None
    target_matchers: Optional[list[str]] = None
    source_match: Optional[dict[str, str]] = None
    target_match: Optional[dict[str, str]] = None
    source_match_re: Optional[dict[str, str]] = None
    target_match_re: Optional[dict[str, str]] = None
    equal: tuple[str, ...] = ()


class _NamedIntervals(msgspec.Struct):
    name: str
    time_intervals: tuple[IntervalShape, ...] = ()


class _ConfigShape(msgspec.Struct):
    route: _RouteShape
    receivers: list[dict[str, Any]] = []
    inhibit_rules: list[_InhibitionShape] = []
    time_intervals: list[_NamedIntervals] = []
    mute_time_intervals: list[_NamedIntervals] = []


def parse_routing(text: bytes) -> Routing:
    """A configuration from the text of its file. Raises DocumentError."""
    try:
        shape = msgspec.convert(parse_yaml(text), _ConfigShape)
        named = [*shape.time_intervals, *shape.mute_time_intervals]
        routing = Routing(
            root=_route(shape.route, None, ""),
            receivers={one["name"]: _integrations(one) for one in shape.receivers},
            inhibitions=tuple(_inhibition(one) for one in shape.inhibit_rules),
            intervals={one.name: tuple(map(TimeInterval, one.time_intervals)) for one in named},
        )
        _check_names(routing, routing.root)
    except (msgspec.ValidationError, ValueError, KeyError, re.error) as error:
        raise DocumentError(
            [Problem("", f"not an Alertmanager configuration: {translated(error)}")]
        ) from None
    return routing


def seconds_of(duration: str) -> float:
    """Seconds of `30s`, `1h30m` or `0`. Raises ValueError."""
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"{duration!r} is not a duration: write it like 30s or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(duration))


def _route(shape: _RouteShape, parent: Route | None, path: str) -> Route:
    """A route with the values of its parent or, in the root, Alertmanager's defaults."""

    def wait(text: str | None, inherited: float) -> float:
        return inherited if text is None else seconds_of(text)

    group_by: tuple[str, ...] | None = parent.group_by if parent else ()
    if shape.group_by:  # an empty list is inherited as well
        group_by = None if "..." in shape.group_by else tuple(shape.group_by)
    route = Route(
        path=path,
        receiver=shape.receiver or (parent.receiver if parent else ""),
        matchers=_matchers(shape.matchers, shape.match, shape.match_re),
        group_by=group_by,
        group_wait=wait(shape.group_wait, parent.group_wait if parent else 30),
        group_interval=wait(shape.group_interval, parent.group_interval if parent else 300),
        repeat_interval=wait(shape.repeat_interval, parent.repeat_interval if parent else 14400),
        mute=shape.mute_time_intervals,
        active=shape.active_time_intervals,
        continues=shape.continues,
        routes=(),
    )
    children = enumerate(shape.routes or ())
    inner = tuple(_route(child, route, f"{path}/{number}") for number, child in children)
    return msgspec.structs.replace(route, routes=inner)


def _matchers(
    texts: list[str] | None, equal: dict[str, str] | None, pattern: dict[str, str] | None
) -> tuple[LabelMatcher, ...]:
    found = [matcher for text in texts or () for matcher in parse_matchers(text)]
    found += [LabelMatcher(label, "=", value) for label, value in (equal or {}).items()]
    found += [LabelMatcher(label, "=~", value) for label, value in (pattern or {}).items()]
    for matcher in found:
        if "~" in matcher.operator:
            re.compile(matcher.value)
    return tuple(found)


def _inhibition(shape: _InhibitionShape) -> Inhibition:
    return Inhibition(
        _matchers(shape.source_matchers, shape.source_match, shape.source_match_re),
        _matchers(shape.target_matchers, shape.target_match, shape.target_match_re),
        shape.equal,
    )


def _integrations(receiver: Mapping[str, Any]) -> tuple[Integration, ...]:
    """How a receiver is notified; one that is not filled in yet counts as one integration."""
    found = tuple(
        Integration(kind, bool(config.get("send_resolved", kind not in _SILENT_ON_RESOLVED)))
        for key, configs in receiver.items()
        if (kind := key.removesuffix("_configs")) != key
        for config in configs or ()
    )
    return found or (() if receiver["name"] in _NOBODY else (Integration("unset", True),))


def _check_names(routing: Routing, route: Route) -> None:
    """Raise ValueError for a receiver or an interval that is not defined."""
    if route.receiver not in routing.receivers:
        raise ValueError(f"receiver {route.receiver!r} is not defined")
    for name in (*route.mute, *route.active):
        if name not in routing.intervals:
            raise ValueError(f"time interval {name!r} is not defined")
    for child in route.routes:
        _check_names(routing, child)
