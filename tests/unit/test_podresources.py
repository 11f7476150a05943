"""The kubelet's answers: what is read of them, and bytes that are none."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.probes.kubernetes.podresources import (
    Claim,
    Devices,
    Message,
    parse_allocatable,
    parse_list,
)
from testbed.kubelet import field, varint

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


@cache
def node_class() -> Any:
    """Google's class of a message with a text 1, texts 2, and messages of its own type 3."""
    file = descriptor_pb2.FileDescriptorProto(name="node.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Node")
    for name, number, label, kind in (
        ("text", 1, kinds.LABEL_OPTIONAL, kinds.TYPE_STRING),
        ("texts", 2, kinds.LABEL_REPEATED, kinds.TYPE_STRING),
        ("nodes", 3, kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE),
    ):
        added = message.field.add(name=name, number=number)
        added.label, added.type = label, kind
        if kind == kinds.TYPE_MESSAGE:
            added.type_name = ".t.Node"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Node"))


def read_by_google(data: bytes) -> Any:
    """Text, texts and messages; None where the bytes are no message."""

    def values(node: Any) -> Any:
        return node.text, list(node.texts), [values(one) for one in node.nodes]

    message = node_class()()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return values(message)


def read_by_us(data: bytes) -> Any:
    """The same."""

    def values(node: Message) -> Any:
        return node.text(1), node.texts(2), [values(one) for one in node.messages(3)]

    try:
        return values(Message(data))
    except ValueError:
        return None


def key(number: int, kind: int) -> bytes:
    """The beginning of a field."""
    return varint(number << 3 | kind)


# Fields, whole and not, and numbers and lengths that are too long; no group.
PIECES = st.recursive(
    st.one_of(
        st.builds(key, st.integers(0, 6), st.sampled_from([0, 1, 2, 5, 6, 7])),
        st.builds(field, st.integers(1, 4), st.text(max_size=3)),
        st.builds(field, st.integers(1, 4), st.integers(0, 2**64 - 1)),
        st.builds(field, st.sampled_from([1, 2**29 - 1, 2**29]), st.binary(max_size=3)),
        st.integers(0, 12).map(lambda count: b"\xff" * count + b"\x01"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(b"".join), st.builds(field, st.integers(1, 4), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=1000)
@given(st.one_of(PIECES, st.binary(max_size=30)))
def test_bytes_mean_what_they_mean_to_google_s_library(data: bytes) -> None:
    """Or nothing, as a group does."""
    assert read_by_us(data) in (read_by_google(data), None)


@settings(max_examples=1000)
@given(
    st.lists(
        st.one_of(
            *(
                st.builds(field, st.integers(1, 4), one)
                for one in (
                    st.text(max_size=3),
                    st.integers(0, 2**64 - 1),
                    st.builds(field, st.just(1), st.text(max_size=3)),
                )
            )
        ),
        max_size=5,
    ).map(b"".join)
)
def test_whole_messages_are_read_as_google_s_library_reads_them(data: bytes) -> None:
    assert read_by_us(data) == read_by_google(data)
