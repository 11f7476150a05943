"""`nodevitals rules render` on the shipped rules: Prometheus takes what it writes.

All tests of the pack on the rendered rules: `make proof PART=rendered`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.node import ROOT, run
from testbed.pack import promtool
from testbed.sitevalues import VALUES

# The quickest one.
TESTS = ("job",)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped rules with the values of a site."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "values.yaml").write_text(VALUES)
    arguments = ("--values", str(folder / "values.yaml"), "--output", str(folder / "rules"))
    done = run("rules", "render", *arguments, "--with-tests")
    assert done.returncode == 0, done.stderr
    return folder / "rules"


def rules_of(folder: Path) -> list[dict[str, Any]]:
    documents = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]
    return [rule for one in documents for group in one["groups"] for rule in group["rules"] or ()]


def test_every_file_is_valid(site: Path) -> None:
    files = [str(file) for file in sorted(site.glob("*.yaml"))]
    status, output = promtool("check", "rules", "--lint=all", "--lint-fatal", *files)
    assert status == 0, output


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_pass_as_they_are_rendered(site: Path, name: str) -> None:
    status, output = promtool("test", "rules", str(site / f"tests/{name}.yaml"))
    assert status == 0, output


def findings(folder: Path, job: str) -> set[tuple[str, str, str]]:
    """Return id, rule and message of each finding; promtool runs in other tests."""
    flags = ("--strict", "--promtool", "/bin/true", "--json")
    done = run("rules", "check", str(folder), "--job", job, *flags)
    return {(one["id"], one["rule"], one["message"]) for one in json.loads(done.stdout)}


def test_rendering_adds_no_finding(site: Path) -> None:
    shipped = findings(ROOT / "rules", "nodevitals")
    rendered = findings(site, "agents.v2")
    # A shared file system is of no pool: its comparison with a pool's value has no result.
    shared = {one for one in rendered if "filesystem_free:ratio has no label instance" in one[2]}
    assert rendered - shared <= shipped
    other_job = findings(site, "nodevitals") - shipped - shared
    assert len(other_job) > 50
    assert {name for name, _, _ in other_job} == {"label/job"}


def test_single_nodes_make_tickets_and_the_fleet_makes_pages(site: Path) -> None:
    alerts = [rule for rule in rules_of(site) if "alert" in rule]
    assert {rule["labels"]["team"] for rule in alerts} == {"ai-platform"}
    by_name = {rule["alert"]: rule for rule in alerts}
    assert by_name["NvidiaXid"]["labels"]["severity"] == "warning"
    assert by_name["NvidiaXid"]["labels"]["fault_severity"] == "critical"
    assert any(rule["labels"].get("severity") == "critical" for rule in alerts)
    assert "OomKill" not in by_name
    assert by_name["PcieDegraded"]["labels"]["board"] == "hardware"
    assert by_name["NodeMemoryHigh"]["for"] == "30m"
    assert all(rule["annotations"]["runbook_url"].startswith("https://wiki") for rule in alerts)


def test_the_threshold_of_a_pool_holds_for_its_nodes_only(site: Path) -> None:
    """Three nodes at 95 %: over the shipped 0.9, under the 0.97 of the pool `serve`."""
    job = 'job="agents.v2", cluster="c"'
    pools = {"s1": "serve", "t1": "train"}
    series = [
        {
            "series": f'nodevitals_node_info{{{job}, instance="{name}", pool="{pool}"}}',
            "values": "1x40",
        }
        for name, pool in pools.items()
    ]
    series += [
        {
            "series": f'nodevitals_node_cpu_utilization_ratio{{{job}, instance="{name}"}}',
            "values": "0.95x40",
        }
        for name in (*pools, "without-info")
    ]
    expected = [{"labels": f'{{instance="{name}"}}', "value": 1} for name in ("t1", "without-info")]
    look = {
        "expr": 'group by (instance) (nodevitals:fault{fault="cpu_high"})',
        "eval_time": "30m",
        "exp_samples": expected,
    }
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [look]}
    files = [str(file) for file in sorted(site.glob("*.yaml"))]
    document = {"rule_files": files, "evaluation_interval": "1m", "tests": [test]}
    file = site.parent / "pools.json"
    file.write_text(json.dumps(document))
    status, output = promtool("test", "rules", str(file))
    assert status == 0, output


def test_errors_are_printed_with_file_and_line(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("profile: large\nalerts:\n  NodeCpuHihg: {wait: 5m}\n")
    arguments = ("--values", str(values), "--output", str(tmp_path / "out"))
    done = run("rules", "render", *arguments)
    assert done.returncode == 1
    assert f"{values}:3:3: alerts.NodeCpuHihg: no alert of the rules has this name" in done.stderr
    assert "did you mean NodeCpuHigh" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_command_line_is_one_of_three(tmp_path: Path) -> None:
    example = run("rules", "render", "--example")
    assert example.stdout == (ROOT / "rules/examples/values.example.yaml").read_text()
    sampled = str(ROOT / "rules/examples/custom.example.yaml")
    assert run("rules", "render", sampled, "--output", str(tmp_path / "out")).returncode == 0
    custom = yaml.safe_load((tmp_path / "out/custom.yaml").read_text())
    assert custom == yaml.safe_load(run("rules", "render", sampled).stdout)
    for arguments in ((), ("--values", "v"), (sampled, "--with-tests")):
        done = run("rules", "render", *arguments)
        assert done.returncode == 2
        assert "name an --output FOLDER" in done.stderr
