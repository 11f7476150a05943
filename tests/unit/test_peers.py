"""Who the peers are, from what people and Prometheus write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.document import DocumentError
from nodevitals.probes.common.targets import Peer, is_address, parse_address, parse_file


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
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, 22) == address


@pytest.mark.parametrize(
    "text", ["", ":22", "a:b", "a:0", "a:65536", "[fd00::2", "[fd00::2]22", "http://a:80", " a:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no address|is no port"):
        parse_address(text, 22)


def test_a_file_in_either_format() -> None:
    text = b'[{"targets": ["a:1", "b"], "labels": {"rack": "r1"}}, {"targets": []}]'
    assert parse_file(text, 22, "ssh") == [Peer("a", 1, "ssh"), Peer("b", 22, "ssh")]
    text = b"- targets:\n  - a:1\n  labels:\n    rack: r1\n"
    assert parse_file(text, 22, "tcp") == [Peer("a", 1, "tcp")]
    assert parse_file(b"[]", 22, "tcp") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expected a list, got nothing"),  # somebody is about to write it
        (b"targets: [a]", "Expected a list"),
        (b"- {targets: [a], label: {}}", "[0].label: unknown key"),
        (b"- {targets: [1]}", "[0].targets[0]: Expected `str`"),
        (b"- {targets: ['a:x']}", "[0].targets[0]: 'a:x': 'x' is no port"),
        (b"- targets: [a", "not valid YAML"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_a_file_that_does_not_fit_says_where(text: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        parse_file(text, 22, "tcp")
    assert message in str(error.value)


@given(st.binary(max_size=200))
def test_any_file_is_peers_or_problems(text: bytes) -> None:
    try:
        peers = parse_file(text, 22, "tcp")
    except DocumentError:
        return
    assert all(peer.host and 0 < peer.port < 65536 for peer in peers)


def test_which_hosts_need_a_name_service() -> None:
    assert is_address("10.0.0.1")
    assert is_address("fd00::1")
    assert not is_address("10.0.0")
    assert not is_address("node-2")
