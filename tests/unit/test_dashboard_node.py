"""The node dashboard: one node is chosen; its counts say what is missing and what is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dashboards import node
from dashboards.language import Say

from testbed.panelqueries import evaluate, labelled

NOTHING = "\N{EN DASH}"
BOARD: dict[str, Any] = json.loads(node.board(Say("en")).json())
TARGETS = [
    (panel["title"], target["expr"])
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
]
AGENT = 'job="nodevitals", cluster="c", instance="n.1"'
# Its name with the dot of a regular expression.
OTHER = 'job="nodevitals", cluster="c", instance="nx1"'


def test_one_node_is_chosen() -> None:
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert not variables["instance"].get("multi")
    assert not variables["instance"].get("includeAll")
    assert variables["fabric_name"]["hide"] == 2
    assert [
        title
        for title, query in TARGETS
        if 'instance="$instance"' not in query and '="$fabric_name"' not in query
    ] == []


def _expression(title: str, target: int = 0) -> str:
    """Return a query of the first panel with this title."""
    query = [query for name, query in TARGETS if name == title][target]
    values = {"$instance": "n.1", "$cluster": ".*", "$fabric_name": "one"}
    for name, value in values.items():
        query = query.replace(name, value)
    return str(query)


def _strip(folder: Path, cases: list[tuple[str, dict[str, str], str, float]]) -> None:
    """Evaluate panels of the strip: title, series, the text expected and its value."""
    made = []
    for title, series, text, value in cases:
        present, _, expected = text.partition(" of ")
        labels = {"present": present, "expected": expected} if expected else {}
        made.append((_expression(title), series, [({**labels, "text": text}, value)]))
    evaluate(folder, made)


def _gpus(present: str, expected: str = "", labels: str = AGENT) -> dict[str, str]:
    series = {
        f'nodevitals_accelerators_present{{{labels}, vendor="nvidia"}}': present,
        f'nodevitals_accelerators_baseline{{{labels}, vendor="nvidia"}}': "8x4 stale"
        if "stale" in present
        else "8x40",
    }
    if expected:
        series[f'nodevitals_accelerators_expected{{{labels}, vendor="nvidia"}}'] = expected
    return series


def _mount(point: str, **values: str) -> dict[str, str]:
    success = values.pop("success", "1x40")
    series = {
        f'nodevitals_probe_success{{{AGENT}, probe="mounts", target="{point}"}}': success,
    }
    for name, value in values.items():
        series[f'nodevitals_mount_{name}{{{AGENT}, mountpoint="{point}"}}'] = value
    return series


def test_the_counts_say_what_is_missing(tmp_path: Path) -> None:
    ports = {
        f'nodevitals_rdma_port_{name}{{{AGENT}, device="mlx5_{n}", port="1"}}': value
        for n, up in ((0, "1x40"), (1, "0x40"))
        for name, value in (("up", up), ("expected_rate_bytes_per_second", "5e10x40"))
    }
    # Never had a link: no rate is expected of it.
    uncabled = {f'nodevitals_rdma_port_up{{{AGENT}, device="mlx5_2", port="1"}}': "0x40"}
    intact = _mount("/a", present="1x40", writable="1x40", readable="1x40")
    _strip(
        tmp_path,
        [
            ("GPUs", _gpus("8x40"), "8 of 8", 0),
            ("GPUs", _gpus("7x40"), "7 of 8", 0.125),
            ("GPUs", _gpus("0x40"), "0 of 8", 1),
            # The configuration goes before what was there.
            ("GPUs", _gpus("8x40", expected="16x40"), "8 of 16", 0.5),
            ("GPUs", {**_gpus("8x40"), **_gpus("5x40", labels=OTHER)}, "8 of 8", 0),
            ("RDMA ports", {**ports, **uncabled}, "1 of 2", 0.5),
            ("Mounts", intact, "1 of 1", 0),
            ("Mounts", {**intact, **_mount("/b", present="0x40")}, "1 of 2", 0.5),
            ("Mounts", {**intact, **_mount("/b", present="1x40", writable="0x40")}, "1 of 2", 0.5),
            # A call that hangs: nothing else is exposed.
            ("Mounts", {**intact, **_mount("/b", success="0x40")}, "1 of 2", 0.5),
            ("Mounts", _mount("/b", present="0x40"), "0 of 1", 1),
        ],
    )


def test_what_is_not_known_is_no_number(tmp_path: Path) -> None:
    _strip(
        tmp_path,
        [
            ("GPUs", _gpus("8x4 stale"), "? of 8", -1),
            ("GPUs", _gpus("8x4 stale", expected="10x4 stale"), "? of 10", -1),
            ("NPUs", _gpus("8x40"), NOTHING, -1),
            ("Mounts", {}, NOTHING, -1),
        ],
    )


def test_the_alerts_are_those_of_the_node(tmp_path: Path) -> None:
    def alert(started: int, **labels: str) -> dict[str, str]:
        found = {"cluster": "c", "component": "rdma", "action": "drain", **labels}
        return {
            "ALERTS" + labelled(alertstate="firing", **found): "1x40",
            "ALERTS_FOR_STATE" + labelled(**found): f"{started}x40",
        }

    def incident(name: str) -> dict[str, str]:
        return {"kind": "network", "domain": "leaf", "domain_name": name}

    def member(instance: str, name: str) -> str:
        labels = {"cluster": "c", "instance": instance, "level": "critical", **incident(name)}
        return "nodevitals:incident_nodes" + labelled(**labels)

    down = {"alertname": "RdmaPortDown", "severity": "critical", "device": "mlx5_1", "port": "1"}
    series = {
        **alert(60, instance="n.1", **down),
        **alert(60, instance="nx1", **down),
        **alert(120, peer="one", alertname="PeerUnreachable", severity="warning"),
        **alert(120, peer="two", alertname="PeerUnreachable", severity="warning"),
        **alert(180, alertname="FleetIncident", severity="critical", **incident("leaf-1")),
        **alert(180, alertname="FleetIncident", severity="critical", **incident("leaf-2")),
        # Inhibitors and what only pends.
        **alert(60, instance="n.1", alertname="NodeMaintenance", severity="none"),
        "ALERTS_FOR_STATE"
        + labelled(cluster="c", instance="n.1", alertname="MountSlow", severity="warning"): "9x40",
        member("n.1", "leaf-1"): "1x40",
        member("nx1", "leaf-2"): "1x40",
    }
    common = {"component": "rdma", "action": "drain"}
    port = {"alertname": "RdmaPortDown", "object": "mlx5_1 1", **common}
    peer = {"alertname": "PeerUnreachable", "object": "one", **common}
    leaf = {"alertname": "FleetIncident", "object": "leaf-1", **common}
    ranks = [(port, 3.0), (peer, 2.0), (leaf, 3.0)]
    since = [(port, 60_000.0), (peer, 120_000.0), (leaf, 180_000.0)]
    evaluate(
        tmp_path,
        [
            (_expression("Firing alerts", 0), series, ranks),
            (_expression("Firing alerts", 1), series, since),
        ],
    )


def test_the_cordon_is_found_by_the_name_of_the_node(tmp_path: Path) -> None:
    query = _expression("Schedulable").replace('"n.1"', '"n1:9100"')
    target = 'nodevitals:node_name{cluster="c", instance="n1:9100", node="n1"}'
    named = 'nodevitals:node_name{cluster="c", instance="n1:9100", node="worker-1"}'
    own = 'nodevitals_node_schedulable{job="nodevitals", cluster="c", instance="n1:9100"}'

    def cordoned(node: str, labels: str = "") -> dict[str, str]:
        return {
            f'kube_node_spec_unschedulable{{{labels}node="{node}"}}': "1x40",
            f'kube_node_spec_unschedulable{{{labels}node="other"}}': "0x40",
        }

    evaluate(
        tmp_path,
        [
            (query, {target: "1x40", **cordoned("n1")}, [({}, 1.0)]),
            (query, {target: "1x40", **cordoned("n1", 'cluster="c", ')}, [({}, 1.0)]),
            (query, {named: "1x40", **cordoned("worker-1")}, [({}, 1.0)]),
            (query, {target: "1x40", **cordoned("n2")}, []),
            # The agent's own value goes before a late one.
            (query, {target: "1x40", own: "1x40", **cordoned("n1")}, [({}, 0.0)]),
            (query, {own: "0x40"}, [({}, 1.0)]),
        ],
    )
