"""`nodevitals rules render --output`: what values change in rule files, and nothing else."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from nodevitals.commands.rules.check import check
from nodevitals.commands.rules.render import write
from nodevitals.commands.rules.sampled_rules import parse
from nodevitals.commands.rules.site.rendering import HEAD
from nodevitals.commands.rules.site.values import Values, with_names
from nodevitals.commands.terminal import CommandError
from testbed.node import ROOT
from testbed.pack import RULES, THRESHOLDS, promtool, rendered, write_rendered


def changes(before: str, after: str) -> list[str]:
    """The lines that are removed and added, below the head."""
    _, _, after = after.partition("\n")
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-"]


def test_without_values_the_files_are_the_shipped_ones(tmp_path: Path) -> None:
    made = rendered(tmp_path, "")
    assert made["small.yaml"].startswith(HEAD)
    assert changes(RULES, made["small.yaml"]) == []
    assert changes(THRESHOLDS, made["thresholds.yaml"]) == []


def test_a_threshold_for_all(tmp_path: Path) -> None:
    made = rendered(tmp_path, "thresholds: {heat: 12.5}")
    assert changes(THRESHOLDS, made["thresholds.yaml"]) == [
        "- expr: vector(10)",
        "+ expr: vector(12.5)",
    ]
    assert changes(RULES, made["small.yaml"]) == []


def test_an_alert_keeps_its_comments_and_order(tmp_path: Path) -> None:
    values = (
        "alerts: {Hot: {wait: 0s, keep_firing_for: 90s, labels: {team: a b}}, RackHot: {wait: 1h}}"
    )
    made = rendered(tmp_path, values)
    assert sorted(changes(RULES, made["small.yaml"])) == [
        "+ for: 1h",
        "+ keep_firing_for: 90s",
        "+ labels: {team: a b}",
        "- for: 2m",
    ]


def test_an_alert_is_chosen_by_name_and_severity(tmp_path: Path) -> None:
    values = "alerts: {Hot/critical: {wait: 7m}, Hot: {wait: 8m}, RackHot: {wait: 9m}}"
    made = rendered(tmp_path, values)
    assert changes(RULES, made["small.yaml"]) == ["- for: 2m", "+ for: 7m", "+ for: 9m"]


def test_an_alert_that_is_off_leaves_a_comment(tmp_path: Path) -> None:
    made = rendered(tmp_path, "alerts: {RackHot: {enabled: false}}")
    assert "+ # RackHot is off." in changes(RULES, made["small.yaml"])
    assert "RackHot.md" not in made["small.yaml"]
    assert 'fault="rack_hot"' not in made["small.yaml"]


def test_the_large_profile_makes_tickets_of_nodes_and_pages_of_the_fleet(tmp_path: Path) -> None:
    made = rendered(tmp_path, "profile: large")["small.yaml"]
    hot, space, rack = (
        made.partition(f"- alert: {name}")[2] for name in ("Hot", "SpaceLow", "RackHot")
    )
    assert hot.index("labels: {severity: warning, fault_severity: critical}") < hot.index(
        "SpaceLow"
    )
    assert space.index("severity: warning") < space.index("RackHot")
    assert "fault_severity" not in rack
    assert "severity: critical, scope: node}" in made, "the fault keeps its severity"


EVERYTHING = """
job: agents.v2
runbook_base: https://wiki.example.org/on-call
profile: large
labels: {team: "2"}
thresholds: {heat: 30}
pools: {train: {thresholds: {heat: 15, space_share: 0.01}}}
alerts:
  Hot: {wait: 10m}
  RackHot: {enabled: false}
"""


@pytest.mark.parametrize(
    "values",
    [
        "",
        "job: other",
        "profile: large",
        "alerts: {SpaceLow: {severity: info}}",
        "alerts: {SpaceLow: {severity: critical}}",
        "alerts: {SpaceLow: {enabled: false}}",
        EVERYTHING,
    ],
)
def test_what_is_written_passes_the_rendered_tests(tmp_path: Path, values: str) -> None:
    folder = write_rendered(tmp_path, values)
    for file in sorted(folder.glob("*.yaml")):
        assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))[0] == 0
    status, output = promtool("test", "rules", str(folder / "tests/small.yaml"))
    assert status == 0, output


def test_rendered_tests_can_fail(tmp_path: Path) -> None:
    """They read the rendered rules, and expect the site's labels."""
    folder = write_rendered(tmp_path, "labels: {team: a}")
    rules = folder / "small.yaml"
    rules.write_text(rules.read_text().replace("team: a", "team: b"))
    assert promtool("test", "rules", str(folder / "tests/small.yaml"))[0] != 0


def test_tests_read_a_copy_only_of_files_with_other_numbers(tmp_path: Path) -> None:
    made = rendered(tmp_path, "thresholds: {heat: 30}\nlabels: {team: a}", with_tests=True)
    assert [name for name in made if "defaults" in name] == ["tests/defaults/thresholds.yaml"]
    assert "- defaults/thresholds.yaml\n- ../small.yaml\n" in made["tests/small.yaml"]


def test_the_job_is_the_sites_also_where_none_is_as_good() -> None:
    values = Values(job="agents.v2")
    assert with_names('ALERTS{job=~"|nodevitals"}', values) == 'ALERTS{job=~"|agents[.]v2"}'
    assert with_names(r'"ALERTS{job=~\"|nodevitals\"}"', values) == (
        r'"ALERTS{job=~\"|agents[.]v2\"}"'
    )


def test_names_are_the_sites_everywhere(tmp_path: Path) -> None:
    made = rendered(tmp_path, EVERYTHING, with_tests=True)
    texts = [text.replace(HEAD, "") for name, text in made.items() if name.endswith(".yaml")]
    assert not any('job="nodevitals"' in text or "named nodevitals" in text for text in texts)
    assert not any("github.com" in text for text in texts)
    assert "https://wiki.example.org/on-call/Hot.md" in made["small.yaml"]


def pool_values(expression: str, folder: Path) -> dict[str, float]:
    """The instances and values of an expression, where both pools have the same heat and space."""
    series = [
        {
            "series": f'nodevitals_node_info{{job="nodevitals", instance="{name}", pool="{pool}"}}',
            "values": "1x9",
        }
        for name, pool in (("t1", "train"), ("s1", "serve"))
    ]
    names = ("t1", "s1", "unknown")
    series += [
        {"series": f'heat{{job="nodevitals", instance="{name}"}}', "values": "12x9"}
        for name in names
    ]
    test = {"interval": "1m", "input_series": series}
    look = {"expr": expression, "eval_time": "9m", "exp_samples": []}
    found = {}
    document = {
        "rule_files": [str(folder / "small.yaml"), str(folder / "thresholds.yaml")],
        "evaluation_interval": "1m",
        "tests": [{**test, "promql_expr_test": [look]}],
    }
    file = folder / "pools.json"
    for name in names:
        look["expr"] = f'sum({expression}{{instance="{name}"}})'
        file.write_text(json.dumps(document))
        status, output = promtool("test", "rules", str(file))
        if status:
            found[name] = float(output.rpartition("got: {} ")[2].split()[0])
    return found


def test_a_pools_threshold_holds_for_its_nodes_only(tmp_path: Path) -> None:
    """All have a heat of 12. A node of another pool, and one without node_info, keep 10."""
    folder = write_rendered(tmp_path, "pools: {train: {thresholds: {heat: 15}}}")
    assert pool_values("nodevitals:fault", folder) == {"s1": 12, "unknown": 12}
    folder = write_rendered(
        tmp_path, "thresholds: {heat: 15}\npools: {train: {thresholds: {heat: 11}}}"
    )
    assert pool_values("nodevitals:fault", folder) == {"t1": 12}


def test_only_what_was_rendered_is_overwritten_or_removed(tmp_path: Path) -> None:
    folder = write_rendered(tmp_path, "thresholds: {heat: 30}")
    own = folder / "site.yaml"
    own.write_text("groups: []\n")
    assert (folder / "tests/defaults/thresholds.yaml").exists()
    assert write(folder, rendered(tmp_path, "", with_tests=True)) == 1
    assert not (folder / "tests/defaults/thresholds.yaml").exists()
    assert own.exists()
    (folder / "small.yaml").write_text("groups: []\n")
    with pytest.raises(CommandError, match=r"small\.yaml: was not written by rules render"):
        write(folder, rendered(tmp_path, ""))


def test_sampled_rules_are_a_file_without_findings(tmp_path: Path) -> None:
    sampled = parse((ROOT / "rules/examples/custom.example.yaml").read_bytes())
    made = rendered(tmp_path, "labels: {team: a}", sampled=sampled)
    assert made["custom.yaml"].count("team: a") == len(sampled)
    write(tmp_path / "sampled", {"custom.yaml": made["custom.yaml"]})
    assert check([tmp_path / "sampled"], None) == []
