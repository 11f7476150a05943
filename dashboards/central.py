"""What a central Prometheus of several clusters has: the series that clusters send to it, and the
panels that they serve.

In: the lists below, each series with the reason why it travels. Out: the expressions that choose
the series, for remote write and for federation, and the tables of docs/several-clusters.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

INDENT = " " * 4
"""Of the continued lines of a regular expression, beside that of its key."""
BEGIN, END = "made by make generate from dashboards/central.py", "end of what is made"
# Labels of one Prometheus of a pair, as the operator of kube-prometheus-stack adds them.
REPLICA = "prometheus|prometheus_replica"
FEDERATION_JOB = "clusters"


class Kind(NamedTuple):
    """Series of which there are as many as the title says."""

    title: str
    names: dict[str, str]
    """Names, or ends of names with a common beginning, each with what it is for."""


PER_CLUSTER = Kind(
    "per cluster, pool, owner or state",
    {
        "nodevitals:nodes:count": "nodes by state",
        "nodevitals:accelerators:count": "devices by state",
        "nodevitals:faults:count": "faults by component",
        "nodevitals:domain:nodes": "size of racks, leaves and pools, for incidents",
        "nodevitals:data_age:seconds": "age of the oldest data by probe",
        "nodevitals:nodes_without_data:count": "nodes without data",
        "nodevitals:nodes:total": "reliability",
        "nodevitals:failures:count7d": "reliability",
        "nodevitals:node_time:seconds7d": "reliability",
        "nodevitals:out_of_service:seconds7d": "reliability",
        "nodevitals:faults_began:count1d": "reliability",
        "nodevitals:pods_ended:count": "pods that failed on failed nodes",
        "nodevitals:usage_accelerators:sum": "usage now",
        "nodevitals:usage_accelerator:hours": "usage over time",
        "nodevitals:usage_energy:joules": "energy",
        "nodevitals:pod_accelerators:count": "choice of namespace, owner and queue; one per pod",
        "nodevitals:fabric:members": "nodes that are tested",
        "nodevitals:fabric:bandwidth": "median bandwidth",
        "nodevitals:fabric:bandwidth_ratio:min": "slowest node against the median",
        "nodevitals:fabric:bandwidth_ratio:p10": "slowest tenth against the median",
        "nodevitals:fabric:latency": "latency",
        "nodevitals:fabric:latency_p99": "latency",
        "nodevitals:fabric_runs:rate10m": "tests by result",
        "nodevitals:fabric_skipped:rate10m": "tests skipped by reason",
        "nodevitals:fabric_test_seconds:rate10m": "time in tests",
        "nodevitals:fabric_test_bytes:rate10m": "traffic of tests",
        "nodevitals_fabric_collective_success": "collectives",
        "nodevitals_fabric_bus_bandwidth_bytes_per_second": "collectives",
    },
)
PER_NODE = Kind(
    "per node",
    {
        "nodevitals:node_pool": "the pool of the node; choice of cluster and pool",
        "nodevitals:node_domains": "rack and leaf of the node",
        "nodevitals:node_place": "rack and NVLink domain of the node",
        "nodevitals:node_state": "state of the node",
        "nodevitals:component_state": "state of its components",
        "nodevitals:node_version": "versions of drivers, firmware and agents",
        "nodevitals:node_failures:count7d": "failures of the node",
        "nodevitals:node_faults:count30d": "faults of the node",
        "nodevitals:node_out_of_service:seconds7d": "time out of service",
        "nodevitals:fabric_name": "name of the node in fabric tests",
        "nodevitals:fabric_node:bandwidth": "bandwidth; one per RDMA device",
        "nodevitals:fabric_node:bandwidth_baseline": "usual bandwidth; one per RDMA device",
    },
)
PER_EVENT = Kind(
    "only while or after something is wrong",
    {
        "ALERTS": "firing alerts; pending ones stay",
        "ALERTS_FOR_STATE": "since when alerts are active",
        "nodevitals:fault": "faults",
        "nodevitals:incident_nodes": "nodes of fleet incidents",
        "nodevitals:node_change": "what changed",
        "nodevitals:node_version_drift": "nodes that differ from most",
        "nodevitals:probe_overdue:seconds": "overdue probes",
        "nodevitals:link_errors:increase5m": "errors of links",
        "nodevitals:accelerator_faults:count7d": "faults of devices",
        "nodevitals:accelerator_ecc_errors:increase5m": "memory errors of devices",
        "nodevitals:accelerator_slowdown:increase5m": "slowdowns of devices",
        "nodevitals_nvidia_xid_last_timestamp_seconds": "fault codes",
        "nodevitals_nvidia_sxid_last_timestamp_seconds": "fault codes",
        "nodevitals_ascend_fault_code": "fault codes",
    },
)
KINDS = (PER_CLUSTER, PER_NODE, PER_EVENT)

DASHBOARDS = ("fleet", "fabric", "usage")
"""Those that a central server serves; the others are about one node, job or server."""
_PAIRS = "results of single pairs, nodes or ports stay in the cluster"
_THRESHOLDS = "thresholds and results of single nodes stay in the cluster"
_CHECKS = "checks stay in the cluster, at its hub"
_PEERS = "connections between nodes stay in the cluster"
ABSENT = {
    "fleet": {"Jobs that succeeded": "the jobs of Kubernetes stay in the cluster"},
    "fabric": {
        "Nodes tested": _THRESHOLDS,
        "Pairs with a result": _PAIRS,
        "Bandwidth of pairs relative to the median": _PAIRS,
        "Slowest pairs": _PAIRS,
        "Slow nodes by leaf": _THRESHOLDS,
        "Slow nodes by switch": _THRESHOLDS,
        "Highest latency": _PAIRS,
        "Nodes tested longest ago": _PAIRS,
        "Pairs that do not connect": _PEERS,
        "Peers that some nodes do not reach": _PEERS,
        "Nodes that do not reach all peers": _PEERS,
        "Newest checks": _CHECKS,
        "Found bad": _CHECKS,
        "Longest outages of RDMA ports": "ports stay in the cluster",
        "Checks over their baselines": _CHECKS,
    },
}
"""Panels of these dashboards that have no data centrally, with the reason."""
LESS = {
    "fleet": {"Worst NVLinks": "errors of links, but not the links that are down"},
    "fabric": {
        "Slowest nodes": "bandwidth and usual bandwidth, not what they are compared with",
        "Last collectives": "not the time of a push",
    },
}
"""Panels that have fewer columns or rows than in the cluster."""


def names() -> list[str]:
    """Return the names of all series that travel."""
    return sorted(name for kind in KINDS for name in kind.names)


def regex_lines(indent: str) -> str:
    """Return the pattern of the names as a YAML string of several lines."""
    lines = textwrap.wrap(" ".join(f"{name}|" for name in names()), 90, break_on_hyphens=False)
    joined = f"\\\n{indent}{INDENT}".join(line.replace(" ", "") for line in lines)
    return f'"\\\n{indent}{INDENT}{joined.rstrip("|")}"'


def matcher_lines(indent: str) -> str:
    """Return the selector of these series as a YAML string of several lines."""
    return regex_lines(indent).replace('"\\\n', '"{__name__=~\\"\\\n')[:-1] + '\\"}"'


def remote_write(indent: str) -> str:
    """Return the write_relabel_configs of Prometheus."""
    return _indented(indent, *_RELABELINGS).format(
        names=regex_lines(indent + "  "), source="source_labels"
    )


def remote_write_of_operator(indent: str) -> str:
    """Return the writeRelabelConfigs of the operator's Prometheus object."""
    return _indented(indent, *_RELABELINGS).format(
        names=regex_lines(indent + "  "), source="sourceLabels"
    )


_RELABELINGS = (
    "- {source}: [__name__]",
    "  regex: {names}",
    "  action: keep",
    "- {source}: [__name__, alertstate]",
    "  regex: ALERTS;pending",
    "  action: drop",
    f"- regex: {REPLICA}",
    "  action: labeldrop",
)


def federation(indent: str) -> str:
    """Return the parameters match[] and the relabeling of a scrape job."""
    lines = _indented(
        indent,
        "params:",
        "  match[]:",
        "    - {names}",
        "metric_relabel_configs:",
        "  - source_labels: [__name__, alertstate]",
        "    regex: ALERTS;pending",
        "    action: drop",
        "  # A series without job is of no job: not of this one.",
        "  - source_labels: [job]",
        f"    regex: {FEDERATION_JOB}",
        "    target_label: job",
        '    replacement: ""',
        f"  - regex: {REPLICA}",
        "    action: labeldrop",
    )
    return lines.replace("{names}", matcher_lines(indent + "    "))


def _indented(indent: str, *lines: str) -> str:
    return "".join(f"{indent}{line}\n" for line in lines)


def series_table(_: str = "") -> str:
    """Return the series in Markdown."""
    rows = ["| series | for |\n|---|---|\n"]
    for kind in KINDS:
        rows.append(f"| **{kind.title}** | |\n")
        rows += [f"| `{name}` | {why} |\n" for name, why in kind.names.items()]
    return "".join(rows)


def panels_table(_: str = "") -> str:
    """Return the panels that have no or less data in Markdown."""
    return "| dashboard | panel | |\n|---|---|---|\n" + "".join(_panel_rows())


def _panel_rows() -> Iterator[str]:
    for listed, what in ((ABSENT, "no data"), (LESS, "less data")):
        for name, panels in listed.items():
            for title, reason in panels.items():
                yield f"| {name} | {title} | {what}: {reason} |\n"


PARTS: dict[str, Callable[[str], str]] = {
    "remote write": remote_write,
    "remote write of the operator": remote_write_of_operator,
    "federation": federation,
    "series": series_table,
    "panels": panels_table,
}


def filled(text: str) -> str:
    """Return a text with its generated parts; each begins with a line that names it, such as
    `# federation: made by …`, and has the indentation of that line.
    """
    made: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = inside and END not in line
        if not inside:
            made.append(line)
        if BEGIN in line:
            inside = True
            name = line.strip().removeprefix("# ").removeprefix("<!-- ").partition(":")[0]
            made.append(PARTS[name](line[: len(line) - len(line.lstrip())]))
    return "".join(made)
