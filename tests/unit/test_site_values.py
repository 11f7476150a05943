"""The values file of `nodevitals rules render`: what is refused, all of it at once, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodevitals.commands.rules.site.checks import parse_values
from nodevitals.commands.rules.site.pack import Pack, read_pack
from nodevitals.commands.rules.site.values_example import EXAMPLE
from nodevitals.document import DocumentError
from testbed.node import ROOT
from testbed.pack import small_pack

UNKNOWN = "of the rules has this name; did you mean"
WIDER = (
    "compares it with a value of more than one node: it cannot differ by pool, set it in thresholds"
)


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return small_pack(tmp_path)


def problems(text: str, pack: Pack) -> list[str]:
    with pytest.raises(DocumentError) as error:
        parse_values(text.encode(), pack)
    return [problem.within("v.yaml") for problem in error.value.problems]


def test_every_error_is_listed_with_its_path_and_line(pack: Pack) -> None:
    text = """\
job: my job
profile: small
thresholds:
  heet: 5
  space_share: 20
pools:
  train:
    thresholds: {rack_heat: 40}
alerts:
  Hott: {wait: 5m}
  Hot: {severity: warning}
"""
    assert problems(text, pack) == [
        "v.yaml:1:1: job: 'my job' is not a job name: use letters, digits and _ . / : -",
        f"v.yaml:4:3: thresholds.heet: no threshold {UNKNOWN} heat?",
        "v.yaml:5:3: thresholds.space_share: 20 is over 1: a share is from 0 to 1",
        f"v.yaml:8:18: pools.train.thresholds.rack_heat: rack_hot {WIDER}",
        f"v.yaml:10:3: alerts.Hott: no alert {UNKNOWN} Hot or RackHot?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobb: x", "jobb: unknown key; use one of alerts, job, labels"),
        ("profile: medium", "profile: 'medium' is none of small, large"),
        ("runbook_base: ftp://x", "runbook_base: 'ftp://x' is not an http or https URL"),
        ("thresholds: {heat: -1}", "thresholds.heat: -1 is not a number of at least 0"),
        ("alerts: {Hot: {severity: page}}", "'page' is none of critical, warning, info"),
        ("alerts: {Hot: {wait: 5}}", "alerts.Hot.wait: 5 is not a duration"),
        ("labels: {severity: x}", "labels.severity: the rules use this label themselves"),
        ("labels: {instance: x}", "labels.instance: the rules use this label themselves"),
        ("labels: {pool: x}", "labels.pool: the rules use this label themselves"),
        ("labels: {a-b: x}", "labels.a-b: not a Prometheus label name"),
        ('labels: {team: "{{ $value }}"}', "is not a fixed text"),
        ("alerts: {Hot: {labels: {scope: x}}}", "alerts.Hot.labels.scope: the rules use"),
        (
            "alerts: {SpaceLow/critical: {wait: 5m}}",
            "no rule of SpaceLow has only this severity (found: critical, warning; one rule has",
        ),
        ("alerts: {Hot/warning: {wait: 5m}}", "only this severity (found: critical)"),
        (
            "alerts: {InsideFleetIncident: {severity: warning}}",
            "InsideFleetIncident has no receiver: it mutes others or shows that alerting works",
        ),
        ("alerts: {FleetIncident: {severity: info}}", "FleetIncident stands for muted alerts"),
        (
            "alerts: {FleetIncident: {enabled: false}}",
            "InsideFleetIncident would go on muting the alerts of its nodes: disable it as well",
        ),
    ],
)
def test_what_does_not_fit_is_refused(pack: Pack, text: str, problem: str) -> None:
    (found,) = problems(text, pack)
    assert problem in found


def test_an_incident_and_its_mute_can_be_disabled_together(pack: Pack) -> None:
    text = b"alerts: {FleetIncident: {enabled: false}, InsideFleetIncident: {enabled: false}}"
    assert not parse_values(text, pack).alerts["FleetIncident"].enabled


def test_thresholds_of_a_wider_domain_cannot_differ_by_pool() -> None:
    pack = read_pack(ROOT / "rules")
    for name in ("cpu_share", "retired_pages", "rdma_flaps_per_hour", "inodes_free_share"):
        assert parse_values(f"pools: {{p: {{thresholds: {{{name}: 1}}}}}}".encode(), pack)
    for name in ("fleet_nodes", "fabric_partners", "fabric_stale_slots"):
        assert problems(f"pools: {{p: {{thresholds: {{{name}: 1}}}}}}", pack)


def test_the_example_is_the_defaults_and_valid_with_every_key_set() -> None:
    pack = read_pack(ROOT / "rules")
    text = (ROOT / "rules" / EXAMPLE).read_text()
    assert parse_values(text.encode(), pack) == parse_values(b"", pack)
    every = re.sub(r"^#(?=[a-z_]+: )", "", text, flags=re.MULTILINE)
    values = parse_values(every.encode(), pack)
    assert values.labels
    assert values.pools
    assert values.alerts
    assert values.thresholds
