"""The nodes of the simulated fleet: twelve with GPUs and four with NPUs, in two pools.

Each exposes what a real agent exposed (`pages`), under its own name, with uuids of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from testbed.replicas import samples
from testbed.site.additions import additions
from testbed.site.names import GPU_NODES, NODES_PER_LEAF, NPU_NODES, name_of
from testbed.site.series import Series, from_page, labels_of

FOLDER = Path(__file__).parent
CLUSTER = "demo"
_DAY = 86400
_LOOPBACK = re.compile(r"127\.0\.0\.(\d+)")
# Shares of the time that the accelerators of a node work; the others have no job.
_USE = {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 0.9, 5: 0.9, 6: 0.5, 7: 0.0, 12: 0.95, 13: 0.95}


class SiteNode(msgspec.Struct):
    """A node of the fleet: its name, its domains, and the series of its agent."""

    name: str
    number: int
    vendor: str
    start: float
    series: list[Series]

    def find(self, name: str, **labels: str) -> list[Series]:
        """Return the series of a family with these labels."""
        return [
            one for one in self.series if one.name == name and labels.items() <= one.labels.items()
        ]


def nodes(now: float) -> list[SiteNode]:
    """Return the fleet, all of it healthy; its agents started a day ago."""
    pages = {
        vendor: samples((FOLDER / f"{page}.prom").read_text())
        for vendor, page in (("nvidia", "gpu"), ("ascend", "npu"))
    }
    return [
        _node(number, vendor, pages[vendor], now - _DAY - 60 * number)
        for number in range(GPU_NODES + NPU_NODES)
        for vendor in ("nvidia" if number < GPU_NODES else "ascend",)
    ]


def _node(number: int, vendor: str, page: list[tuple[str, str, float]], start: float) -> SiteNode:
    name = name_of(number)
    own = {"job": "nodevitals", "instance": name, "cluster": CLUSTER}
    use = _USE.get(number, 0.0)
    series = [
        Series("up", own, 1.0),
        Series("scrape_duration_seconds", own, 0.02),
        Series("scrape_body_size_bytes", own, 100.0 * len(page)),
        Series("scrape_samples_scraped", own, float(len(page))),
    ]
    for family, text, value in page:
        labels = own | labels_of(_own_names(text, number))
        if family == "nodevitals_node_info":
            leaf = number // NODES_PER_LEAF
            labels = own | {
                "pool": "training" if number % 4 < 2 else "inference",
                "leaf": f"leaf-{leaf}",
                "rack": f"rack-{leaf}",
            }
        series.append(from_page(family, labels, value, start, use))
    return SiteNode(name, number, vendor, start, series + additions(number, own, series, start))


def _own_names(text: str, number: int) -> str:
    """Return labels with the names of this node's devices, its switches and the nodes around it."""
    text = text.replace('"GPU-', f'"GPU-{number:02}').replace('"42C7', f'"{number:02}C7')
    text = text.replace('switch="rail', f'switch="leaf-{number // NODES_PER_LEAF}-rail')
    # 127.0.0.2 is the node itself; it tests nodes with GPUs.
    return _LOOPBACK.sub(lambda one: name_of((number + int(one[1]) - 2) % GPU_NODES), text)
