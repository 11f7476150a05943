"""A small pack of rules: what a site can change, in few lines."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from nodevitals.commands.rules.render import write
from nodevitals.commands.rules.site.checks import parse_values
from nodevitals.commands.rules.site.pack import Pack, read_pack
from nodevitals.commands.rules.site.rendering import render
from testbed.servers import BINARIES

_BASE = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks/"
RULES = f"""\
# Two faults and their alerts.
groups:
  - name: nodevitals-small
    rules:
      # One series per node: its pool.
      - record: nodevitals:node_domains
        expr: max by (cluster, instance, pool) (nodevitals_node_info{{job="nodevitals"}})
      - record: nodevitals:heat:by_rack
        expr: max by (cluster, rack) (heat{{job="nodevitals"}})
      - record: nodevitals:fault
        labels: {{fault: hot, component: node, action: drain, severity: critical, scope: node}}
        expr: |
          # A comment.
          heat{{job="nodevitals"}}
            > on () group_left () nodevitals:threshold{{job="", threshold="heat"}}
      - record: nodevitals:fault
        labels: {{fault: space, component: mount, action: drain, severity: critical, scope: node}}
        expr: |
          space{{job="nodevitals"}} * 2
            < on () group_left () nodevitals:threshold{{job="", threshold="space_share"}}
      - record: nodevitals:fault
        labels: {{fault: space, component: mount, action: drain, severity: warning, scope: node}}
        expr: |
          space{{job="nodevitals"}}
            < on () group_left () nodevitals:threshold{{job="", threshold="space_share"}}
      - record: nodevitals:fault
        labels: {{fault: rack_hot, component: node, severity: critical, scope: fleet}}
        expr: |
          nodevitals:heat:by_rack
            > on () group_left () nodevitals:threshold{{job="", threshold="rack_heat"}}

      - alert: Hot # burns
        expr: nodevitals:fault{{fault="hot"}}
        for: 2m
        annotations:
          summary: "{{{{ $labels.instance }}}} is hot"
          runbook_url: {_BASE}Hot.md
      # Both severities at once.
      - alert: SpaceLow
        expr: nodevitals:fault{{fault="space"}}
        annotations:
          summary: "{{{{ $labels.instance }}}} is full; the job must be named nodevitals"
          runbook_url: {_BASE}SpaceLow.md
      - alert: RackHot
        expr: nodevitals:fault{{fault="rack_hot"}}
        keep_firing_for: 5m
        annotations: {{runbook_url: {_BASE}RackHot.md}}
      - alert: FleetIncident
        expr: count(nodevitals:fault) > 9
        labels: {{severity: critical, component: fleet, fault: fleet_incident, scope: fleet}}
        annotations: {{runbook_url: {_BASE}FleetIncident.md}}
      - alert: InsideFleetIncident
        expr: group by (instance) (nodevitals:fault)
        labels: {{severity: none, scope: fleet}}
        annotations: {{runbook_url: {_BASE}FleetIncident.md}}
"""
THRESHOLDS = """\
groups:
  - name: nodevitals-thresholds
    rules:
      # Degrees.
      - record: nodevitals:threshold
        labels: {threshold: heat}
        expr: vector(10)
      - record: nodevitals:threshold
        labels: {threshold: space_share}
        expr: vector(0.2)
      - record: nodevitals:threshold
        labels: {threshold: rack_heat}
        expr: vector(50)
"""
_URL = f"{_BASE}Hot.md"
_SPACE = f"{_BASE}SpaceLow.md"
_LABELS = "job: nodevitals, instance: n1, scope: node, action: drain"
_TEXT = "n1 is full; the job must be named nodevitals"
TESTS = f"""\
rule_files: [../thresholds.yaml, ../small.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: heat{{job="nodevitals", instance="n1"}}
        values: 0x9 20x9
      - series: space{{job="nodevitals", instance="n1"}}
        values: 0.05x20
    alert_rule_test:
      - {{eval_time: 9m, alertname: Hot, exp_alerts: []}}
      - eval_time: 15m
        alertname: Hot
        exp_alerts: &hot
          - exp_labels: {{{_LABELS}, fault: hot, component: node, severity: critical}}
            exp_annotations: {{summary: n1 is hot, runbook_url: "{_URL}"}}
      - {{eval_time: 16m, alertname: Hot, exp_alerts: *hot}}
      - eval_time: 15m
        alertname: SpaceLow
        exp_alerts:
          - exp_labels: {{{_LABELS}, fault: space, component: mount, severity: warning}}
            exp_annotations: {{summary: "{_TEXT}", runbook_url: "{_SPACE}"}}
          - exp_labels: {{{_LABELS}, fault: space, component: mount, severity: critical}}
            exp_annotations: {{summary: "{_TEXT}", runbook_url: "{_SPACE}"}}
"""


def small_pack(folder: Path) -> Pack:
    """Return the pack, written to a folder."""
    for name, text in (
        ("small.yaml", RULES),
        ("thresholds.yaml", THRESHOLDS),
        ("tests/small.yaml", TESTS),
        ("runbooks/Hot.md", "# Hot\n\n## Severity\n\nIt burns.\n\n## Impact\n\nPain.\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_pack(folder)


def rendered(folder: Path, values: str, **options: Any) -> dict[str, str]:
    """Return what the small pack becomes with the text of a values file."""
    pack = small_pack(folder / "pack")
    options.setdefault("with_tests", False)
    return render(pack, parse_values(values.encode(), pack), **options)


def promtool(*arguments: str) -> tuple[int, str]:
    """Return the status and the output of promtool."""
    done = subprocess.run(
        [str(BINARIES / "promtool"), *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def write_rendered(folder: Path, values: str) -> Path:
    """Write the small pack, with its tests, for these values. Return the folder."""
    write(folder / "out", rendered(folder, values, with_tests=True))
    return folder / "out"
