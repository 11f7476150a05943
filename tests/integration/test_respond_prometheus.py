"""The query for confirmed faults, answered by a real Prometheus with recorded series."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import yaml

from nodevitals.hub.checks import Member
from nodevitals.hub.respond.asking import Server
from nodevitals.hub.respond.faults import FULL_QUERY, QUERY, Seen, StaleError, clocks_of, read
from nodevitals.hub.respond.settings import ServerSettings
from testbed.node import wait_until
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


RULES = [
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
                    return read(samples, NODES, "", now, before)
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
