"""`nodevitals rules import`: RepairManager's files in, ours out, as text.

Its rules become Prometheus rules, its mail settings an Alertmanager configuration, and of every
key it is told what became of it. Keys are known by their last name, wherever they stand in a file:
sites nest them differently. Passwords are neither read nor repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from nodevitals.commands.rules.render import SampledRule, alert, problems_of, rule_file
from nodevitals.document import DocumentError, Problem, parse_duration, parse_yaml

CONFIG, INTERVAL = "config.yaml", "rule-config.yaml"
FILES = (CONFIG, INTERVAL, "ecc-config.yaml", "rule-alerts.yaml")
RULES_OUT, ALERTMANAGER_OUT = "repair-manager.yaml", "alertmanager.yaml"
PASSWORD_FILE = "/etc/alertmanager/secrets/smtp-password"  # noqa: S105 - a path
NEVER = "8760h"

_REFERENCE = re.compile(
    r"""\{\{\s*cnf(?P<path>(?:\[\s*(?:"[^"\]]*"|'[^'\]]*'|\d+)\s*\]|\.\w+)+)\s*\}\}"""
)
_STEP = re.compile(r"""\[\s*(?:"([^"]*)"|'([^']*)'|(\d+))\s*\]|\.(\w+)""")
_MARK = "nodevitals-reference-{}-"
_MARKED = re.compile(r"nodevitals-reference-(\d+)-")
_RULE_KEYS = {
    "name",
    "query_expression",
    "step",
    "interval",
    "percent_threshold",
    "severity",
    "summary",
}


_MEANT = {
    "smtp_url",
    "login",
    "sender",
    "receiver",
    "alerts_enabled",
    "reminders_enabled",
    "reminder_wait_time",
    "alert_job_owners",
    "cluster_name",
}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a file, and what became of it; `why` says why nothing did."""

    file: str
    path: str
    became: str = ""
    why: str = ""


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The files to write, by name, and what became of every key that was read."""

    files: dict[str, str]
    keys: tuple[Key, ...]


def convert(texts: Mapping[str, bytes]) -> Converted:
    """Convert files by name. Raises DocumentError where one is not YAML, or refers to nothing."""
    problems: list[Problem] = []
    config = _read(texts.get(CONFIG, b""), CONFIG, None, problems)
    if problems:
        raise DocumentError(problems)
    used: set[str] = set()
    documents = {
        name: _read(text, name, _References(config, used), problems)
        for name, text in texts.items()
        if name != CONFIG
    }
    if problems:
        raise DocumentError(problems)
    settings = _Settings(config)
    interval = _Settings(documents.get(INTERVAL))
    keys: list[Key] = []
    rules: dict[str, SampledRule] = {}
    for name in documents:
        if name != INTERVAL:
            keys += _rules(documents[name], name, rules)
    keys += _interval_keys(interval)
    keys += _config_keys(settings, used)
    files = {ALERTMANAGER_OUT: _alertmanager(settings)} if CONFIG in texts else {}
    if rules:
        labels = {"cluster": settings.cluster} if settings.cluster else {}
        alerts = [alert(rule, labels) for rule in rules.values()]
        files[RULES_OUT] = rule_file("repair-manager", alerts, "import", interval.wait)
    return Converted(files=files, keys=tuple(sorted(keys, key=lambda key: (key.file, key.path))))


# Reading: references first, as they may stand where YAML would not have them.


class _References:
    """Finds what `{{cnf["a"]["b"]}}` means, and remembers which keys were asked for."""

    def __init__(self, config: Any, used: set[str]) -> None:
        self._config = config
        self._used = used

    def find(self, reference: str) -> Any:
        """The value. Raises LookupError."""
        value, path = self._config, ""
        for match in _STEP.finditer(reference):
            step: Any = next(part for part in match.groups() if part is not None)
            if isinstance(value, list):
                step = int(step)
            if not isinstance(value, dict | list):
                raise LookupError(step)
            value = value[step]
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        self._used.add(path.removeprefix("."))
        return value


def _read(text: bytes, file: str, references: _References | None, problems: list[Problem]) -> Any:
    """A file's values. A reference stands for its value, or for the value's text within others."""
    values: list[Any] = []

    def mark(match: re.Match[str]) -> str:
        try:
            if references is None:
                raise LookupError
            values.append(references.find(match["path"]))
        except (LookupError, ValueError):
            problems.append(Problem(file, f"{match[0]} is not in {CONFIG}"))
            values.append(None)
        return _MARK.format(len(values) - 1)

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            return {resolve(key): resolve(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [resolve(inner) for inner in value]
        if not isinstance(value, str):
            return value
        whole = _MARKED.fullmatch(value)
        if whole:
            return values[int(whole[1])]
        return _MARKED.sub(lambda part: _spelled(values[int(part[1])]), value)

    try:
        return resolve(parse_yaml(_REFERENCE.sub(mark, text.decode()).encode()))
    except UnicodeDecodeError as error:
        problems.append(Problem(file, f"not UTF-8: {error.reason}"))
    except DocumentError as error:
        problems += [
            Problem(f"{file}: {one.path}".rstrip(": "), one.message) for one in error.problems
        ]
    return None


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, last name and value of everything that is no mapping; a list of values is one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    elif path:
        yield path, re.split(r"[.\[]", path)[-1], value


# Rules.


def _rules(document: Any, file: str, rules: dict[str, SampledRule]) -> list[Key]:
    """Every mapping with a query is a rule, named by its `name` or by its key; adds to `rules`."""
    keys: list[Key] = []

    def walk(value: Any, path: str, name: str) -> None:
        if isinstance(value, dict) and "query_expression" in value:
            keys.extend(_rule(value, file, path, name, rules))
        elif isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key), str(key))
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, f"{path}[{number}]", f"{name}_{number}")
        else:
            keys.append(
                Key(file=file, path=path, why="only rules with a query_expression are read here")
            )

    walk(document, "", "rule")
    return keys


def _rule(
    value: dict[str, Any], file: str, path: str, name: str, rules: dict[str, SampledRule]
) -> list[Key]:
    keys: list[Key] = []
    problems: list[str] = []

    def seconds(key: str) -> float:
        try:
            return _seconds(value[key])
        except (KeyError, ValueError) as error:
            problems.append(f"no {key}" if isinstance(error, KeyError) else f"{key}: {error}")
            return 1.0

    share = value.get("percent_threshold")
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 100:
        problems.append(f"percent_threshold: {share!r} is not from 0 to under 100")
        share = 0
    severity = value.get("severity", "warning")
    rule = SampledRule(
        name=_camel_case(str(value.get("name", name))),
        query_expression=str(value["query_expression"]),
        step=seconds("step"),
        interval=seconds("interval"),
        percent_threshold=share,
        severity=severity if severity in ("critical", "warning", "info") else "warning",
        summary=str(value.get("summary", "")),
    )
    problems += [problem.message for problem in problems_of((rule,))]
    if rule.name in rules:
        problems.append(f"another rule is named {rule.name}")
    for key in value:
        where = f"{path}.{key}" if path else str(key)
        if problems:
            keys.append(Key(file=file, path=where, why=f"not a whole rule: {problems[0]}"))
        elif key not in _RULE_KEYS:
            keys.append(Key(file=file, path=where, why="no such key of a sampled rule"))
        elif key == "severity" and rule.severity != severity:
            keys.append(Key(file=file, path=where, why=f"{severity!r} is none of ours; warning is"))
        else:
            keys.append(Key(file=file, path=where, became=f"{RULES_OUT}: alert {rule.name}"))
    if not problems:
        rules[rule.name] = rule
    return keys


def _seconds(value: Any) -> float:
    """A number is seconds. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str) and value.isdecimal():
        value += "s"
    return parse_duration(value)


def _camel_case(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words) or "Rule"
    return joined if joined[0].isalpha() else f"Rule{joined}"


# Settings.


class _Settings:
    """Settings by their last name, wherever they stand."""

    def __init__(self, document: Any) -> None:
        self.leaves = list(_leaves(document))
        self._by_name = {name: value for _, name, value in reversed(self.leaves)}
        self.taken = {name: path for path, name, _ in reversed(self.leaves)}
        """The path of each name that counts: the first."""

    def get(self, name: str, default: Any = None) -> Any:
        """The first of this name."""
        value = self._by_name.get(name)
        return default if value is None else value

    def text(self, name: str) -> str:
        """As text; several of them, as mail programs write several addresses."""
        value = self.get(name, "")
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    @property
    def cluster(self) -> str:
        """The cluster's name, or ''."""
        return self.text("cluster_name")

    @property
    def domain(self) -> str:
        """@ and the domain that mail comes from, for owners who are known by name only; or ''."""
        return (
            "".join(self.text("sender").rpartition("@")[1:]) if "@" in self.text("sender") else ""
        )

    @property
    def wait(self) -> str:
        """How often its rules are evaluated, as Prometheus writes it, or ''."""
        return _duration(self.get("rule_wait_time"))


def _duration(value: Any) -> str:
    """As Prometheus writes it; '' for what is none."""
    try:
        milliseconds = round(_seconds(value) * 1000)
    except ValueError:
        return ""
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def _interval_keys(settings: _Settings) -> list[Key]:
    return [
        Key(file=INTERVAL, path=path, became=f"{RULES_OUT}: the group's interval, {settings.wait}")
        if name == "rule_wait_time" and settings.wait
        else Key(file=INTERVAL, path=path, why="which rules there are, their own files say")
        for path, name, _ in settings.leaves
    ]


def _config_keys(settings: _Settings, used: set[str]) -> list[Key]:
    return [_config_key(settings, used, *leaf) for leaf in settings.leaves]


def _config_key(settings: _Settings, used: set[str], path: str, name: str, value: Any) -> Key:
    """What became of one key of config.yaml."""
    became = why = ""
    if path != settings.taken[name] and name in _MEANT:
        why = f"{settings.taken[name]} was taken"
    elif name in ("smtp_url", "login", "sender", "receiver"):
        became = f"{ALERTMANAGER_OUT}: mail" if value else ""
        why = "" if value else "empty"
    elif name == "alerts_enabled":
        became = f"{ALERTMANAGER_OUT}: " + ("alerts are mailed" if value else "nobody is told")
    elif name == "reminders_enabled":
        became = f"{ALERTMANAGER_OUT}: repeat_interval{'' if value else f', {NEVER}: never'}"
    elif name == "reminder_wait_time":
        became = (
            f"{ALERTMANAGER_OUT}: repeat_interval, {_duration(value)}" if _duration(value) else ""
        )
        why = "" if became else f"{value!r} is no time"
    elif name == "alert_job_owners":
        became = f"{ALERTMANAGER_OUT}: " + (
            f"mail to owner{settings.domain}" if value else "no owner is told"
        )
    elif name == "cluster_name":
        became = f"{RULES_OUT}: label cluster; say it in prometheus.yml's external_labels too"
    elif name == "cordon_dry_run":
        why = "rules and Alertmanager cordon no node"
    elif "password" in name:
        why = f"secrets come from files: write it to {PASSWORD_FILE}"
    elif any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in used):
        became = "what other files refer to"
    else:
        why = "not known"
    return Key(file=CONFIG, path=path, became=became, why=why)


def _alertmanager(settings: _Settings) -> str:
    """An Alertmanager configuration that mails as RepairManager did."""
    mailed = bool(settings.get("alerts_enabled", True)) and bool(settings.text("receiver"))
    wait = _duration(settings.get("reminder_wait_time")) or "4h"
    route: dict[str, Any] = {
        "receiver": "operators" if mailed else "nobody",
        "group_by": ["cluster", "instance", "alertname"],
        "group_wait": "30s",
        "group_interval": "5m",
        "repeat_interval": wait if settings.get("reminders_enabled", True) else NEVER,
    }
    receivers: list[dict[str, Any]] = [{"name": "nobody"}]
    if mailed:
        receivers.append(_mail("operators", settings.text("receiver")))
    if mailed and settings.get("alert_job_owners"):
        owners = {"matchers": ['owner=~".+"'], "receiver": "job-owner", "continue": True}
        # With `continue`, and again: who hears of everything is told of owners' alerts too.
        route["routes"] = [
            {**owners, "group_by": ["cluster", "owner"]},
            {"matchers": ['owner=~".+"'], "receiver": "operators"},
        ]
        receivers.append(_mail("job-owner", "{{ .GroupLabels.owner }}" + settings.domain))
    document: dict[str, Any] = {"route": route, "receivers": receivers}
    if mailed:
        document = {"global": _smtp(settings), **document}
    head = (
        "# Made by `nodevitals rules import`. More to choose from: alertmanager/alertmanager.yaml\n"
    )
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _mail(name: str, to: str) -> dict[str, Any]:
    return {"name": name, "email_configs": [{"to": to, "send_resolved": True}]}


def _smtp(settings: _Settings) -> dict[str, str]:
    host = settings.text("smtp_url").rpartition("//")[2] or "localhost"
    smtp = {
        "smtp_smarthost": host if re.search(r":\d+$", host) else f"{host}:587",
        "smtp_from": settings.text("sender") or "alertmanager@localhost",
    }
    if settings.text("login"):
        smtp["smtp_auth_username"] = settings.text("login")
        smtp["smtp_auth_password_file"] = PASSWORD_FILE
    return smtp
