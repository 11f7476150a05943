"""What the Prometheus operator makes of a PodMonitor or ServiceMonitor: jobs of a real Prometheus.

In: a monitor, the objects of the chart around it, and the address of each node's agent. Out: scrape
configurations whose discovery is static, with the labels that kubernetes_sd_configs would give.

The order and content of the relabelings are those of generatePodMonitorConfig and
generateServiceMonitorConfig in
https://github.com/prometheus-operator/prometheus-operator/blob/main/pkg/prometheus/promcfg.go
"""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]
# A key of a monitor that this module does not know is an error.
_SPEC = {"namespaceSelector", "selector", "podMetricsEndpoints", "endpoints", "jobLabel"}
_COPIED = {
    "interval": "scrape_interval",
    "scrapeTimeout": "scrape_timeout",
    "path": "metrics_path",
    "scheme": "scheme",
    "params": "params",
}
_ENDPOINT = {*_COPIED, "port", "honorLabels", "relabelings", "metricRelabelings"}
_RELABELING = {
    "action": "action",
    "sourceLabels": "source_labels",
    "targetLabel": "target_label",
    "regex": "regex",
    "replacement": "replacement",
    "separator": "separator",
}
_META = "__meta_kubernetes_"
_LABEL = ("label", "labelpresent")


def scrape_configs(monitor: Json, targets: list[Json]) -> list[Json]:
    """Return the jobs of a monitor, over targets as service discovery finds them."""
    spec, pods = monitor["spec"], monitor["kind"] == "PodMonitor"
    _known(spec, _SPEC)
    endpoints = spec["podMetricsEndpoints" if pods else "endpoints"]
    return [_job(monitor, number, one, targets) for number, one in enumerate(endpoints)]


def _job(monitor: Json, number: int, endpoint: Json, targets: list[Json]) -> Json:
    _known(endpoint, _ENDPOINT)
    spec, name = monitor["spec"], monitor["metadata"]["name"]
    namespace = monitor["metadata"]["namespace"]
    own = _pod_labels if monitor["kind"] == "PodMonitor" else _service_labels
    kind = monitor["kind"][0].lower() + monitor["kind"][1:]
    chosen = spec.get("namespaceSelector", {}).get("matchNames", [namespace])
    config = {key: endpoint[name] for name, key in _COPIED.items() if name in endpoint}
    return config | {
        "job_name": f"{kind}/{namespace}/{name}/{number}",
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": [
            {"targets": [one["__address__"]], "labels": one}
            for one in targets
            if one[f"{_META}namespace"] in chosen
        ],
        "relabel_configs": [
            {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
            *own(monitor, endpoint),
            *_relabelings(endpoint.get("relabelings", [])),
            *_SHARDS,
        ],
        "metric_relabel_configs": _relabelings(endpoint.get("metricRelabelings", [])),
    }


_FINISHED = {
    "action": "drop",
    "source_labels": [f"{_META}pod_phase"],
    "regex": "(Failed|Succeeded)",
}
# One shard; the environment variable SHARD is 0.
_SHARDS = (
    {
        "source_labels": ["__address__", "__tmp_hash"],
        "target_label": "__tmp_hash",
        "regex": "(.+);",
        "replacement": "$1",
    },
    {
        "source_labels": ["__tmp_hash"],
        "target_label": "__tmp_hash",
        "modulus": 1,
        "action": "hashmod",
    },
    {
        "source_labels": ["__tmp_hash", "__tmp_disable_sharding"],
        "regex": "0;|.+;.+",
        "action": "keep",
    },
)


def _pod_labels(monitor: Json, endpoint: Json) -> list[Json]:
    metadata, port = monitor["metadata"], endpoint["port"]
    return [
        _FINISHED,
        *_selected(monitor, "pod"),
        _keep(f"{_META}pod_container_port_name", port),
        _copy("namespace", "namespace"),
        _copy("pod_container_name", "container"),
        _copy("pod_name", "pod"),
        {"target_label": "job", "replacement": f"{metadata['namespace']}/{metadata['name']}"},
        *_job_label(monitor, "pod"),
        {"target_label": "endpoint", "replacement": port},
    ]


def _service_labels(monitor: Json, endpoint: Json) -> list[Json]:
    port, target = endpoint["port"], ["target_kind", "target_name"]
    of_target = [f"{_META}endpoint_address_{one}" for one in target]
    return [
        *_selected(monitor, "service"),
        _keep(f"{_META}endpoint_port_name", port),
        *(
            {"source_labels": of_target, "regex": f"{kind};(.*)", "target_label": kind.lower()}
            for kind in ("Node", "Pod")
        ),
        _copy("namespace", "namespace"),
        _copy("service_name", "service"),
        _copy("pod_name", "pod"),
        _copy("pod_container_name", "container"),
        _FINISHED,
        _copy("service_name", "job"),
        *_job_label(monitor, "service"),
        {"target_label": "endpoint", "replacement": port},
    ]


def _selected(monitor: Json, of: str) -> list[Json]:
    _known(monitor["spec"]["selector"], {"matchLabels"})
    return [
        {
            "action": "keep",
            "source_labels": [f"{_META}{of}_{part}_{plain(name)}" for part in _LABEL],
            "regex": f"({text});true",
        }
        for name, text in sorted(monitor["spec"]["selector"]["matchLabels"].items())
    ]


def _keep(label: str, regex: str) -> Json:
    return {"action": "keep", "source_labels": [label], "regex": regex}


def _copy(label: str, target: str) -> Json:
    return {"source_labels": [f"{_META}{label}"], "target_label": target}


def _job_label(monitor: Json, of: str) -> list[Json]:
    name = monitor["spec"].get("jobLabel")
    if not name:
        return []
    return [_copy(f"{of}_label_{plain(name)}", "job") | {"regex": "(.+)", "replacement": "${1}"}]


def _relabelings(given: list[Json]) -> list[Json]:
    for one in given:
        _known(one, set(_RELABELING))
    return [{_RELABELING[name]: value for name, value in one.items()} for one in given]


def _known(given: Json, names: set[str]) -> None:
    assert given.keys() <= names, f"not simulated: {sorted(given.keys() - names)}"


def plain(label: str) -> str:
    """Return the name of a Kubernetes label as Prometheus has it."""
    return re.sub(r"\W", "_", label)


def targets(objects: list[Json], agents: dict[str, str]) -> list[Json]:
    """Return what roles pod and endpoints find of a chart's agents, by node and address: one target
    per port of each pod, and those again for each Service that selects the pod.
    """
    # All agents of the chart have the same labels and ports, but for the kind of their nodes.
    daemonset = next(one for one in objects if one["kind"] == "DaemonSet")
    found = []
    for number, (node, address) in enumerate(sorted(agents.items())):
        pod = _pod(daemonset, f"{number:05}", node)
        ports = daemonset["spec"]["template"]["spec"]["containers"][0]["ports"]
        for port in ports:
            target = pod | {
                "__address__": address,
                f"{_META}pod_container_port_name": port["name"],
                f"{_META}pod_container_port_number": str(port["containerPort"]),
            }
            found.append(target)
            found += [
                target | _endpoint(one, port["name"], pod)
                for one in objects
                if one["kind"] == "Service" and _selects(one, daemonset)
            ]
    return found


def _pod(daemonset: Json, suffix: str, node: str) -> Json:
    template, name = daemonset["spec"]["template"], daemonset["metadata"]["name"]
    return {
        f"{_META}namespace": daemonset["metadata"]["namespace"],
        f"{_META}pod_name": f"{name}-{suffix}",
        f"{_META}pod_container_name": template["spec"]["containers"][0]["name"],
        f"{_META}pod_node_name": node,
        f"{_META}pod_phase": "Running",
        **_labels("pod", template["metadata"]["labels"]),
    }


def _endpoint(service: Json, port: str, pod: Json) -> Json:
    # A port of the pod that is none of the Service is found without a name.
    named = port in [one["targetPort"] for one in service["spec"]["ports"]]
    return {
        f"{_META}service_name": service["metadata"]["name"],
        f"{_META}endpoint_address_target_kind": "Pod",
        f"{_META}endpoint_address_target_name": pod[f"{_META}pod_name"],
        f"{_META}endpoint_port_name": port if named else "",
        **_labels("service", service["metadata"]["labels"]),
    }


def _selects(service: Json, daemonset: Json) -> bool:
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    return bool(service["spec"]["selector"].items() <= labels.items())


def _labels(of: str, labels: Json) -> Json:
    return {f"{_META}{of}_label_{plain(name)}": text for name, text in labels.items()} | {
        f"{_META}{of}_labelpresent_{plain(name)}": "true" for name in labels
    }
