"""All of RepairManager's files in, the files to write and the report about every key out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodevitals.commands.rules.repair_manager.alertmanager import alertmanager_file, setting_keys
from nodevitals.commands.rules.repair_manager.rules import convert_rules
from nodevitals.commands.rules.repair_manager.settings import (
    ALERTMANAGER_OUT,
    ALERTS,
    CONFIG,
    RULES_OUT,
    ConvertedKey,
    References,
    Settings,
    read,
)
from nodevitals.commands.rules.sampled_rules import SampledRule, alert, rule_file
from nodevitals.document import DocumentError, Problem


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The files to write, by name, and what every key that was read became."""

    files: dict[str, str]
    keys: tuple[ConvertedKey, ...]


def convert(texts: Mapping[str, bytes], mapped: bool = False) -> Converted:
    """Convert files by name; `mapped` replaces the metrics of the old exporter by ours.

    Raises DocumentError where one is not YAML.
    """
    problems: list[Problem] = []
    config = read(texts.get(CONFIG, b""), CONFIG, None, problems)
    if problems:
        raise DocumentError(problems)
    references = References(config)
    documents = {
        name: read(text, name, references, problems)
        for name, text in texts.items()
        if name != CONFIG
    }
    if problems:
        raise DocumentError(problems)
    # The sections of rule-alerts.yaml are for single rules: what it says goes before the rest.
    order = sorted(documents, key=lambda name: name != ALERTS)
    settings = Settings({**{name: documents[name] for name in order}, CONFIG: config})
    rules: dict[str, SampledRule] = {}
    keys = setting_keys(settings, references.used)
    for name, document in documents.items():
        keys += convert_rules(document, name, rules, mapped)
    files = {ALERTMANAGER_OUT: alertmanager_file(settings)} if CONFIG in texts else {}
    if rules:
        labels = {"cluster": settings.cluster} if settings.cluster else {}
        alerts = [alert(rule, labels) for rule in rules.values()]
        files[RULES_OUT] = rule_file(
            "repair-manager", alerts, "import", settings.evaluation_interval
        )
    return Converted(files=files, keys=tuple(sorted(keys, key=lambda key: (key.file, key.path))))
