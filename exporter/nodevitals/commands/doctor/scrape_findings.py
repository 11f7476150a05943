"""The findings about the scrape of this node: is it scraped once, lately, and by the right job?

The agent's start time, exact to the microsecond, identifies it in Prometheus for any values of
`instance` and `job`. Where the agent is not scraped, the target's address identifies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

from nodevitals.commands.doctor.findings import (
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    ago,
    listed,
    printable,
)
from nodevitals.commands.doctor.servers import Sample, Target
from nodevitals.commands.rules.expression import prometheus_seconds

# Agents and their start times. `and` excludes other processes of the node, and agents not scraped
# in the last two minutes, the longest interval that Prometheus' lookback allows.
AGENTS_QUERY = (
    "process_start_time_seconds and on (job, instance)"
    " (time() - timestamp(nodevitals_build_info) < 120)"
)
MISSED_SCRAPES = 3
_DEFAULT_SECONDS = 60.0
_OPERATOR_POOLS = ("podMonitor/", "serviceMonitor/", "scrapeConfig/")


class Node(NamedTuple):
    """The node as Prometheus may know it: the agent's start time (None: no agent), the names and
    addresses of the node, the agent's port.
    """

    started: Optional[float]
    names: Collection[str]
    port: int


class Scrape(NamedTuple):
    """The outcome: the findings, and the values of `instance` that this node has."""

    findings: list[Finding]
    instances: frozenset[str]


def scrape_findings(
    targets: Sequence[Target], agents: Iterable[Sample], node: Node, job: str, now: float
) -> Scrape:
    """Whether and how Prometheus scrapes this node; `now` is Prometheus' time."""
    pairs = {
        (agent.metric.get("job", ""), agent.metric.get("instance", ""))
        for agent in agents
        if node.started is not None and abs(agent.number - node.started) < 0.005
    }
    own = [target for target in targets if _pair(target) in pairs]
    by_address = [target for target in targets if _is_at(target, node, job)]
    scraped = own or by_address
    instances = frozenset(target.labels.get("instance", "") for target in scraped) or frozenset(
        instance for _, instance in pairs
    )
    if not scraped:
        return Scrape([_not_scraped(targets, bool(pairs), job)], instances)
    named = [target for target in scraped if target.labels.get("job") == job]
    if not named:
        return Scrape([_wrong_job(scraped[0], job)], instances)
    findings = list(_states(named, node, now, identified=bool(own)))
    if len(named) > 1:
        urls = sorted(printable(target.scrapeUrl, 80) for target in named)
        text = f"{len(named)} targets of job {job} are this node: {listed(urls)}"
        remedy = "leave one of them: each alert of this node doubles, and rules fail"
        findings.append(Finding("scrape", PROBLEM, text, remedy))
    return Scrape(findings, instances)


def _pair(target: Target) -> tuple[str, str]:
    return target.labels.get("job", ""), target.labels.get("instance", "")


def _address(target: Target) -> tuple[str, int]:
    try:
        parts = urlsplit(target.scrapeUrl)
        return parts.hostname or "", parts.port or 0
    except ValueError:
        return "", 0


def _is_at(target: Target, node: Node, job: str) -> bool:
    """Whether a target is at this node and may be its agent: it has the job or the port."""
    host, port = _address(target)
    instance = target.labels.get("instance", "")
    names = {host, instance, instance.rpartition(":")[0]}
    is_agent = target.labels.get("job") == job or port == node.port
    return is_agent and not names.isdisjoint(node.names)


def _not_scraped(targets: Sequence[Target], seen: bool, job: str) -> Finding:
    of_job = [target for target in targets if target.labels.get("job") == job]
    if seen:
        text = "Prometheus has this agent's samples, but from no target of its own"
        return Finding("scrape", UNKNOWN, text, "ask the Prometheus that scrapes: --prometheus URL")
    if of_job:
        text = f"job {job} has {len(of_job)} targets, and none is this node"
        remedy = "add it: HOST:9855 in targets/nodevitals.yml, or check service discovery"
        return Finding("scrape", PROBLEM, text, remedy)
    text = f"Prometheus has no target of job {job}: no alert on any node can fire"
    if any(target.scrapePool.startswith(_OPERATOR_POOLS) for target in targets):
        remedy = (
            "give the PodMonitor the label that Prometheus selects, in kube-prometheus-stack its"
            " release: helm upgrade … --set monitor.kind=PodMonitor,monitor.labels.release=RELEASE"
        )
    else:
        remedy = "add the scrape job, and reload: nodevitals init DIR writes prometheus.yml"
    return Finding("scrape", PROBLEM, text, remedy)


def _wrong_job(target: Target, job: str) -> Finding:
    actual = printable(target.labels.get("job", ""), 60)
    text = f"{printable(target.scrapeUrl, 100)} is scraped as job {actual}; rules read job {job}"
    remedy = f"name the job {job}, or render the rules for it: nodevitals rules render"
    return Finding("scrape", PROBLEM, text, remedy)


def _states(
    targets: Iterable[Target], node: Node, now: float, *, identified: bool
) -> Iterator[Finding]:
    for target in targets:
        url, age = printable(target.scrapeUrl, 100), now - target.lastScrape.timestamp()
        interval = _seconds(target.scrapeInterval)
        other_port = _address(target)[1] != node.port
        listens = f"; the agent listens on port {node.port}" if node.started is not None else ""
        if target.health == "unknown":
            text = f"{url} was not scraped yet"
            yield Finding("scrape", UNKNOWN, text, f"wait for one interval: {interval:g} s")
        elif target.health != "up":
            text = f"{url} is down: {target.lastError}" + listens * other_port
            remedy = f"from the server of Prometheus: curl -v {url}"
            if other_port and listens:
                remedy = f"correct the port of the target: {node.port}"
            yield Finding("scrape", PROBLEM, printable(text), remedy)
        elif other_port and not identified and node.started is not None:
            text = f"{url} answers, and is not this agent{listens}"
            yield Finding("scrape", PROBLEM, text, f"correct the port of the target: {node.port}")
        elif age > MISSED_SCRAPES * interval:
            text = f"{url} was last scraped {ago(age)} ago, with an interval of {interval:g} s"
            yield Finding("scrape", PROBLEM, text, "check the load and the disk of Prometheus")
        else:
            instance = printable(target.labels.get("instance", ""), 80)
            text = f"{url} as instance {instance}, {ago(age)} ago"
            yield Finding("scrape", OK, text)


def _seconds(interval: str) -> float:
    try:
        return prometheus_seconds(interval)
    except ValueError:
        return _DEFAULT_SECONDS
