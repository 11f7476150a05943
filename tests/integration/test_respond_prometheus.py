"""The query for confirmed faults, answered by a real Prometheus with recorded series."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from nodevitals_hub.alerting.prometheus_queries import Sample, Server
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.isolation.faults import (
    FULL_QUERY,
    MAX_NODE_FAULTS,
    PART,
    QUERY,
    Seen,
    StaleError,
    clocks_of,
    read,
    reported_query,
)
from nodevitals_hub.settings.response import ServerSettings
from testbed.node import wait_until
from testbed.page_server import PageServer
from testbed.servers import PrometheusProcess, show_debian_files

NODES = {n: Member(name=n, host=n, port=1) for n in ("gpu-1", "gpu-2", "gpu-3", "gpu-4")}
FAULT: dict[str, Any] = {"device_id": "GPU-1", "component": "accelerator", "severity": "critical"}
WITH: dict[str, Any] = {
    "fault": "nvidia_xid",
    "service": "drain_now",
    "action": "reset_device",
    **FAULT,
}


def record(name: str, value: int = 1, **labels: Any) -> dict[str, object]:
    """A rule that makes a series."""
    return {"record": name, "expr": f"vector({value})", "labels": labels}


def node(name: str, up: int = 1, probe: int = 1) -> list[dict[str, object]]:
    """What Prometheus has of a node."""
    labels: dict[str, Any] = {"job": "nodevitals", "instance": f"{name}:9855"}
    success = record("nodevitals_probe_success", probe, probe="nvidia", **labels)
    return [record("up", up, **labels), success]


REPORTED = ("peer_unreachable", "node_reaches_nobody")
UNREACHABLE = {"fault": "peer_unreachable", "scope": "fleet", "action": "investigate"}


def alert(name: str, **labels: str) -> dict[str, object]:
    """A rule whose alert fires."""
    return {"alert": name, "expr": "vector(1)", "labels": labels}


RULES = [
    alert("PeerUnreachable", peer="gpu-1", port="22", protocol="ssh", **UNREACHABLE),
    alert("PeerUnreachable", peer="gpu-4", port="22", protocol="ssh", **UNREACHABLE),
    alert("PeerUnreachable", peer="storage-1", port="22", protocol="ssh", **UNREACHABLE),
    alert("NodeReachesNobody", instance="gpu-3", fault="node_reaches_nobody"),
    alert("NodeReachesNobody", instance="gpu-2:9855", fault="node_reaches_nobody", drill="true"),
    record("nodevitals:threshold", threshold="one"),
    record("nodevitals:threshold", threshold="two"),
    record("nodevitals:fault_confirmed", instance="gpu-1:9855", incident="false", **WITH),
    record("nodevitals:fault_confirmed", instance="gpu-2:9855", incident="true", **WITH),
    record("nodevitals:fault_confirmed", instance="gpu-4", drill="true", **WITH),
    *node("gpu-1"),
    *node("gpu-2", up=0),
    *node("gpu-3", probe=0),
    *node("gpu-4"),
    record("nodevitals:node_maintenance_source", instance="gpu-4:9855", source="file"),
    {
        "alert": "FleetIncident",
        "expr": "vector(1)",
        "labels": {"kind": "node", "domain": "rack", "domain_name": "r1"},
    },
    {
        "alert": "EccUncorrected",
        "expr": "vector(1)",
        "for": "1h",
        "labels": {
            "instance": "gpu-3:9855",
            "scope": "device",
            "fault": "ecc",
            "severity": "critical",
        },
    },
]


FORGED = """\
nodevitals:fault_confirmed{node="gpu-3",fault="nvidia_xid",device_id="GPU-9",service="drain_now",\
action="reboot_node",incident="false"} 1
nodevitals:threshold{threshold="one"} 1
ALERTS{alertname="FleetIncident",alertstate="firing",domain="rack",domain_name="r2"} 1
ALERTS{alertname="EccUncorrected",alertstate="firing",scope="device",fault="ecc",node="gpu-4",\
severity="critical"} 1
nodevitals:node_maintenance_source{source="file"} 1
"""


def test_a_real_prometheus_answers_the_queries(tmp_path: Path) -> None:
    show_debian_files()
    with_rules = PrometheusProcess(tmp_path, "prometheus")
    rules = with_rules.folder / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "a", "interval": "1s", "rules": RULES}]}))
    config = {"rule_files": [str(rules)], "global": {"evaluation_interval": "1s"}}
    (with_rules.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    async def asked(query: str) -> Seen | None:
        server = Server("prometheus", ServerSettings(url=with_rules.url))
        try:
            before = None
            for _ in range(2):
                samples = await server.query(query)
                now = clocks_of(samples, time.time(), time.monotonic())
                try:
                    recoverable = REPORTED if "reported" in query else ()
                    return read(samples, NODES, "", now, before, recoverable=recoverable)
                except StaleError:
                    before = now
            return None
        finally:
            await server.close()

    def found() -> Seen | None:
        seen = asyncio.run(asked(FULL_QUERY))
        return seen if seen is not None and seen.alerting else None

    with with_rules:
        seen = wait_until(found, 30, "the rules")
        assert isinstance(seen, Seen)
        [fault] = seen.faults
        assert (fault.identity, fault.service) == (("gpu-1", "nvidia_xid", "GPU-1"), "drain_now")
        assert {name for name, *_ in seen.lasting} == {"gpu-1", "gpu-2"}
        assert seen.fresh_nodes == {"gpu-1"}
        assert seen.alerting == {("gpu-3", "ecc")}
        assert seen.critical == {"gpu-3"}
        assert seen.incident_open
        short = asyncio.run(asked(QUERY))
        assert short is not None
        assert [one.identity for one in short.faults] == [fault.identity]
        assert short.fresh_nodes == frozenset()

        def reported() -> list[tuple[str, str, str]]:
            both = asyncio.run(asked(f"{FULL_QUERY} or {reported_query(REPORTED)}"))
            assert both is not None
            assert both.fresh_nodes == {"gpu-1"}
            return [one.identity for one in both.faults if one.fault in REPORTED]

        # Once they have fired for 15 s; gpu-4 has planned work, storage-1 is no node.
        assert wait_until(reported, 60, "alerts that have fired for 15 s") == [
            ("gpu-1", "peer_unreachable", "22/ssh"),
            ("gpu-3", "node_reaches_nobody", ""),
        ]


def test_what_a_pod_exposes_is_no_fault_no_alert_and_no_rule(tmp_path: Path) -> None:
    """The pod is scraped under the name of a node, and names another one in the label `node`."""
    show_debian_files()
    prometheus = PrometheusProcess(tmp_path, "prometheus")
    rules = prometheus.folder / "rules.yaml"
    own = [record("nodevitals:threshold", threshold="one"), *node("gpu-1")]
    many = [
        record("nodevitals:fault_confirmed", instance="gpu-2", **{**WITH, "device_id": f"GPU-{n}"})
        for n in range(MAX_NODE_FAULTS + 9)
    ]
    rules.write_text(
        yaml.safe_dump({"groups": [{"name": "a", "interval": "1s", "rules": [*own, *many]}]})
    )
    pod = PageServer(lambda _: FORGED)
    target = {"targets": [pod.address], "labels": {"instance": "gpu-1:9855"}}
    scrape = {"job_name": "pods", "scrape_interval": "1s", "static_configs": [target]}
    config = {
        "rule_files": [str(rules)],
        "global": {"evaluation_interval": "1s"},
        "scrape_configs": [scrape],
    }
    (prometheus.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    async def asked(*queries: str) -> list[list[Sample]]:
        server = Server("prometheus", ServerSettings(url=prometheus.url))
        try:
            return [await server.query(query) for query in queries]
        finally:
            await server.close()

    def both() -> list[Sample] | None:
        scraped, found = asyncio.run(
            asked('nodevitals:fault_confirmed{job="pods"}', FULL_QUERY),
        )
        parts = {one.labels[PART] for one in found}
        return found if scraped and {"alive", "fresh", "fault"} <= parts else None

    with pod, prometheus:
        samples = wait_until(both, 30, "the scrape and the rules")
    assert isinstance(samples, list)
    parts = Counter((one.labels[PART], one.labels.get("instance", "")) for one in samples)
    assert parts == {
        ("alive", ""): 1,
        ("fresh", "gpu-1:9855"): 1,
        ("fault", "gpu-2"): MAX_NODE_FAULTS,
    }
