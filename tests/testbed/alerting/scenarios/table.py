"""The list of scenarios, which the modules beside this one fill, and words that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.alerting.faults import Node
from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import HOUR, MINUTE, Fleet, Scenario

__all__ = ["FILER", "HOUR", "MINUTE", "SCENARIOS", "each", "rows", "scenario"]

SCENARIOS: list[Scenario] = []
FILER = ("/data", "nfs4", "filer-1:/data")
"""A mount of a node: mount point, file system type, source."""


def scenario(
    happens: str,
    wanted: Wanted,
    *,
    minutes: float = 40,
    begin: float = 0,
    night: bool = False,
    alone: bool = False,
) -> Callable[[Callable[[Fleet], None]], Callable[[Fleet], None]]:
    """Add a scenario to the table: what happens, what people are to be notified of, and the
    function that makes the fleet and its faults. It is healthy until minute `begin`, at least.
    """

    def add(build: Callable[[Fleet], None]) -> Callable[[Fleet], None]:
        key = build.__name__.replace("_", "-")
        SCENARIOS.append(Scenario(key, happens, wanted, build, minutes, begin, night, alone))
        return build

    return add


def rows(leaf: int = 16, rack: int = 8, **more: object) -> Callable[[int], Hardware]:
    """Return the hardware of nodes in rows: so many per leaf and per rack, all in one pool."""

    def hardware(number: int) -> Hardware:
        domains = {
            "leaf": f"leaf-{number // leaf + 1}",
            "rack": f"rack-{number // rack + 1}",
            "pool": "train",
        }
        return Hardware(domains=domains, **more)  # type: ignore[arg-type]

    return hardware


def each(nodes: Iterable[Node], event: Callable[[Node], object]) -> None:
    """Let the same happen to several nodes."""
    for node in nodes:
        event(node)
