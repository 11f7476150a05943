"""The kubelet's answers: what is read of them, and bytes that are none."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.kubernetes.podresources import (
    Claim,
    Devices,
    parse_allocatable,
    parse_list,
)
from testbed.kubelet import field

SHORT = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)


def answer(*devices: bytes, more: bytes = b"") -> bytes:
    """An answer to List: one pod with one container."""
    container = field(1, "main") + b"".join(field(2, one) for one in devices) + more
    return field(1, field(1, "job-0") + field(2, "train") + field(3, container))


def test_container_with_devices_is_read_and_others_are_left_out() -> None:
    data = answer(field(1, "nvidia.com/gpu") + field(2, "GPU-1") + field(2, "GPU-2"))
    [found] = parse_list(data + answer(more=field(3, b"\x00\x01")))
    assert (found.namespace, found.pod, found.name) == ("train", "job-0", "main")
    assert found.devices == (Devices("nvidia.com/gpu", ("GPU-1", "GPU-2")),)


def test_claim_has_driver_pool_device_and_cdi_names() -> None:
    names = field(1, field(1, "k8s.gpu.nvidia.com/device=gpu-0"))
    names += field(2, "gpu.nvidia.com") + field(3, "node-7") + field(4, "gpu-0") + field(5, "later")
    claim = field(2, "a-claim") + field(3, "train") + field(4, names)
    [found] = parse_list(answer(more=field(5, claim)))
    cdi = ("k8s.gpu.nvidia.com/device=gpu-0",)
    assert found.claims == (Claim("gpu.nvidia.com", "node-7", "gpu-0", cdi),)


@pytest.mark.parametrize("text", ["a\nb", "x" * 600, "\x1b[31m"])
def test_text_that_is_no_name_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        parse_list(answer(field(1, text)))


def test_cut_answer_is_an_error() -> None:
    data = answer(field(1, "nvidia.com/gpu") + field(2, "GPU-1"))
    for end in range(1, len(data)):
        with pytest.raises(ValueError, match="not a ListPodResourcesResponse"):
            parse_list(data[:end])
    assert parse_list(b"") == []


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for parse in (parse_list, parse_allocatable):
        with contextlib.suppress(ValueError):
            parse(data)


@given(SHORT, st.lists(SHORT, max_size=5), st.binary(max_size=20))
def test_fields_that_a_later_version_adds_are_skipped(
    resource: str, ids: list[str], added: bytes
) -> None:
    devices = field(1, resource) + b"".join(field(2, one) for one in ids) + field(9, added)
    assert parse_allocatable(field(1, devices) + field(7, added) + field(2000, 5)) == [
        Devices(resource, tuple(ids))
    ]
