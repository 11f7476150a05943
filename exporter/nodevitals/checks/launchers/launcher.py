"""The interface of the launchers, which start a collective on its nodes.

In: a Collective, a name and a time limit. Out: its reports. The name is the run's: every process
and object that is started has it, so that those of an earlier hub process can be found and ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Optional, Protocol

import msgspec

from nodevitals.checks import CheckError
from nodevitals.checks.model import Reason
from nodevitals.checks.requests.collective import Collective
from nodevitals.checks.verdicts.reasons import reason_of
from nodevitals.probes.fabric.tools import report as fabric
from nodevitals.probes.fabric.tools.report import Report, failed
from nodevitals.quantities import shown

MAX_NAMED = 8
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?")


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a collective."""

    reports: tuple[Report, ...]
    """One per size in order, up to the first failed one; at least one."""
    raw: str = ""
    """Output of the tool and the launcher, below their command lines; its beginning and its end
    where it is long."""
    versions: dict[str, str] = {}
    reason: Optional[Reason] = None
    """Why it failed; None where it did not."""
    nodes: dict[str, str] = {}
    """Nodes that could not take part, each with the reason in one line."""


Progress = Callable[[Sequence[Report]], None]
"""Gets the reports of the sizes that are measured so far."""


def ignore(_: Sequence[Report]) -> None:
    """A Progress that nothing follows."""


class Launcher(Protocol):
    """Starts collectives. Raises only CancelledError: failures are in the reports."""

    async def run(
        self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
    ) -> Launched:
        """Run a collective for at most `seconds`. Where the task is canceled, the collective is
        ended on all nodes. An earlier run of this name is ended first.
        """
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        """End the run of this name, if there is one, and wait for its end. Raises CheckError where
        it cannot be ended.
        """
        raise NotImplementedError


def launched(
    reports: Sequence[Report],
    raw: str = "",
    versions: Optional[Mapping[str, str]] = None,
    nodes: Optional[Mapping[str, str]] = None,
    reason: Optional[Reason] = None,
) -> Launched:
    """The outcome of these reports. Without a `reason`, the first failed report gives it."""
    reasons = (reason_of(report) for report in reports)
    return Launched(
        reports=tuple(reports),
        raw=raw,
        versions=dict(versions or {}),
        nodes=dict(nodes or {}),
        reason=reason or next((cause for cause in reasons if cause is not None), None),
    )


def refused(
    kind: fabric.Reason,
    message: str,
    nodes: Optional[Mapping[str, str]] = None,
    raw: str = "",
) -> Launched:
    """The outcome of a collective that did not start, or that has no usable output."""
    return launched([failed(kind, message)], raw=raw, nodes=nodes)


def commands_in(raw: str) -> str:
    """The command lines in the output of a collective, each in a line."""
    return "\n".join(line[2:] for line in raw.splitlines() if line.startswith("$ "))


def named(problems: Mapping[str, str]) -> str:
    """`node: why` for some nodes, in one line."""
    parts = [f"{node}: {why}" for node, why in list(problems.items())[:MAX_NAMED]]
    more = len(problems) - len(parts)
    return "; ".join(parts) + (f"; and {more} more nodes" if more else "")


def verify_name(name: str) -> None:
    """Refuse a name that Kubernetes would refuse. Raises CheckError."""
    if not _NAME.fullmatch(name):
        raise CheckError(f"{shown(name)} is no name of a run: lower-case letters, digits and -")
