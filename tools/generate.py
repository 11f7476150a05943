#!/usr/bin/env python3
"""Write the files that are made from others; with --check, fail where one is stale.

First, from the registry of faults (rules/faults/): the rule files, the thresholds and the test of
ThresholdMissing. Then from rules, families, settings, probes and parsers: docs/METRICS.md, the
example configurations and their pages, those of the hub as well, the tables of probes in the
READMEs and docs/probes.md (with tools/main_of_probes.py), docs/alerts.md, the example of the values
file, the inhibitions of Alertmanager's minimal configuration, the JSON of the dashboards, the
schema of the chart's values, its rules and its forms of Alertmanager's configuration, the
catalogue of recorded series, docs/commands.md, completions and the man page.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import yaml

from nodevitals import probes
from nodevitals.commands.completion import FILES
from nodevitals.commands.generated.command_line import commands_page
from nodevitals.commands.generated.configuration_page import configuration_page
from nodevitals.commands.generated.example import example_configuration
from nodevitals.commands.generated.recorded import FILE as RECORDED
from nodevitals.commands.generated.recorded import decoded, metrics_page
from nodevitals.commands.rules.alerts_page import alerts_page, without_reason
from nodevitals.commands.rules.site.pack import Pack, read_pack
from nodevitals.commands.rules.site.values_example import EXAMPLE, example_values

ROOT = Path(__file__).parents[1]
# They have parts that dashboards/central.py makes.
CENTRAL = (
    "exporter/packaging/prometheus-leaf.yaml",
    "exporter/packaging/prometheus-central.yaml",
    "helm/nodevitals/examples/several-clusters-leaf.yaml",
    "helm/nodevitals/examples/several-clusters-central.yaml",
    "docs/several-clusters.md",
)
HUB_TEXTS = ROOT / "hub/nodevitals_hub/notify/texts"
COUNTED = ("README.md", "README.zh-CN.md", "docs/comparison.md")
COUNT = re.compile(r"(<!-- count:alerts -->)\d+(<!-- /count -->)")
# From the key to the next line that is not indented.
INHIBITIONS = re.compile(r"^inhibit_rules:.*?(?=^\S)", re.MULTILINE | re.DOTALL)


def probe_tables(pack: Pack) -> dict[Path, str]:
    """Return the READMEs and docs/probes.md with their tables of probes."""
    sys.path.insert(0, str(ROOT))
    from tools import probe_tables as tables

    if unknown := tables.unknown(pack):
        raise SystemExit("\n".join(unknown))
    pages = {}
    for name, chinese in {"README.md": False, "README.zh-CN.md": True}.items():
        table = tables.readme_list(pack, chinese)
        pages[ROOT / name] = tables.replaced((ROOT / name).read_text(), "probes", table)
    path = ROOT / "docs/probes.md"
    return {**pages, path: tables.probes_page(path.read_text(), pack)}


def counted(pages: dict[Path, str], pack: Pack) -> dict[Path, str]:
    """Return the pages with the number of alerts, and what is made of them already."""
    alerts = len({rule.name for rule in pack.alerts})
    texts = {ROOT / name: pages.get(ROOT / name) or (ROOT / name).read_text() for name in COUNTED}
    return {**pages, **{page: COUNT.sub(rf"\g<1>{alerts}\2", text) for page, text in texts.items()}}


def minimal_alertmanager(text: str, full: str) -> str:
    """Return the minimal configuration with the inhibitions of the full one."""
    [inhibitions] = INHIBITIONS.findall(full)
    return INHIBITIONS.sub(lambda _: str(inhibitions), text)


def present(path: Path) -> str:
    """Return the content of a file; '' where there is none yet."""
    return path.read_text() if path.exists() else ""


def dashboards() -> dict[Path, str]:
    """Return the JSON of the dashboards; their package lies in the root of the checkout."""
    sys.path.insert(0, str(ROOT))
    from dashboards.__main__ import files

    return files()


def several_clusters() -> dict[Path, str]:
    """Return the files that list what clusters send to a central server."""
    from dashboards.central import filled

    return {ROOT / name: filled((ROOT / name).read_text()) for name in CENTRAL}


def chart(pack: Pack) -> dict[Path, str]:
    """Return the schema of the chart's values, its rules and its Alertmanager configurations."""
    from helm.files import CHART, chart_files
    from helm.schema import values_schema

    schema = values_schema(probes.registered(), pack)
    return {
        CHART / "values.schema.json": schema,
        **chart_files(pack),
    }


def command_line() -> dict[Path, str]:
    """Return what is made from the parsers."""
    sys.path.insert(0, str(ROOT))
    from tools.command_line import completion, man_page

    folder = ROOT / "exporter/packaging"
    return {
        ROOT / "docs/commands.md": commands_page(),
        **{folder / "completions" / file: completion(shell) for shell, file in FILES.items()},
        folder / "nodevitals.1": man_page(),
    }


def hub_pages() -> dict[Path, str]:
    """Return what is made from the hub's settings."""
    from tools.hub_pages import hub_configuration_page, hub_example

    return {
        ROOT / "docs/hub-configuration.md": hub_configuration_page(),
        ROOT / "hub/nodevitals-hub.example.yaml": hub_example(),
    }


def recorded(pack: Pack) -> dict[Path, str]:
    """Return the catalogue of recorded series, and docs/METRICS.md, which has them."""
    from tools.recorded_series import recorded_json

    text = recorded_json(pack, ROOT / "rules")
    return {
        RECORDED: text,
        ROOT / "docs/METRICS.md": metrics_page(decoded(text.encode())),
    }


def made() -> dict[Path, str]:
    """Return the content of every generated file."""
    for name, kind in probes.registered().items():
        if kind.unusable:
            raise SystemExit(f"probe {name}: {kind.unusable}")
    minimal = ROOT / "alertmanager/minimal.yaml"
    full = (ROOT / "alertmanager/alertmanager.yaml").read_text()
    pack = read_pack(ROOT / "rules")
    routes = yaml.safe_load((ROOT / "alertmanager/alertmanager.yaml").read_text())
    alerts = ROOT / "docs/alerts.md"
    return {
        **recorded(pack),
        ROOT / "docs/configuration.md": configuration_page(probes.registered()),
        ROOT / "exporter/packaging/nodevitals.example.yaml": example_configuration(
            probes.registered()
        ),
        **hub_pages(),
        **counted(probe_tables(pack), pack),
        minimal: minimal_alertmanager(minimal.read_text(), full),
        alerts: alerts_page(pack, routes, present(alerts)),
        ROOT / "rules" / EXAMPLE: example_values(pack),
        **command_line(),
        **dashboards(),
        **several_clusters(),
        **chart(pack),
    }


def faults() -> tuple[dict[Path, str], list[str]]:
    """Return the content of the files made from the registry, and what it lacks."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from tools.alert_waits import waits_json, waits_template
    from tools.chinese_words import chinese_json, chinese_template
    from tools.fault_services import services_json
    from tools.preflight_rows import preflight_json
    from tools.registry import RegistryError, problems, read_registry
    from tools.rule_text import rule_files, threshold_test

    try:
        registry = read_registry(ROOT / "rules/faults")
        defects = preflight_json(registry)
    except RegistryError as error:
        raise SystemExit(f"rules/faults/{error}") from None
    files = {ROOT / "rules" / name: text for name, text in rule_files(registry).items()}
    missing = list(problems(registry, files, ROOT / "rules"))
    english = ROOT / "alertmanager/templates/nodevitals.tmpl"
    chinese = ROOT / "alertmanager/templates/nodevitals.zh.tmpl"
    return {
        **files,
        ROOT / "rules/tests/thresholds-missing.yaml": threshold_test(registry),
        HUB_TEXTS / "words_zh.json": chinese_json(registry),
        HUB_TEXTS / "waits.json": waits_json(registry),
        ROOT / "hub/nodevitals_hub/repair/startable.json": services_json(registry),
        ROOT / "exporter/nodevitals/commands/preflight/defects.json": defects,
        english: waits_template(registry, english.read_text()),
        chinese: chinese_template(registry, chinese.read_text()),
    }, missing


def written(files: dict[Path, str]) -> bool:
    """Write the files that are stale, or name them with --check; whether there are any."""
    stale = {path: text for path, text in files.items() if present(path) != text}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is stale: make generate", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(path.name + ".new")
            new.write_text(text)
            os.replace(new, path)
            print(f"{path.relative_to(ROOT)} written")
    return bool(stale)


def main() -> int:
    """Write or check; the rule files first, as others are made from them."""
    files, missing = faults()
    stale = written(files)
    from tools.recorded_series import help_problems

    stale |= written(made())
    pack = read_pack(ROOT / "rules")
    missing += help_problems(pack)
    if unexplained := without_reason(pack):
        missing.append(f"runbooks without a section Severity: {', '.join(unexplained)}")
    for problem in missing:
        print(f"rules/faults/{problem}", file=sys.stderr)
    return int(bool(missing) or ("--check" in sys.argv and stale))


if __name__ == "__main__":
    sys.exit(main())
