"""The values that probes cannot read without a capability. In: samples. Out: a line per probe.

The capabilities are not granted by default, docs/adr/0043-hardware-health.md: no probe fails
without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Sample = tuple[str, Mapping[str, str], float]
DROP_IN = "add the drop-in nodevitals-hardware-health.conf"
_SHOWN = 5


class Lack(NamedTuple):
    """The values that one probe cannot read, and the remedy."""

    probe: str
    text: str
    remedy: str


def lacks(samples: Iterable[Sample]) -> Iterator[Lack]:
    """The values that the agent, or this process, is not permitted to read."""
    denied: dict[str, set[str]] = {}
    for name, labels, _ in samples:
        if labels.get("reason") == "permission":
            where = labels.get("interface") or labels.get("device", "")
            denied.setdefault(name, set()).add(where)
    disks = denied.get("nodevitals_disk_unreadable", set())
    nvme = {name for name in disks if name.startswith("nvme")}
    needed = [
        *(["CAP_SYS_ADMIN"] if nvme else []),
        *(["CAP_SYS_RAWIO"] if disks - nvme else []),
    ]
    if disks:
        text = f"health of {_listed(disks)} cannot be read without {' and '.join(needed)}"
        chart = "in Kubernetes nodes.NAME.hardwareHealth.disks: privileged"
        yield Lack("disks", text, f"{DROP_IN}; {chart}")
    ports = denied.get("nodevitals_transceiver_unreadable", set())
    if ports:
        text = f"modules of {_listed(ports)} cannot be read without CAP_NET_ADMIN"
        chart = "in Kubernetes nodes.NAME.hardwareHealth.transceivers: true"
        yield Lack("transceivers", text, f"{DROP_IN}; {chart}")


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    rest = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
