"""What a node's agent exposes about its peers and its units: which it reaches, and which run, by
its probes peers, fabric and services.

In: an exposition, not trusted. Out: sights, bounded in number and characters. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

Plane = Literal["peers", "fabric", "units"]

MAX_SAMPLES = 20_000
MAX_CHARACTERS = 64
MAX_NAME = 256
"""As the longest names of hosts and of systemd's units."""
_REACHABLE, _FAILURE = "nodevitals_peer_reachable", "nodevitals_peer_failure"
_FABRIC_FAILURE = "nodevitals_fabric_failure"
_UNIT = "nodevitals_services_unit_active"
_FABRIC_SUCCESS = ("nodevitals_fabric_bandwidth_bytes_per_second", "nodevitals_fabric_latency_")
# Those of rules/fabric.yaml: of a node or the network, and not of the test itself.
_FABRIC_REASONS = ("unreachable", "timeout", "no_device", "port_down", "no_gid")


class PeerSight(NamedTuple):
    """What one node reports about another, or about one of its units; `reason` where it does not
    reach it.
    """

    plane: Plane
    peer: str
    reached: bool
    reason: str = ""


Sights = Mapping[str, Sequence[PeerSight]]
"""By observer; without those whose agent did not answer."""


def parse(text: str, own: str) -> list[PeerSight]:
    """The sights of a node, whose name on the lists is `own`. Raises ValueError."""
    prefixes = (_REACHABLE, _FAILURE, _FABRIC_FAILURE, _UNIT, *_FABRIC_SUCCESS)
    lines = [line for line in text.split("\n") if line.startswith(prefixes)]
    if len(lines) > MAX_SAMPLES:
        raise ValueError(f"over {MAX_SAMPLES} samples of peers")
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    samples = [sample for family in families for sample in family.samples]
    units = [
        PeerSight("units", _cut(sample, "unit", MAX_NAME), sample.value == 1.0)
        for sample in samples
        if sample.name == _UNIT
    ]
    return [*_peers(samples), *_fabric(samples, own), *units]


def _peers(samples: Iterable[Sample]) -> Iterable[PeerSight]:
    reasons = {_target(s): _cut(s, "reason") for s in samples if s.name == _FAILURE}
    for sample in samples:
        if sample.name == _REACHABLE:
            reason = reasons.get(_target(sample), "")
            yield PeerSight("peers", _cut(sample, "peer", MAX_NAME), sample.value == 1.0, reason)


def _fabric(samples: Iterable[Sample], own: str) -> Iterable[PeerSight]:
    for sample in samples:
        ends = (_cut(sample, "source", MAX_NAME), _cut(sample, "peer", MAX_NAME))
        if own not in ends:
            continue
        other = ends[1] if ends[0] == own else ends[0]
        reason = _cut(sample, "reason")
        if sample.name.startswith(_FABRIC_SUCCESS):
            yield PeerSight("fabric", other, True)
        elif sample.name == _FABRIC_FAILURE and reason in _FABRIC_REASONS:
            yield PeerSight("fabric", other, False, reason)


def _target(sample: Sample) -> tuple[str, ...]:
    return tuple(sample.labels.get(name, "") for name in ("peer", "port", "protocol"))


def _cut(sample: Sample, name: str, most: int = MAX_CHARACTERS) -> str:
    return sample.labels.get(name, "")[:most]
