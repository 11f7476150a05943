"""Two simulated clusters whose Prometheus servers send to, and are read by, a central one.

In: the shipped example files of a cluster's Prometheus and of the central one, with other
addresses. Out: servers that run, and the past of a cluster as the central server would have it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

from testbed.node import ROOT
from testbed.servers import PrometheusProcess
from testbed.site import Site, series_of_fleet
from testbed.site.series import Series
from testbed.site.server import write

Samples = dict[frozenset[tuple[str, str]], dict[float, str]]

PACKAGING = ROOT / "exporter/packaging"
# Clusters have nodes of the same names; together they have most kinds of faults.
NODES = {
    "east": ("gpu-00", "gpu-01", "gpu-02", "gpu-04", "gpu-06", "gpu-08", "npu-01", "npu-03"),
    "west": ("gpu-00", "gpu-01", "gpu-02", "gpu-09", "npu-01"),
}
_OWN = ("uuid", "UUID", "vdie_id", "mig_uuid", "owner", "label_owner")
REPLICA = {"prometheus": "monitoring/k8s", "prometheus_replica": "prometheus-k8s-0"}
STEP, PAST_SECONDS = 60, 2700


def example(name: str) -> dict[str, Any]:
    """Return an example file of the packaging."""
    return dict(yaml.safe_load((PACKAGING / name).read_text()))


class Central(PrometheusProcess):
    """A central Prometheus with the example file: by remote write, or by federation of servers."""

    prefix = ("nice",)
    flags = ("--web.enable-remote-write-receiver",)

    def __init__(self, folder: Path, name: str, federated: list[str] | None = None) -> None:
        super().__init__(folder, name)
        config = example("prometheus-central.yaml")
        [job] = config["scrape_configs"]
        job["static_configs"] = [{"targets": federated or []}]
        job["scrape_interval"] = "3s"
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def ask(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the result of a query."""
        return ask(self.url, query, at)


def ask(url: str, query: str, at: float | None = None) -> list[dict[str, Any]]:
    """Return the result of a query, at a time or now."""
    sent = {"query": query} | ({} if at is None else {"time": f"{at}"})
    answer = requests.post(f"{url}/api/v1/query", data=sent, timeout=60).json()
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


def series_of(name: str, now: float) -> list[Series]:
    """Return the series of a cluster. West has no faults, and devices and owners of its own; its
    nodes and pods have the names of those of east.
    """
    made = series_of_fleet(now, faults=name == "east", only=NODES[name])
    for one in made:
        one.labels = {**one.labels, "cluster": name}
        if name == "west":
            own = {label: f"west-{one.labels[label]}" for label in _OWN if label in one.labels}
            one.labels |= own
    return made


def leaf(folder: Path, name: str, now: float, central: str) -> Site:
    """Return a cluster whose Prometheus sends to the central one as the example file says; it is
    one of a pair, whose series have no label `cluster` of their own.
    """
    also = example("prometheus-leaf.yaml")
    also["global"]["external_labels"] = {"cluster": name, **REPLICA}
    also["remote_write"][0]["url"] = f"{central}/api/v1/write"
    return _site(folder / name, now, series_of(name, now), cluster=False, also=also)


def one_server(folder: Path, now: float) -> Site:
    """Return a Prometheus that scrapes both clusters."""
    return _site(folder / "both", now, series_of("east", now) + series_of("west", now))


def _site(folder: Path, now: float, series: list[Series], **more: Any) -> Site:
    rules = ROOT / "rules"
    return Site(folder, rules, step=STEP, past_seconds=PAST_SECONDS, now=now, series=series, **more)


def send_past(site: Site, name: str, central: Central) -> None:
    """Write to the central server what the cluster would have sent: the past was filled at once,
    and remote write sends only what is new.
    """
    until = site.prometheus.filled_until
    own = samples_of(site.url, until - PAST_SECONDS - 300, until, '{__name__!=""}')
    found: dict[str, list[Series]] = {}
    moments: dict[str, set[float]] = {}
    for labels, values in travelling(name, own).items():
        left = dict(labels)
        series, numbers = left.pop("__name__"), {at: float(text) for at, text in values.items()}
        found.setdefault(series, []).append(Series(series, left, numbers.get))
        moments.setdefault(series, set()).update(numbers)
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


def travelling(name: str, samples: Samples) -> Samples:
    """Return what of a cluster's samples the example file lets travel, as it arrives."""
    relabelings = example("prometheus-leaf.yaml")["remote_write"][0]["write_relabel_configs"]
    found = {}
    for labels, values in samples.items():
        kept = relabeled(dict(labels) | {"cluster": name, **REPLICA}, relabelings)
        if kept:
            found[frozenset(kept.items())] = values
    return found


def samples_of(url: str, start: float, end: float, selector: str) -> Samples:
    """Return the samples between two times, by series."""
    every = ask(url, f"{selector}[{max(1, round(end - start))}s]", end)
    return {frozenset(one["metric"].items()): dict(one["values"]) for one in every}


def latest(url: str, selector: str, moment: float) -> Samples:
    """Return the sample of each series that a query at a time finds."""
    found = ask(url, selector, moment)
    return {frozenset(one["metric"].items()): {moment: one["value"][1]} for one in found}


class Clusters(NamedTuple):
    """Two clusters, and the central servers that have their series."""

    leaves: dict[str, Site]
    written: Central
    federated: Central
    started: float
    now: float
    """The time of the last samples of the past."""

    def sent(self, start: float, end: float) -> Samples:
        """Return the samples of the clusters between two times that travel, as they arrive."""
        found: Samples = {}
        for name, site in self.leaves.items():
            found |= travelling(name, samples_of(site.url, start, end, '{__name__!=""}'))
        return found

    def latest(self, moment: float) -> Samples:
        """Return the last sample of each series at a time that travels, as it arrives."""
        found: Samples = {}
        for name, site in self.leaves.items():
            found |= travelling(name, latest(site.url, '{__name__!=""}', moment))
        return found

    def evaluations(self, start: float) -> dict[str, int]:
        """Return how often each cluster has evaluated its alerts since a time."""
        found = {}
        for name, site in self.leaves.items():
            watchdog = samples_of(site.url, start, time.time(), 'ALERTS{alertname="Watchdog"}')
            for values in watchdog.values():
                found[name] = len(values)
        return found
