"""Maps the device IDs of device plugins and drivers to the labels of an accelerator. Pure.

An ambiguous ID is not resolved: the caller counts it.

- NVIDIA/k8s-device-plugin: the uuid of the GPU or of the MIG instance, for a shared one with a
  replica behind it (`GPU-…::3`); HAMi writes `GPU-…-3`; old MIG uuids have that of the GPU inside.
- Ascend/mind-cluster's device plugin: `Ascend910-3`, the physical id, newer `npu-3`; of a vNPU
  `Ascend910-2c-100-3`: template, id of the vNPU, physical id.
- Google's plugin: `nvidia3`, the minor number, with `/gi1` (MIG) or `/vgpu2` (shared) behind it.
- NVIDIA's DRA driver: `gpu-3`, in its first versions the index, since 25.3 the minor number, of a
  MIG instance with `-mig-…` behind it: known where both are the same GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from nodevitals.probes.kubernetes.podresources import Claim

NVIDIA, ASCEND = "nvidia", "ascend"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_REPLICA = r"(?:::[0-9]{1,6}|-[0-9]{1,6})?"
_GPU = re.compile(rf"(GPU-{_UUID}){_REPLICA}")
_MIG = re.compile(rf"(MIG-{_UUID})(?:::[0-9]{{1,6}})?")
_OLD_MIG = re.compile(rf"MIG-(GPU-{_UUID})/[0-9]{{1,3}}/[0-9]{{1,3}}(?:::[0-9]{{1,6}})?")
_INDEX = re.compile(r"([0-9]{1,4})(?:::[0-9]{1,6})?")
_MINOR = re.compile(r"nvidia([0-9]{1,4})(?:/gi[0-9]{1,3})?(?:/vgpu[0-9]{1,4})?")
_DRA_GPU = re.compile(r"gpu-([0-9]{1,4})(?:-mig-[0-9-]{1,32})?")
_NPU = re.compile(r"(?:Ascend[0-9A-Za-z]{1,16}|npu)-([0-9]{1,4})")
_VNPU = re.compile(r"Ascend[0-9A-Za-z]{1,16}-[0-9a-z.]{1,32}-[0-9]{1,6}-([0-9]{1,4})")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
_IN_TEXT = re.compile(rf"GPU-{_UUID}|MIG-{_UUID}")
GPU_DRIVER = "gpu.nvidia.com"
MAX_ANNOTATION = 1024


class Device(NamedTuple):
    """The labels of an accelerator; `device` is '' if its index is not known."""

    vendor: str
    device: str
    uuid: str


class Node(msgspec.Struct):
    """The accelerators of the node: uuid by index, by vendor; the GPU of each MIG instance; and
    the uuid by minor number of NVIDIA's device nodes.
    """

    uuids: dict[str, dict[str, str]] = {}
    gpus: dict[str, str] = {}
    minors: dict[str, str] = {}

    def device(self, vendor: str, uuid: str) -> Device:
        """The labels of an accelerator with this uuid."""
        by_index = self.uuids.get(vendor, {})
        index = next((number for number, known in by_index.items() if known == uuid), "")
        return Device(vendor, index, uuid)

    def by_index(self, vendor: str, index: str) -> Device | None:
        """The accelerator with this index; None if it is not known."""
        uuid = self.uuids.get(vendor, {}).get(str(int(index)))
        return None if uuid is None else Device(vendor, str(int(index)), uuid)


def is_accelerator(resource: str) -> bool:
    """Whether a resource, or the driver of a claim, is for accelerators."""
    domain, _, name = resource.partition("/")
    if domain == "nvidia.com":
        return name.startswith(("gpu", "mig-")) and name not in ("gpumem", "gpucores")
    if domain == "huawei.com":
        return name.startswith(("Ascend", "npu"))
    return resource == GPU_DRIVER


def pci_address(device_id: str) -> str:
    """The PCI address in an ID, as plugins for SR-IOV write it; '' for another ID."""
    return device_id if _PCI.fullmatch(device_id) else ""


def resolve(resource: str, device_id: str, node: Node) -> Device | None:
    """The accelerator with this ID; None if it is no accelerator, or not known."""
    device = _by_uuid(device_id, node)
    if device is not None or not is_accelerator(resource):
        return device
    if resource.startswith("huawei.com/"):
        match = _NPU.fullmatch(device_id) or _VNPU.fullmatch(device_id)
        return node.by_index(ASCEND, match[1]) if match else None
    match = _MINOR.fullmatch(device_id)
    if match:
        uuid = node.minors.get(match[1])
        return None if uuid is None else node.device(NVIDIA, uuid)
    match = _INDEX.fullmatch(device_id)
    return node.by_index(NVIDIA, match[1]) if match else None


def resolve_claim(claim: Claim, node: Node) -> Device | None:
    """The accelerator of a claim; None if it is no accelerator, or not known."""
    if claim.driver != GPU_DRIVER:
        return None
    for text in (claim.device, *claim.cdi):
        match = _IN_TEXT.search(text)
        if match:
            return _by_uuid(match[0], node)
    match = _DRA_GPU.fullmatch(claim.device)
    if match is None:
        return None
    by_index = node.by_index(NVIDIA, match[1])
    same = by_index is not None and node.minors.get(match[1]) == by_index.uuid
    return by_index if same else None


def needs_minors(ids: Iterable[str]) -> bool:
    """Whether any of these IDs has a minor number of NVIDIA's device nodes."""
    return any(_MINOR.fullmatch(device_id) or _DRA_GPU.fullmatch(device_id) for device_id in ids)


def parse_minor(text: str) -> tuple[str, str] | None:
    """Minor number and uuid of a GPU from /proc/driver/nvidia/gpus/…/information."""
    values = dict(line.partition(":")[::2] for line in text.splitlines())
    minor, uuid = values.get("Device Minor", "").strip(), values.get("GPU UUID", "").strip()
    return (minor, uuid) if minor.isdecimal() and _GPU.fullmatch(uuid) else None


def chosen_npus(annotations: Mapping[str, str]) -> tuple[str, ...] | None:
    """The NPUs that a pod really has if Volcano has chosen them: the kubelet has recorded others.
    () until Ascend's plugin has annotated the pod; None if the kubelet chose them.
    """
    text = annotations.get("huawei.com/AscendReal", "")
    chosen = tuple(name for name in re.split(r"[,\s]", text[:MAX_ANNOTATION]) if name)
    by_volcano = any(name in annotations for name in ("huawei.com/kltDev", "predicate-time"))
    return chosen if chosen or by_volcano else None


def _by_uuid(device_id: str, node: Node) -> Device | None:
    match = _GPU.fullmatch(device_id) or _OLD_MIG.fullmatch(device_id)
    if match:
        return node.device(NVIDIA, match[1])
    match = _MIG.fullmatch(device_id)
    uuid = node.gpus.get(match[1]) if match else None
    return None if uuid is None else node.device(NVIDIA, uuid)
