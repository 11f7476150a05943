"""The chart's Alertmanager files: the shipped configurations in; out come routes, inhibitions and
receivers as templates/_alertmanager.tpl reads them, for Alertmanager and as an AlertmanagerConfig.

The settings of receivers are those in the comments of the shipped files, without the addresses,
which are the site's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1] / "alertmanager"
CONFIGURATIONS = {"full": "alertmanager.yaml", "minimal": "minimal.yaml"}
# `#key` and, below it, `#  more`; text has one space after the #.
_SETTING = re.compile(r"^( *)#(?=\S|  )", re.MULTILINE)
_ADDRESSES = ("to", "url", "api_url_file", "routing_key_file", "http_config")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')
_HEAD = "# Made from alertmanager/{} by `make generate`, for templates/_alertmanager.tpl.\n"


def chart_alertmanager() -> dict[str, str]:
    """The files of the chart's folder files/alertmanager, by name."""
    made = {path.name: path.read_text() for path in sorted(ROOT.glob("templates/*.tmpl"))}
    for name, file in CONFIGURATIONS.items():
        config = shipped(ROOT / file)
        made[f"{name}.yaml"] = _yaml(file, config)
        made[f"{name}.config.yaml"] = _yaml(file, alertmanager_config(config))
    return made


def shipped(path: Path) -> dict[str, Any]:
    """A configuration with the settings in comments, without its global ones and addresses."""
    config: dict[str, Any] = yaml.safe_load(_SETTING.sub(r"\1", path.read_text()))
    config["global"] = {"resolve_timeout": config["global"]["resolve_timeout"]}
    del config["templates"]
    for receiver in config["receivers"]:
        for entries in (value for key, value in receiver.items() if key != "name"):
            for entry in entries:
                for key in _ADDRESSES:
                    entry.pop(key, None)
    return config


def alertmanager_config(config: dict[str, Any]) -> dict[str, Any]:
    """The spec of an AlertmanagerConfig, v1alpha1. It has no time zones, so the shipped time
    intervals are left out, and the routes name none of them: the site adds its own in UTC.
    https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1alpha1.MuteTimeInterval
    """
    return {
        "route": _route(config["route"]),
        "inhibitRules": [
            {
                "sourceMatch": _matchers(rule["source_matchers"]),
                "targetMatch": _matchers(rule["target_matchers"]),
                "equal": rule["equal"],
            }
            for rule in config["inhibit_rules"]
        ],
        "receivers": [_camel_receiver(receiver) for receiver in config["receivers"]],
    }


def _route(route: dict[str, Any]) -> dict[str, Any]:
    made = {_camel(key): value for key, value in route.items() if "time_intervals" not in key}
    if "matchers" in made:
        made["matchers"] = _matchers(made["matchers"])
    if "routes" in made:
        made["routes"] = [_route(one) for one in made["routes"]]
    return made


def _matchers(texts: Iterable[str]) -> list[dict[str, str]]:
    made = []
    for text in texts:
        match = _MATCHER.fullmatch(text)
        if match is None:
            raise SystemExit(f'alertmanager: matcher {text}: write it as name="value"')
        made.append({"name": match[1], "matchType": match[2], "value": match[3]})
    return made


def _camel_receiver(receiver: dict[str, Any]) -> dict[str, Any]:
    """Mappings of headers and details are lists of key and value."""
    made: dict[str, Any] = {"name": receiver["name"]}
    for kind, entries in receiver.items():
        if kind != "name":
            made[_camel(kind)] = [
                {
                    _camel(key): [{"key": name, "value": text} for name, text in value.items()]
                    if isinstance(value, dict)
                    else value
                    for key, value in entry.items()
                }
                for entry in entries
            ]
    return made


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _yaml(file: str, document: Any) -> str:
    return _HEAD.format(file) + yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, width=10**6
    )
