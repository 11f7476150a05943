"""PromQL of the node dashboard: selectors of the chosen node, and what several of its panels share.

The node is one value of the variable `instance`, chosen among the nodes of the chosen clusters and
pools: the selectors compare it literally, since a name may contain what a regular expression
interprets.
"""

from __future__ import annotations

HERE = 'cluster=~"$cluster", instance="$instance"'
DEVICES = 'device=~"$device"'
VENDORS = f'vendor=~"$vendor", {DEVICES}'
# Labels of faults and alerts that name what is affected, from the whole to its part.
OBJECT = (
    *("domain_name", "pci_bus_id", "device", "port", "interface", "member", "mountpoint"),
    *("probe", "peer", "controller", "xid", "sxid", "code"),
    *("sensor", "type", "unit", "wait", "script"),
)
# Values of severities, as severity_ranks maps them.
RANKS = {"critical": 3, "warning": 2, "info": 1}
INTERVAL = "[$__rate_interval]"
RANGE = "[$__range]"


def recorded(name: str, *matchers: str) -> str:
    """Return the selector of a recorded metric of this node."""
    return f"{name}{{{', '.join((HERE, *matchers))}}}"


def scraped(name: str, *matchers: str) -> str:
    """Return the selector of a metric that the agent of this node exposes; without its prefix."""
    return recorded(f"nodevitals_{name}", 'job="nodevitals"', *matchers)


def gpu(name: str, *matchers: str) -> str:
    """Return the selector of a metric of the chosen NVIDIA GPUs."""
    return scraped(f"nvidia_{name}", DEVICES, *matchers)


def npu(name: str, *matchers: str) -> str:
    """Return the selector of a metric of the chosen Ascend NPUs."""
    return scraped(f"ascend_{name}", DEVICES, *matchers)


def accelerator(name: str, *matchers: str) -> str:
    """Return the selector of a metric of the chosen accelerators of all vendors."""
    return scraped(f"accelerator_{name}", VENDORS, *matchers)


def per(labels: str, expression: str) -> str:
    """Return the highest value for each set of labels: rows of a table merge on the same ones."""
    return f"max by ({labels}) ({expression})"


def seen(selector: str) -> str:
    """Return the last value within the day: what a node that reports nothing now had before."""
    return f"last_over_time({selector}[1d])"


def named_object(expression: str) -> str:
    """Return the series with the label `object`: what a fault or an alert is about."""
    labels = ", ".join(f'"{label}"' for label in OBJECT)
    joined = f'label_join({expression}, "object", " ", {labels})'
    # Labels that a series lacks leave their blanks: two gaps at most, and the ends.
    for blanks, kept in (("(.*?)  +(.*)", "$1 $2"), ("(.*?)  +(.*)", "$1 $2"), (" *(.*?) *", "$1")):
        joined = f'label_replace({joined}, "object", "{kept}", "object", "{blanks}")'
    return joined


def ranked(name: str, *matchers: str) -> str:
    """Return the rank of the severity of each alert or fault of this node."""
    chosen = {one: recorded(name, f'severity="{one}"', *matchers) for one in RANKS}
    return " or ".join(f"0 * {chosen[one]} + {rank}" for one, rank in RANKS.items())
