"""PromQL of the job dashboard: the pods that are chosen, and what belongs to them."""

from __future__ import annotations

from dashboards.queries import CLUSTER

_SINGLE = ("namespace", "owner", "queue", "job_name", "pod")
JOB = ", ".join([CLUSTER, *(f'{name}=~"${name}"' for name in _SINGLE)])
"""Selector of series by pod."""
DEVICES = f"nodevitals:job_device{{{JOB}}}"
NODES = f"nodevitals:pod_node{{{JOB}}}"
RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"


def _values(label: str, *chosen: str) -> str:
    selector = ", ".join([CLUSTER, *(f'{name}=~"${name}"' for name in chosen)])
    return f"label_values(nodevitals:pod_accelerators:count{{{selector}}}, {label})"


_TITLES = (
    ("Namespace", "命名空间"),
    ("Owner", "负责人"),
    ("Queue", "队列"),
    ("Job", "作业"),
    ("Pod", "Pod"),
)
# Each has the values that remain after the choice of those before it.
VARIABLES: dict[str, tuple[tuple[str, str], str, bool]] = {
    name: (title, _values(name, *_SINGLE[:number]), True)
    for number, (name, title) in enumerate(zip(_SINGLE, _TITLES, strict=True))
}
VARIABLES["job_nodes"] = (
    ("Nodes of the job", "作业的节点"),
    f"label_values({NODES}, instance)",
    True,
)


def of_devices(value: str, devices: str = DEVICES) -> str:
    """Return a value per uuid as one of each device and pod."""
    return f"{devices} * on (uuid) group_left () max by (uuid) ({value})"


def on_nodes(expression: str, nodes: str = NODES) -> str:
    """Return the series of the nodes on which the chosen pods are."""
    return f"({expression}) and on (cluster, instance) {nodes}"


def scraped(metric: str, matchers: str = "") -> str:
    """Return a metric of the agent."""
    selector = ", ".join(filter(None, ['job="nodevitals"', CLUSTER, matchers]))
    return f"nodevitals_{metric}{{{selector}}}"


def recorded(metric: str, matchers: str = "") -> str:
    """Return what a rule recorded for each pod."""
    return f"nodevitals:{metric}{{{', '.join(filter(None, [JOB, matchers]))}}}"


def or_none(expression: str, among: str) -> str:
    """Return a count that is 0 where nothing is counted among what exists."""
    return f"{expression} or 0 * count({among})"
