"""The list of what clusters send to a central Prometheus, and the files that are made from it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from dashboards import central

from testbed.clusters import example
from testbed.dashboards import every, panels
from testbed.node import ROOT
from testbed.promql import name_of, selectors
from testbed.servers import BINARIES

BOARDS = every()
EXAMPLES = ROOT / "helm/nodevitals/examples"
FILES = ("prometheus-leaf.yaml", "prometheus-central.yaml")
CAMEL = {"sourceLabels": "source_labels"}


def read_by(expression: str) -> set[str]:
    """Return the names of the series that an expression reads."""
    return {name_of(one) for one in selectors(expression)}


@pytest.mark.parametrize("name", central.DASHBOARDS)
def test_panels_that_are_not_listed_read_only_what_travels(name: str) -> None:
    travel = set(central.names())
    found = {
        panel["title"]
        for panel in panels(BOARDS[name])
        for target in panel.get("targets", ())
        if not read_by(target["expr"]) <= travel
    }
    assert found == central.ABSENT.get(name, {}).keys() | central.LESS.get(name, {}).keys()


def test_every_series_that_travels_is_read() -> None:
    read: set[str] = set()
    for name in central.DASHBOARDS:
        for panel in panels(BOARDS[name]):
            if panel["title"] not in central.ABSENT.get(name, {}):
                for target in panel.get("targets", ()):
                    read |= read_by(target["expr"])
        for variable in BOARDS[name]["templating"]["list"]:
            if variable["type"] == "query":
                read |= read_by(variable["query"]["query"].partition("(")[2].rpartition(",")[0])
    assert set(central.names()) - read == set()


def values(name: str) -> dict[str, Any]:
    """Return the Prometheus of an example of values for kube-prometheus-stack."""
    read = yaml.safe_load((EXAMPLES / name).read_text())
    return dict(read["prometheus"]["prometheusSpec"])


def test_the_operator_s_prometheus_sends_the_same() -> None:
    [plain] = example("prometheus-leaf.yaml")["remote_write"]
    [own] = values("several-clusters-leaf.yaml")["remoteWrite"]
    relabelings = [
        {CAMEL.get(key, key): value for key, value in one.items()}
        for one in own["writeRelabelConfigs"]
    ]
    assert relabelings == plain["write_relabel_configs"]
    assert own["queueConfig"] == {
        "maxSamplesPerSend": plain["queue_config"]["max_samples_per_send"],
        "capacity": plain["queue_config"]["capacity"],
        "maxShards": plain["queue_config"]["max_shards"],
    }


def test_the_operator_s_prometheus_reads_the_same() -> None:
    [plain] = example("prometheus-central.yaml")["scrape_configs"]
    [own] = values("several-clusters-central.yaml")["additionalScrapeConfigs"]
    for job in (plain, own):
        del job["static_configs"]
        job.pop("scrape_interval", None)
    assert own == plain


def test_both_ways_choose_the_same_names() -> None:
    keep = example("prometheus-leaf.yaml")["remote_write"][0]["write_relabel_configs"][0]
    [job] = example("prometheus-central.yaml")["scrape_configs"]
    assert keep["regex"] == "|".join(central.names())
    assert job["params"]["match[]"] == [f'{{__name__=~"{keep["regex"]}"}}']


def test_the_central_server_has_no_rules_and_notifies_no_one() -> None:
    assert example("prometheus-central.yaml").keys() & {"rule_files", "alerting"} == set()
    read = yaml.safe_load((EXAMPLES / "several-clusters-central.yaml").read_text())
    assert read["alertmanager"] == {"enabled": False}
    assert values("several-clusters-central.yaml")["ruleSelector"]["matchLabels"]


@pytest.mark.parametrize("name", FILES)
def test_prometheus_accepts_the_examples(name: str) -> None:
    checked = subprocess.run(
        [BINARIES / "promtool", "check", "config", ROOT / "exporter/packaging" / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
