"""Exposes containers, their devices and their pods: records in, samples out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from nodevitals.probe import Readings
from nodevitals.probes.common.accelerators import ACCELERATOR_INFO, OWNER_LABELS
from nodevitals.probes.kubernetes.devices import (
    Device,
    Node,
    is_accelerator,
    pci_address,
    resolve,
    resolve_claim,
)
from nodevitals.probes.kubernetes.families import (
    ALLOCATABLE,
    ALLOCATED,
    DROPPED,
    PCI_DEVICE_INFO,
    PODS,
    UNRESOLVED,
    WITHOUT_LABEL,
)
from nodevitals.probes.kubernetes.podresources import Container, Devices
from nodevitals.probes.kubernetes.pods import KnownPod

# Each is a series; a node has some five.
MAX_RESOURCES = 64


class Allocation(NamedTuple):
    """A device of a resource and the container that has it; `device` is None if it is not known."""

    container: Container
    resource: str
    device_id: str
    device: Optional[Device]
    pci_bus_id: str = ""


def allocations(
    containers: Iterable[Container], pods: Mapping[str, KnownPod], node: Node, *, readable: bool
) -> list[Allocation]:
    """The devices of the containers, without those of pods that have ended. `readable`: pods are
    read, so the NPUs of a pod that is not known yet may differ from the kubelet's.
    """
    allocated = []
    for container in containers:
        pod = pods.get(container.pod_key)
        if pod is not None and pod.ended:
            continue
        for devices in container.devices:
            is_npu = devices.resource.startswith("huawei.com/")
            ids = _ids(devices, pod, readable=readable) if is_npu else devices.ids
            for device_id in ids:
                device = resolve(devices.resource, device_id, node)
                address = pci_address(device_id)
                allocated.append(
                    Allocation(container, devices.resource, device_id, device, address)
                )
        for claim in container.claims:
            name = f"{claim.pool}/{claim.device}"
            device = resolve_claim(claim, node)
            allocated.append(Allocation(container, claim.driver, name, device))
    return allocated


def _ids(devices: Devices, pod: KnownPod | None, *, readable: bool) -> tuple[str, ...]:
    """The IDs of devices; for NPUs, the IDs that Volcano chose, if it did."""
    if pod is not None and pod.npus is not None:
        return pod.npus or tuple(f"?{id_}" for id_ in devices.ids)
    if pod is None and readable:
        return tuple(f"?{id_}" for id_ in devices.ids)
    return devices.ids


def add_devices(
    readings: Readings,
    held: list[Allocation],
    pods: Mapping[str, KnownPod],
    site_labels: tuple[str, ...],
    max_series: int,
) -> None:
    """Expose which container has which device, and the numbers of devices and pods."""
    accelerators: set[tuple[str, ...]] = set()
    addresses: set[tuple[str, ...]] = set()
    for allocation in held:
        names = (
            allocation.container.namespace,
            allocation.container.pod,
            allocation.container.name,
        )
        if allocation.device is not None:
            pod = pods.get(allocation.container.pod_key)
            labels = {} if pod is None else pod.labels
            owner = tuple(labels.get(label, "") for label in OWNER_LABELS)
            site = tuple(part for label in site_labels for part in (label, labels.get(label, "")))
            accelerators.add(names + owner + allocation.device + site)
        elif allocation.pci_bus_id:
            addresses.add((*names, allocation.resource, allocation.pci_bus_id))
    dropped = 0
    for family, series in ((ACCELERATOR_INFO, accelerators), (PCI_DEVICE_INFO, addresses)):
        for values in sorted(series)[:max_series]:
            readings.add(family, 1, *values)
        dropped += max(0, len(series) - max_series)
    readings.add(DROPPED, dropped, "series")
    _add_pods(readings, held, pods)


def _add_pods(readings: Readings, held: list[Allocation], pods: Mapping[str, KnownPod]) -> None:
    keys = {allocation.container.pod_key for allocation in held}
    known = [pods[key] for key in keys if key in pods]
    readings.add(PODS, len(known), "known")
    readings.add(PODS, len(keys) - len(known), "unknown")
    for label in OWNER_LABELS:
        readings.add(WITHOUT_LABEL, sum(label not in pod.labels for pod in known), label)


def add_counts(
    readings: Readings, held: list[Allocation], allocatable: Iterable[Devices] | None
) -> None:
    """Expose how many devices of each resource there are; an allocatable resource that no
    container has counts 0.
    """
    capacity: dict[str, set[str]] = {}
    for devices in allocatable or ():
        capacity.setdefault(devices.resource, set()).update(devices.ids)
    allocated: dict[str, set[str]] = {resource: set() for resource in capacity}
    unresolved: Counter[str] = Counter()
    for allocation in held:
        ids = allocated.setdefault(allocation.resource, set())
        if allocation.device is None and allocation.device_id not in ids:
            unresolved[allocation.resource] += 1
        ids.add(allocation.device_id)
    for resource in sorted(allocated)[:MAX_RESOURCES]:
        if resource in capacity:
            readings.add(ALLOCATABLE, len(capacity[resource]), resource)
        readings.add(ALLOCATED, len(allocated[resource]), resource)
        if is_accelerator(resource):
            readings.add(UNRESOLVED, unresolved[resource], resource)
