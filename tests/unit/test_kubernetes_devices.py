"""Device IDs of every plugin and driver, and those that do not say which accelerator they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.kubernetes.devices import (
    Node,
    chosen_npus,
    is_accelerator,
    parse_minor,
    pci_address,
    resolve,
    resolve_claim,
)
from nodevitals.probes.kubernetes.podresources import Claim
from testbed.kubelet import gpu_uuid, mig_uuid

NODE = Node(
    uuids={
        "nvidia": {"0": gpu_uuid(0), "1": gpu_uuid(1)},
        "ascend": {"3": "AA-BB-3", "12": "AA-BB-12"},
    },
    gpus={mig_uuid(5): gpu_uuid(1)},
    # GPU 1 has the same number in both orders, GPU 0 has not.
    minors={"1": gpu_uuid(1), "4": gpu_uuid(0), "0": gpu_uuid(7)},
)
GPU, MIG, NPU = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "huawei.com/Ascend910"


@pytest.mark.parametrize(
    ("resource", "device_id", "device", "uuid"),
    [
        (GPU, gpu_uuid(1), "1", gpu_uuid(1)),
        (GPU, gpu_uuid(9), "", gpu_uuid(9)),
        ("nvidia.com/gpu.shared", f"{gpu_uuid(1)}::3", "1", gpu_uuid(1)),
        (GPU, f"{gpu_uuid(1)}-3", "1", gpu_uuid(1)),
        ("example.com/a100", gpu_uuid(0), "0", gpu_uuid(0)),
        (GPU, "1", "1", gpu_uuid(1)),
        (GPU, "1::2", "1", gpu_uuid(1)),
        (MIG, mig_uuid(5), "1", gpu_uuid(1)),
        (f"{MIG}.shared", f"{mig_uuid(5)}::1", "1", gpu_uuid(1)),
        (MIG, f"MIG-{gpu_uuid(0)}/7/0", "0", gpu_uuid(0)),
        (GPU, "nvidia4", "0", gpu_uuid(0)),
        (GPU, "nvidia4/gi1", "0", gpu_uuid(0)),
        (GPU, "nvidia1/vgpu3", "1", gpu_uuid(1)),
        (NPU, "Ascend910-3", "3", "AA-BB-3"),
        ("huawei.com/Ascend310P", "Ascend310P-12", "12", "AA-BB-12"),
        ("huawei.com/npu", "npu-3", "3", "AA-BB-3"),
        ("huawei.com/Ascend910-2c", "Ascend910-2c-100-3", "3", "AA-BB-3"),
        ("huawei.com/Ascend310P-4c.3cpu", "Ascend310P-4c.3cpu-101-12", "12", "AA-BB-12"),
    ],
)
def test_id_names_its_accelerator(resource: str, device_id: str, device: str, uuid: str) -> None:
    found = resolve(resource, device_id, NODE)
    assert found is not None
    assert (found.device, found.uuid) == (device, uuid)
    assert found.vendor == ("ascend" if resource.startswith("huawei") else "nvidia")


@pytest.mark.parametrize(
    ("resource", "device_id"),
    [
        (GPU, "2"),
        (GPU, "nvidia9"),
        (GPU, "GPU-1"),
        (MIG, mig_uuid(6)),
        (NPU, "Ascend910-5"),
        (NPU, "Ascend910-3-0"),
        (NPU, "3"),
        ("rdma/hca_shared_devices_a", "1"),
        ("example.com/fuse", "Ascend910-3"),
        (GPU, ""),
    ],
)
def test_id_that_does_not_say_is_not_guessed(resource: str, device_id: str) -> None:
    assert resolve(resource, device_id, NODE) is None


@pytest.mark.parametrize(
    ("name", "cdi", "uuid"),
    [
        ("gpu-1", (), gpu_uuid(1)),
        ("gpu-1-mig-19-0-1", (), gpu_uuid(1)),
        ("gpu-0", (), None),
        ("gpu-4", (), None),
        ("gpu-0", (f"k8s.gpu.nvidia.com/device={gpu_uuid(0)}",), gpu_uuid(0)),
        ("gpu-vfio-1", (), None),
        ("imex-channel-0", (), None),
    ],
)
def test_claim_is_resolved_where_index_and_minor_number_agree(
    name: str, cdi: tuple[str, ...], uuid: str | None
) -> None:
    found = resolve_claim(Claim("gpu.nvidia.com", "node-7", name, cdi), NODE)
    assert (None if found is None else found.uuid) == uuid
    assert resolve_claim(Claim("dra.net", "node-7", name, cdi), NODE) is None


def test_npus_are_those_that_volcano_chose() -> None:
    """Ascend's plugin gives the pod other NPUs than the kubelet asked for."""
    annotations = {"huawei.com/kltDev": "Ascend910-1", "huawei.com/AscendReal": "Ascend910-2"}
    assert chosen_npus(annotations) == ("Ascend910-2",)
    assert chosen_npus({"huawei.com/AscendReal": "Ascend910-2,Ascend910-3"}) == (
        "Ascend910-2",
        "Ascend910-3",
    )
    assert chosen_npus({"predicate-time": "1"}) == ()
    assert chosen_npus({"unrelated": "Ascend910-2"}) is None


def test_minor_number_is_read_from_the_driver() -> None:
    text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {gpu_uuid(3)}\nDevice Minor: \t 5\n"
    assert parse_minor(text) == ("5", gpu_uuid(3))
    # Before the GPU is initialized.
    assert parse_minor("GPU UUID: \t GPU-????????-????\nDevice Minor: \t 5\n") is None
    assert parse_minor("") is None


def test_other_resources_are_no_accelerators() -> None:
    assert is_accelerator("nvidia.com/mig-1g.10gb")
    assert is_accelerator("gpu.nvidia.com")
    assert not is_accelerator("nvidia.com/hostdev")
    assert not is_accelerator("rdma/hca_shared_devices_a")
    assert pci_address("0000:c1:00.3") == "0000:c1:00.3"
    assert pci_address("0000:C1:00") == ""


@given(st.text(max_size=60), st.sampled_from([GPU, MIG, NPU, "rdma/x"]))
def test_any_id_is_resolved_or_not(device_id: str, resource: str) -> None:
    found = resolve(resource, device_id, NODE)
    assert found is None or found.uuid
