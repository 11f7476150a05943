"""Addresses and lists of peers, as people and Prometheus write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.document import DocumentError
from nodevitals.probes.common.addresses import (
    ListedTarget,
    is_address,
    parse_address,
    parse_file,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node-2", ("node-2", 22)),
        ("node-2:2222", ("node-2", 2222)),
        ("10.0.0.2:1", ("10.0.0.2", 1)),
        ("[fd00::2]:2222", ("fd00::2", 2222)),
        ("[fd00::2]", ("fd00::2", 22)),
        ("fd00::2", ("fd00::2", 22)),
    ],
)
def test_address_has_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, 22) == address


@pytest.mark.parametrize("host", ["a..b", "a" * 70, "a b", "a\0b", "", "\ud800", "1.2.3"])
def test_impossible_names_are_no_addresses(host: str) -> None:
    assert not is_address(host)


@pytest.mark.parametrize(
    "text", ["", ":22", "a:b", "a:0", "a:65536", "[fd00::2", "[fd00::2]22", "http://a:80", " a:1"]
)
def test_malformed_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no address|is no port"):
        parse_address(text, 22)


def test_file_is_json_or_yaml() -> None:
    text = b'[{"targets": ["a:1", "b"], "labels": {"rack": "r1"}}, {"targets": []}]'
    assert parse_file(text, 22) == [ListedTarget("a", 1), ListedTarget("b", 22)]
    assert parse_file(text, 22, "rack") == [ListedTarget("a", 1, "r1"), ListedTarget("b", 22, "r1")]
    text = b"- targets:\n  - a:1\n  labels:\n    rack: r1\n"
    assert parse_file(text, 22) == [ListedTarget("a", 1)]
    assert parse_file(b"[]", 22) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has no value: write a list"),  # about to be written
        (b"targets: [a]", "is a mapping: write a list"),
        (b"- {targets: [a], label: {}}", "[0].label: unknown key"),
        (b"- {targets: [1]}", "[0].targets[0]: 1 is a number: write text, here in quotes"),
        (b"- {targets: ['a:x']}", "[0].targets[0]: 'a:x': 'x' is no port"),
        (b"- targets: [a", "not valid YAML"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_malformed_file_is_reported_with_paths(text: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        parse_file(text, 22)
    assert message in str(error.value)


@given(st.binary(max_size=200))
def test_any_file_gives_targets_or_problems(text: bytes) -> None:
    try:
        targets = parse_file(text, 22)
    except DocumentError:
        return
    assert all(one.host and 0 < one.port < 65536 for one in targets)


def test_addresses_need_no_name_service() -> None:
    assert is_address("10.0.0.1")
    assert is_address("fd00::1")
    assert not is_address("10.0.0")
    assert not is_address("node-2")
