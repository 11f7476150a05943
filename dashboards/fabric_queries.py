"""PromQL of the Fabric dashboard: pairs and nodes of the chosen clusters, pools and leaves.

Tests name nodes as the lists of peers do (labels source, peer, node); nodevitals:fabric_name maps
these names to instances.
"""

from __future__ import annotations

from dashboards.queries import CLUSTER

TEST = 'tool=~"$tool", operation=~"$operation"'
CHOSEN = f"{CLUSTER}, {TEST}"
TEST_LABELS = "cluster, tool, operation, device, message_bytes"
PAIR_LABELS = f"{TEST_LABELS}, instance, source, peer"
PLACE = f'nodevitals:node_domains{{{CLUSTER}, pool=~"$pool", leaf=~"$leaf"}}'
# One instance per name: a node that was reinstalled has two for an hour.
NAMES = f"topk by (cluster, node) (1, nodevitals:fabric_name{{{CLUSTER}}})"
NODES = f"({NAMES} and on (cluster, instance) {PLACE})"
BANDWIDTH = f'nodevitals_fabric_bandwidth_bytes_per_second{{job="nodevitals", {CHOSEN}}}'
# Not those of a peer that was busy, or of a tool that is missing.
FAILURES = (
    f'nodevitals_fabric_failure{{job="nodevitals", {CHOSEN}, '
    'reason=~"unreachable|timeout|no_device|port_down|no_gid|corruption"}'
)
USUAL = "nodevitals:fabric:bandwidth_usual"
PAIR_RATIO = f"({BANDWIDTH} / on ({TEST_LABELS}) group_left () {USUAL})"
SLOW = 'on () group_left () nodevitals:threshold{threshold="fabric_bandwidth_share"}'


def in_place(expression: str) -> str:
    """Return the series of the nodes in the chosen pools and leaves; they need `instance`."""
    return f"({expression}) and on (cluster, instance) {PLACE}"


def named(expression: str) -> str:
    """Return the series of these nodes with the label instance; they need `node`."""
    return f"({expression}) * on (cluster, node) group_left (instance) {NODES}"


def as_source(expression: str) -> str:
    """Return the series of pairs with their source as the label node."""
    return f'label_replace({expression}, "node", "$1", "source", "(.+)")'


def as_peer(expression: str) -> str:
    """Return the series of pairs with their peer as the label node."""
    return f'label_replace({expression}, "node", "$1", "peer", "(.+)")'


def matrix(nodes: int, worst: int) -> str:
    """Return the ratio of each pair between some nodes; 0: failed.

    They are the `worst` nodes by the mean of their pairs, then the partners of these, which show
    whether it is the node or its path, then others: a few of many nodes have no test in common.
    """
    ratio = f"nodevitals:fabric_node:pair_ratio:avg{{{CHOSEN}}}"
    here = f"(nodevitals:fabric_name{{{CLUSTER}}} and on (cluster, instance) {PLACE})"
    every = f"(min by (cluster, node) ({ratio}) and on (cluster, node) {here})"
    bad = f"bottomk({worst}, {every})"
    partners = " or ".join(
        f'label_replace({BANDWIDTH} and on (cluster, {end}) label_replace({bad}, "{end}", "$1", '
        f'"node", "(.+)"), "node", "$1", "{other}", "(.+)")'
        for end, other in (("source", "peer"), ("peer", "source"))
    )
    shown = (
        f"bottomk({nodes}, {bad} or {every} + 2 and on (cluster, node) ({partners}) or {every} + 4)"
    )
    pairs = f"({PAIR_RATIO} or 0 * {FAILURES})"
    for end in ("source", "peer"):
        pairs += f' and on (cluster, {end}) label_replace({shown}, "{end}", "$1", "node", "(.+)")'
    return f"min by (source, peer) ({pairs})"


def slowest_pairs(count: int) -> str:
    """Return the ratio of the slowest pairs of those below 90 %."""
    return f"bottomk({count}, {in_place(f'({PAIR_RATIO} < 0.9)')})"


def of_slowest_pairs(count: int, value: str) -> str:
    """Return a value of these pairs; it has all labels of a pair."""
    return f"max by ({PAIR_LABELS}) ({value} and on ({PAIR_LABELS}) {slowest_pairs(count)})"


def opposite_pairs(count: int) -> str:
    """Return the ratio of these pairs in the other direction."""
    chosen = slowest_pairs(count)
    ends = f"{TEST_LABELS}, source, peer"
    found = f"({PAIR_RATIO} and on ({ends}) {reversed_pairs(chosen)})"
    return (
        f"max by ({PAIR_LABELS}) (0 * {chosen} + on ({ends}) group_left () {reversed_pairs(found)})"
    )


def reversed_pairs(expression: str) -> str:
    """Return the series of pairs with source and peer exchanged."""
    swapped = f'label_replace({expression}, "other", "$1", "peer", "(.+)")'
    swapped = f'label_replace({swapped}, "peer", "$1", "source", "(.+)")'
    return f'label_replace({swapped}, "source", "$1", "other", "(.+)")'


NODE_BANDWIDTH = f"nodevitals:fabric_node:bandwidth{{{CHOSEN}}}"
NODE_RATIO = f"({NODE_BANDWIDTH} / on ({TEST_LABELS}) group_left () {USUAL})"
# Without a usual bandwidth (fewer than four nodes, and none is expected), all nodes.
NODE_RANK = f"({NODE_RATIO} or {NODE_BANDWIDTH})"
LATENCY = f"nodevitals:fabric_node:latency{{{CHOSEN}}}"
LATENCY_RATIO = f"({LATENCY} / on ({TEST_LABELS}) group_left () nodevitals:fabric:latency)"
LATENCY_P99 = f"nodevitals:fabric_node:latency_p99{{{CHOSEN}}}"
LATENCY_RANK = f"({LATENCY_RATIO} or {LATENCY})"


def of_nodes(value: str, chosen: str) -> str:
    """Return a value of the nodes in `chosen`; both have the labels of a node's test."""
    keys = f"cluster, node, {TEST_LABELS.removeprefix('cluster, ')}"
    return named(f"max by ({keys}) ({value}) and on ({keys}) {chosen}")


def switch_of_nodes() -> str:
    """Return one series per node and device, with its switch."""
    name = f"topk by (cluster, instance) (1, {NODES})"
    ports = f"nodevitals:port_switch{{{CLUSTER}}}"
    return (
        f"topk by (cluster, node, device) (1, max by (cluster, node, device, switch) ("
        f"{ports} * on (cluster, instance) group_left (node) {name}))"
    )


def leaf_of_nodes() -> str:
    """Return one series per node, with its leaf."""
    return f"({NODES} * on (cluster, instance) group_left (leaf) {PLACE})"
