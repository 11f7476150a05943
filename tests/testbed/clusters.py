"""Two simulated clusters whose Prometheus servers send to, and are read by, a central one.

In: the shipped example files of a cluster's Prometheus and of the central one, with other
addresses. Out: servers that run, and the past of a cluster as the central server would have it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

from testbed.node import ROOT
from testbed.servers import BINARIES, ServerProcess
from testbed.site import Site
from testbed.site.series import Series
from testbed.site.server import write

PACKAGING = ROOT / "exporter/packaging"
# Clusters have nodes of the same names; together they have most kinds of faults.
EAST = ("gpu-00", "gpu-01", "gpu-02", "gpu-04", "gpu-06", "gpu-08", "npu-01", "npu-03")
WEST = ("gpu-00", "gpu-01", "gpu-02", "gpu-09", "npu-01")
REPLICA = {"prometheus": "monitoring/k8s", "prometheus_replica": "prometheus-k8s-0"}
STEP, PAST_SECONDS = 60, 2700


def example(name: str) -> dict[str, Any]:
    """Return an example file of the packaging."""
    return dict(yaml.safe_load((PACKAGING / name).read_text()))


class Central(ServerProcess):
    """A central Prometheus with the example file: by remote write, or by federation of servers."""

    def __init__(self, folder: Path, name: str, federated: list[str] | None = None) -> None:
        super().__init__(folder, name)
        config = example("prometheus-central.yaml")
        [job] = config["scrape_configs"]
        job["static_configs"] = [{"targets": federated or []}]
        job["scrape_interval"] = "3s"
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def argv(self) -> list[str]:
        """Return the command line."""
        return [
            *("nice", str(BINARIES / "prometheus")),
            f"--config.file={self.folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
        ]

    def ask(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the result of a query."""
        return ask(self.url, query, at)


def ask(url: str, query: str, at: float | None = None) -> list[dict[str, Any]]:
    """Return the result of a query, at a time or now."""
    sent = {"query": query} | ({} if at is None else {"time": f"{at}"})
    answer = requests.post(f"{url}/api/v1/query", data=sent, timeout=60).json()
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


def leaf(folder: Path, name: str, central: str, *, faults: bool, nodes: tuple[str, ...]) -> Site:
    """Return a cluster whose Prometheus sends to the central one as the example file says; it is
    one of a pair, whose series have no label `cluster` of their own.
    """
    also = example("prometheus-leaf.yaml")
    also["global"]["external_labels"] = {"cluster": name, **REPLICA}
    also["remote_write"][0]["url"] = f"{central}/api/v1/write"
    return Site(
        folder, ROOT / "rules", step=STEP, past_seconds=PAST_SECONDS,
        only=nodes, faults=faults, cluster=False, also=also,
    )  # fmt: skip


def send_past(site: Site, name: str, central: Central) -> None:
    """Write to the central server what the cluster would have sent: the past was filled at once,
    and remote write sends only what is new.
    """
    relabelings = example("prometheus-leaf.yaml")["remote_write"][0]["write_relabel_configs"]
    every = '{__name__!=""}' + f"[{PAST_SECONDS + 300}s]"
    found: dict[str, list[Series]] = {}
    moments: dict[str, set[float]] = {}
    for one in ask(site.url, every, site.prometheus.filled_until):
        labels = relabeled(one["metric"] | {"cluster": name, **REPLICA}, relabelings)
        if labels:
            series = labels.pop("__name__")
            values = {float(moment): float(value) for moment, value in one["values"]}
            found.setdefault(series, []).append(Series(series, labels, values.get))
            moments.setdefault(series, set()).update(values)
    for series, same_name in found.items():
        # With the markers of series that end, which no query returns.
        write(central.url, same_name, sorted(moments[series]))


def relabeled(labels: dict[str, str], relabelings: list[dict[str, Any]]) -> dict[str, str]:
    """Return labels after the actions keep, drop and labeldrop; none where they are dropped."""
    for one in relabelings:
        pattern = re.compile(one["regex"])
        if one["action"] == "labeldrop":
            labels = {name: text for name, text in labels.items() if not pattern.fullmatch(name)}
            continue
        joined = ";".join(labels.get(name, "") for name in one["source_labels"])
        if bool(pattern.fullmatch(joined)) != (one["action"] == "keep"):
            return {}
    return labels


class Clusters(NamedTuple):
    """Two clusters, and the central servers that have their series."""

    leaves: dict[str, Site]
    written: Central
    federated: Central
    now: float
    """The time of the last samples of the past."""
