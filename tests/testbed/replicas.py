"""A fleet whose nodes expose what one real agent exposes: its page, once for each node.

In: a page of an agent whose GPUs have uuids that begin with `GPU-`. Out: an HTTP server of pages of
many nodes, for `honor_labels`; bytes, times and temperatures change from scrape to scrape. The
first pages are the past, with timestamps, until they have reached the present.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator

import msgspec

from testbed.page_server import PageServer

STEP_SECONDS = 15
STEPS_PER_PAGE = 20
NODES_PER_PAGE = 25
NODES_PER_LEAF, NODES_PER_RACK, NODES_PER_RAIL = 32, 8, 256
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_MOVING = re.compile(
    r"bytes_total|joules|runs_total|cpu_seconds|temperature|power_watts|utilization|saturated"
    r"|load_average|memory_(available|used)_bytes|clock_offset|_(read|write)_seconds"
)
# Nodes that test each other: 127.0.0.2 is the node itself.
_ADDRESS = re.compile(r"127\.0\.0\.(\d+)")
_TIMES = re.compile(r"node_time_seconds|last_success_timestamp")


class Line(msgspec.Struct, frozen=True):
    """A sample of one node: what is before the value, and the value."""

    name: str
    head: str
    value: float

    def at(self, moment: float) -> float:
        """Return the value at a Unix time."""
        if _TIMES.search(self.name):
            return moment
        if not _MOVING.search(self.name):
            return self.value
        if self.name.endswith("_total"):
            return self.value + 1000 * int(moment / STEP_SECONDS)
        return self.value * (1 + 0.01 * (int(moment / STEP_SECONDS) % 7))

    @property
    def moves(self) -> bool:
        """Whether the value depends on the time."""
        return self.at(0) != self.at(STEP_SECONDS) or self.at(0) != self.value


def samples(page: str) -> list[tuple[str, str, float]]:
    """Return name, labels as text and value of each sample of a page."""
    found = [_SAMPLE.fullmatch(line) for line in page.splitlines() if not line.startswith("#")]
    return [(one[1], one[2] or "", float(one[3])) for one in found if one is not None]


def _peer(number: int, nodes: int) -> str:
    return f"node-{number % nodes:04}"


class ReplicatedNode:
    """One node of the fleet: its lines, and what is wrong with it."""

    def __init__(self, number: int, nodes: int, page: list[tuple[str, str, float]]) -> None:
        self.name = f"node-{number:04}"
        domains = f'leaf="leaf-{number // NODES_PER_LEAF}",rack="rack-{number // NODES_PER_RACK}"'
        self.lines = [Line("up", f'up{{instance="{self.name}"}}', 1.0)]
        for name, labels, value in page:
            labels = f'instance="{self.name}"{"," if labels else ""}{labels}'
            labels = labels.replace('"GPU-', f'"GPU-{number:04}')
            labels = labels.replace('switch="rail', f'switch="rail-{number // NODES_PER_RAIL}')
            labels = _ADDRESS.sub(lambda one: _peer(number + int(one[1]) - 2, nodes), labels)
            if name == "nodevitals_node_info":
                labels = f'instance="{self.name}",pool="p{number % 2}",{domains}'
            self.lines.append(Line(name, f"{name}{{{labels}}}", value))
        self.render()

    def render(self) -> None:
        """Make the text of the lines that do not change."""
        self.moving = [line for line in self.lines if line.moves]
        self.text = "".join(f"{one.head} {one.value:.12g}\n" for one in self.lines if not one.moves)

    def change(self, name: str, labels: str, value: float) -> None:
        """Set the first sample of a family that has this text in its labels."""
        for index, line in enumerate(self.lines):
            if line.name == name and labels in line.head:
                self.lines[index] = Line(name, line.head, value)
                return self.render()
        raise AssertionError(f"{self.name} has no {name}{{{labels}}}")

    def page(self, moment: float) -> str:
        """Return all samples at a Unix time."""
        return self.text + "".join(f"{one.head} {one.at(moment):.12g}\n" for one in self.moving)

    def past(self, moments: list[int], names: Collection[str]) -> Iterator[str]:
        """Return samples of some families with timestamps."""
        lines = [line for line in self.lines if line.name in names]
        for moment in moments:
            stamp = moment * 1000
            yield from (f"{one.head} {one.at(moment):.12g} {stamp}\n" for one in lines)


class Replicas(PageServer):
    """The server. Its targets are the paths of its pages; every reader starts with the past."""

    def __init__(self, page: str, nodes: int, past_seconds: int, past_of: Collection[str]) -> None:
        parsed = samples(page)
        self.series = len(parsed) + 1
        self.nodes = [ReplicatedNode(number, nodes, parsed) for number in range(nodes)]
        self._past_of = past_of
        self._past_seconds = past_seconds
        self.reached: dict[str, int] = {}
        """The Unix time until which each path has been served."""
        self._reaches: dict[str, int] = {}
        """The same of the page that is being sent."""
        super().__init__(self.page, sent=self._has_sent)

    def paths(self, reader: str) -> list[str]:
        """Return the paths of all pages, for one reader."""
        return [f"/{reader}/{first}" for first in range(0, len(self.nodes), NODES_PER_PAGE)]

    def _has_sent(self, path: str) -> None:
        """Go on with the next page: one of which the scrape took too long is repeated."""
        self.reached[path] = self._reaches[path]

    def is_present(self, reader: str) -> bool:
        """Whether a reader has been served all of the past."""
        return self._past_seconds == 0 or all(
            self.reached.get(path, 0) > time.time() - 3 * STEP_SECONDS
            for path in self.paths(reader)
        )

    def page(self, path: str) -> str:
        """Return the page of some nodes: the next minutes of the past, or the present."""
        first, now = int(path.rpartition("/")[2]), time.time()
        nodes = self.nodes[first : first + NODES_PER_PAGE]
        reached = self.reached.setdefault(path, int(now) - self._past_seconds)
        steps = range(reached + STEP_SECONDS, int(now) - 2 * STEP_SECONDS, STEP_SECONDS)
        moments = list(steps)[:STEPS_PER_PAGE]
        self._reaches[path] = moments[-1] if moments else int(now)
        if not moments:
            return "".join(node.page(now) for node in nodes)
        return "".join(line for node in nodes for line in node.past(moments, self._past_of))
