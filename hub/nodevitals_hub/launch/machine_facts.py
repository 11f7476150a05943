"""What an agent exposes of the hardware that limits a collective.

In: samples of its /metrics. Out: a Machine (checks/verdicts/bus.py). Values are what should be: a
link that is lost or slower than it was must not lower the expectation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client.samples import Sample

from nodevitals.checks.verdicts.bus import Machine
from nodevitals.linux.pci import MLX5_VIRTUAL_FUNCTIONS

MOST_PORTS = 64
_PREFIX = "nodevitals_"
# As the probe rdma names them: MT4126 is the PCI device 0x101e.
_VIRTUAL = {f"MT{int(number, 16)}" for number in MLX5_VIRTUAL_FUNCTIONS}


def machine_of(samples: Iterable[Sample]) -> Machine:
    """The accelerators, their links, and the physical ports for RDMA."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name.removeprefix(_PREFIX), []).append(sample)
    accelerators = by_name.get("accelerator_info", [])
    # An accelerator that cannot be read has no model.
    models = {sample.labels.get("model", "") for sample in accelerators} - {""}
    links = [sample.value for sample in by_name.get("nvidia_nvlinks_expected", [])]
    return Machine(
        devices=len({sample.labels.get("uuid") for sample in accelerators}) or None,
        model=models.pop()[:100] if len(models) == 1 else "",
        links=_whole(min(links)) if links else None,
        ports=_ports(by_name),
    )


def _ports(by_name: dict[str, list[Sample]]) -> dict[str, float]:
    types = {
        sample.labels.get("device", ""): sample.labels.get("hca_type", "")
        for sample in by_name.get("rdma_device_info", [])
    }
    ports: dict[str, float] = {}
    # The later one holds: the rate that the port should have.
    for name in ("rdma_port_rate_bytes_per_second", "rdma_port_expected_rate_bytes_per_second"):
        for sample in by_name.get(name, []):
            device = sample.labels.get("device", "")
            is_physical = types.get(device, "").startswith("MT") and types[device] not in _VIRTUAL
            if is_physical and sample.labels.get("port") == "1" and _is_rate(sample.value):
                ports[device] = sample.value
    for sample in by_name.get("ascend_link_speed_bytes_per_second", []):
        if _is_rate(sample.value):
            ports[f"npu{sample.labels.get('device', '')}"] = sample.value
    return dict(sorted(ports.items())[:MOST_PORTS])


def _is_rate(value: float) -> bool:
    return math.isfinite(value) and 1e6 <= value <= 1e12


def _whole(value: float) -> int | None:
    return int(value) if 0 < value < 1000 else None
