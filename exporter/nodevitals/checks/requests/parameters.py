"""Resolves the parameters of a check: defaults, presets, nodes by label.

In: a request as a client sends it, the presets and the listed nodes. Out: the request as it is
stored and run. Raises CheckError with all problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Protocol

import msgspec

from nodevitals.checks import CheckError
from nodevitals.checks.model import CheckRequest, Kind, TestRequest
from nodevitals.checks.requests.problems import TOOLS, given, problems
from nodevitals.checks.requests.runs import LATENCY_BYTES, words_of
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals.probes.fabric.tools.report import LATENCY
from nodevitals.quantities import parse_bit_rate, shown

DEFAULT_SHARE = CheckRequest(kind="node").share


class PresetLike(Protocol):
    """A preset: a built-in one, or one from the site's configuration."""

    @property
    def kind(self) -> Kind:
        """As in Preset or Member."""

    @property
    def test(self) -> TestRequest:
        """As in Preset or Member."""

    @property
    def rounds(self) -> Optional[int]:
        """As in Preset or Member."""

    @property
    def share(self) -> Optional[float]:
        """As in Preset or Member."""

    @property
    def expected(self) -> Optional[str]:
        """As in Preset or Member."""


class MemberLike(Protocol):
    """A node on the lists."""

    @property
    def name(self) -> str:
        """As in Preset or Member."""

    @property
    def labels(self) -> Mapping[str, str]:
        """As in Preset or Member."""


def resolve(
    request: CheckRequest,
    presets: Mapping[str, PresetLike],
    members: Optional[Iterable[MemberLike]] = None,
) -> CheckRequest:
    """The request with the values of its preset, the defaults, and all of its nodes, each once.

    Without `members` any node is accepted, and `where` is refused. A field with its default value
    counts as not given. Resolving twice changes nothing. Raises CheckError.
    """
    request = _with_preset(request, presets)
    return msgspec.structs.replace(
        request, nodes=_nodes(request, members), test=_with_defaults(request.kind, request.test)
    )


def checked(
    request: CheckRequest,
    presets: Mapping[str, PresetLike],
    members: Optional[Iterable[MemberLike]] = None,
) -> CheckRequest:
    """The resolved request. Raises CheckError with all problems, also for parameters that do not
    fit together.
    """
    resolved = resolve(request, presets, members)
    if wrong := list(problems(resolved)):
        raise CheckError(*wrong)
    return resolved


def _with_preset(request: CheckRequest, presets: Mapping[str, PresetLike]) -> CheckRequest:
    if not request.preset:
        return request
    preset = presets.get(request.preset)
    if preset is None:
        known = ", ".join(sorted(presets)) or "none"
        text = Wording("no {name}: choose {words}", name=shown(request.preset), words=known)
        raise CheckError(Problem("preset", text))
    if not set(TOOLS[preset.kind]) & set(TOOLS[request.kind]) and preset.kind != request.kind:
        text = Wording(
            "{name} is for the kind {kind}: choose another", name=request.preset, kind=preset.kind
        )
        raise CheckError(Problem("preset", text))
    own, base = given(request.test), given(preset.test)
    if "iterations" in own or "seconds" in own:
        base.pop("iterations", None)
        base.pop("seconds", None)
    for name in ("environment", "mca"):
        if name in base and name in own:
            own[name] = {**base[name], **own[name]}
    changes: dict[str, Any] = {"test": TestRequest(**{**base, **own})}
    if request.kind == "matrix" and request.rounds is None:
        changes["rounds"] = preset.rounds
    if request.share == DEFAULT_SHARE and preset.share is not None:
        changes["share"] = preset.share
    if request.expected_bytes_per_second is None and preset.expected is not None:
        try:
            changes["expected_bytes_per_second"] = parse_bit_rate(preset.expected)
        except ValueError as error:
            raise CheckError(f"preset {request.preset}: expected: {error}") from None
    return msgspec.structs.replace(request, **changes)


def _nodes(request: CheckRequest, members: Optional[Iterable[MemberLike]]) -> tuple[str, ...]:
    if members is None:
        if request.where:
            raise CheckError(Problem("where", "there are no lists with labels: name the nodes"))
        return tuple(dict.fromkeys(request.nodes))
    listed = {member.name: member.labels for member in members}
    unknown = [name for name in request.nodes if name not in listed]
    if unknown:
        names = first_of([shown(name) for name in unknown], 3)
        text = Wording("{names}: not on the lists of nodes", names=names)
        raise CheckError(Problem("nodes", text))
    chosen = [
        name
        for name, labels in listed.items()
        if request.where and all(labels.get(key) == value for key, value in request.where.items())
    ]
    if request.where and not chosen:
        wanted = ", ".join(f"{key}={value}" for key, value in list(request.where.items())[:4])
        text = Wording("no node has {labels}: see the labels on the lists", labels=shown(wanted))
        raise CheckError(Problem("where", text))
    return tuple(dict.fromkeys((*request.nodes, *sorted(chosen))))


def first_of(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others."""
    shortened = ", ".join(names[:most])
    if len(names) <= most:
        return shortened
    return Wording("{names} and {count} more", names=shortened, count=len(names) - most)


def _with_defaults(kind: Kind, test: TestRequest) -> TestRequest:
    if kind == "node":
        return test
    tool = test.tool or ("nccl" if kind == "collective" else "perftest")
    operation = test.operation
    if not operation:
        operation = {"perftest": "write_bw", "iperf3": "tcp"}.get(tool, "all_reduce")
    changes: dict[str, Any] = {"tool": tool, "operation": operation}
    latencies = all(word in LATENCY for word in words_of(operation))
    if not test.sizes:
        size = {"perftest": "1MiB", "iperf3": "128KiB"}.get(tool, "1GiB")
        changes["sizes"] = f"{LATENCY_BYTES}B" if latencies else size
    if test.iterations is None and test.seconds is None:
        changes["iterations"] = 20 if kind == "collective" else 1000
        if changes.get("sizes") == "1MiB":
            changes["iterations"] = 200  # 200 MiB per test
    if kind == "collective" and test.devices_per_node is None:
        changes["devices_per_node"] = 8
    return msgspec.structs.replace(test, **changes)
