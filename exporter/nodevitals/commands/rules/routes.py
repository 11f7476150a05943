"""Alertmanager's routes. In: a configuration and an alert's labels. Out: the receivers.

Only matchers are considered, not the time of day or other alerts that fire at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_MATCHER = re.compile(
    r'(?P<label>\w{1,100})\s{0,20}(?P<operator>=~|!~|!=|=)\s{0,20}"(?P<value>(?:[^"\\]|\\.){0,2000})"'
)
_UNQUOTED = re.compile(r"\s*(?P<label>\w+)\s*(?P<operator>=~|!~|!=|=)\s*(?P<value>[^\"\s]*)\s*")
SOME = "some value"
"""Value of a label that an alert has and that differs by series."""


class Delivery(msgspec.Struct, frozen=True):
    """A receiver, the time after which it is notified, and the names of the time intervals in which
    it is active or muted.
    """

    receiver: str
    group_wait: str
    active: tuple[str, ...] = ()
    muted: tuple[str, ...] = ()


def deliveries(config: Mapping[str, Any], labels: Mapping[str, str]) -> list[Delivery]:
    """The receivers that are notified of an alert with these labels, in the order of the routes."""
    return list(_walk(config["route"], labels, {"group_wait": "30s"}))


def _walk(
    route: Mapping[str, Any], labels: Mapping[str, str], inherited: Mapping[str, Any]
) -> Iterator[Delivery]:
    own = {**inherited, **{key: route[key] for key in ("receiver", "group_wait") if key in route}}
    matched = False
    for child in route.get("routes") or ():
        if _matches(child, labels):
            matched = True
            yield from _walk(child, labels, own)
            if not child.get("continue"):
                break
    if not matched:
        yield Delivery(
            str(own["receiver"]),
            str(own["group_wait"]),
            tuple(route.get("active_time_intervals") or ()),
            tuple(route.get("mute_time_intervals") or ()),
        )


def matcher_labels(config: Mapping[str, Any]) -> set[str]:
    """The labels that the routes of a configuration read. Raises ValueError for what is none."""

    def labels_of(route: Mapping[str, Any]) -> Iterator[str]:
        for label, operator, value in _matchers(route):
            if "~" in operator:
                re.compile(value)
            yield label
        for child in route.get("routes") or ():
            yield from labels_of(child)

    try:
        config["route"]["receiver"]  # the root needs one
        return set(labels_of(config["route"]))
    except (AttributeError, KeyError, TypeError, re.error):
        raise ValueError("not an Alertmanager configuration") from None


def _matches(route: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return all(
        holds(operator, value, labels.get(label, "")) for label, operator, value in _matchers(route)
    )


def _matchers(route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Label, operator and value of each matcher, in the current form or in those before 0.22."""
    for text in route.get("matchers") or ():
        for match in _parsed(str(text)):
            yield match["label"], match["operator"], match["value"]
    for key, operator in (("match", "="), ("match_re", "=~")):
        for label, value in (route.get(key) or {}).items():
            yield label, operator, str(value)


def _parsed(text: str) -> list[re.Match[str]]:
    """The matchers of a text. Raises ValueError where it has none."""
    matchers = list(_MATCHER.finditer(text))
    if not matchers:
        plain = _UNQUOTED.fullmatch(text)
        matchers = [plain] if plain else []
    if not matchers:
        raise ValueError(f"{text!r} is not a matcher")
    return matchers


def holds(operator: str, pattern: str, value: str) -> bool:
    """Whether the value of a label matches; '' is that of a missing one. Raises re.error."""
    equal = bool(re.fullmatch(pattern, value)) if "~" in operator else pattern == value
    return equal != operator.startswith("!")
