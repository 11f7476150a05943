"""Ten faults alert where the Prometheus operator makes the scrape configuration.

The chart's PodMonitor and ServiceMonitor as `testbed.prometheusoperator` turns them into jobs of a
real Prometheus, over a simulated fleet, and the shipped rules with shorter waits.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import charts, prometheusoperator
from testbed.clusters import ask
from testbed.longforms import long_forms
from testbed.node import wait_until
from testbed.nodepages import NodePages
from testbed.servers import PrometheusProcess
from testbed.site import series_of_fleet
from testbed.waits import write_shortened_rules

FAULTS = {
    ("AcceleratorLost", "gpu-01"),
    ("RowRemapPending", "gpu-02"),
    ("NvlinkDown", "gpu-04"),
    ("RdmaPortDown", "gpu-06"),
    ("RdmaPortRateDegraded", "gpu-07"),
    ("MountHung", "gpu-08"),
    ("MountMissing", "gpu-09"),
    ("ClockUnsynchronized", "gpu-11"),
    ("NpuLinkDown", "npu-01"),
    ("NodeDown", "npu-03"),
}
NODES = sorted({node for _, node in FAULTS})
# The namespace and name are not those that make the operator's own job label right by chance.
RELEASE, NAMESPACE = "gpu", "monitoring"
# Whose job is on the lost GPU, and on which device of the node.
IMPACT = {"namespace": "llm", "pod": "pretrain-worker-1", "owner": "alice", "device": "3"}
by_kind = pytest.mark.parametrize(
    "kind", long_forms("pipeline", ["PodMonitor", "ServiceMonitor"], {"PodMonitor"})
)


class OperatorPrometheus(PrometheusProcess):
    """A Prometheus of the operator: the jobs of one monitor, scraped every second."""

    prefix = ("nice",)

    def __init__(self, folder: Path, jobs: list[dict[str, Any]]) -> None:
        super().__init__(folder, "prometheus")
        write_shortened_rules(self.folder / "rules", 15, 60, 3)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{self.folder}/rules/*.yaml"],
            "scrape_configs": [
                job | {"scrape_interval": "1s", "scrape_timeout": "1s"} for job in jobs
            ],
        }
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def firing(self, names: set[str]) -> list[dict[str, str]]:
        """Return the labels of firing alerts."""
        chosen = f'ALERTS{{alertstate="firing", alertname=~"{"|".join(sorted(names))}"}}'
        return [one["metric"] for one in ask(self.url, chosen)]


@pytest.fixture(scope="module")
def pages() -> Iterator[NodePages]:
    """The agents of nodes with faults."""
    with NodePages(series_of_fleet(time.time(), only=NODES), NODES) as running:
        yield running


def rendered(kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the chart's monitor, to be changed, and all of its objects."""
    values = {"monitor": {"kind": kind, "labels": {"release": "kube-prometheus-stack"}}}
    objects = charts.render(values, RELEASE, NAMESPACE)
    [monitor] = charts.of_kind(objects, kind)
    return copy.deepcopy(monitor), objects


def endpoint(monitor: dict[str, Any]) -> dict[str, Any]:
    """Return the first endpoint of a monitor."""
    spec = monitor["spec"]
    found: dict[str, Any] = (spec.get("podMetricsEndpoints") or spec["endpoints"])[0]
    return found


def prometheus(
    folder: Path, pages: NodePages, monitor: dict[str, Any], objects: list[dict[str, Any]]
) -> OperatorPrometheus:
    """Return a Prometheus with the jobs that the operator makes of a monitor."""
    found = prometheusoperator.targets(objects, pages.addresses)
    return OperatorPrometheus(folder, prometheusoperator.scrape_configs(monitor, found))


def all_alert(server: OperatorPrometheus) -> bool:
    """Return whether the ten faults and the impact on a job alert, by the node's name."""
    firing = server.firing({name for name, _ in FAULTS})
    found = {(one["alertname"], one["instance"]) for one in firing if one["job"] == "nodevitals"}
    impact = server.firing({"JobOwnerImpact"})
    return found >= FAULTS and any(IMPACT.items() <= one.items() for one in impact)


@by_kind
def test_ten_faults_alert_with_the_chart_s_monitor(
    tmp_path: Path, pages: NodePages, kind: str
) -> None:
    monitor, objects = rendered(kind)
    # As kube-prometheus-stack's own monitors have it.
    monitor["spec"]["jobLabel"] = "app.kubernetes.io/name"
    with prometheus(tmp_path, pages, monitor, objects) as server:
        wait_until(lambda: all_alert(server), 60)
        scraped = [one["metric"] for one in ask(server.url, "up")]
    own = [{key: text for key, text in one.items() if key != "__name__"} for one in scraped]
    assert sorted(own, key=str) == [{"instance": node, "job": "nodevitals"} for node in NODES]


@pytest.mark.proof("pipeline")
def test_pods_are_joined_with_the_labels_of_the_target(tmp_path: Path, pages: NodePages) -> None:
    """The operator's labels `namespace` and `pod` are the agent's, and rename those of jobs."""
    monitor, objects = rendered("ServiceMonitor")
    relabelings = endpoint(monitor)["relabelings"]
    kept = [one for one in relabelings if one["action"] != "labeldrop"]
    assert kept != relabelings
    endpoint(monitor)["relabelings"] = kept
    with prometheus(tmp_path, pages, monitor, objects) as server:
        wait_until(lambda: all_alert(server), 60)
        renamed = ask(server.url, 'nodevitals_pod_accelerator_info{exported_pod!=""}')
        owners = ask(server.url, f'nodevitals:job_device{{namespace="{NAMESPACE}"}}')
    assert renamed
    assert owners == []


@pytest.mark.proof("pipeline")
@by_kind
def test_without_the_chart_s_relabelings_no_fault_alerts(
    tmp_path: Path, pages: NodePages, kind: str
) -> None:
    """The job is then the operator's: the agents are absent for the rules, and that alerts."""
    monitor, objects = rendered(kind)
    del endpoint(monitor)["relabelings"]
    with prometheus(tmp_path, pages, monitor, objects) as server:
        # More scrapes and evaluations than the ten alerts need.
        wait_until(lambda: len(ask(server.url, "count_over_time(up[1m]) > 14")) == len(NODES), 60)
        assert server.firing({"ExporterAbsent"})
        jobs = {one["metric"]["job"] for one in ask(server.url, "up")}
        firing = server.firing({name for name, _ in FAULTS})
    own = {
        "PodMonitor": f"{NAMESPACE}/{RELEASE}-nodevitals",
        "ServiceMonitor": f"{RELEASE}-nodevitals",
    }
    assert jobs == {own[kind]}
    assert firing == []
