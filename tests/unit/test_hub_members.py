"""The hub's lists of nodes: what is wrong in one costs that list, or that node."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodevitals.checks.model import NodeName
from nodevitals.document import DocumentError
from nodevitals_hub.checks.members import Members, parse_list
from nodevitals_hub.settings.hub import NodesSettings

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
GROUP = st.fixed_dictionaries({"targets": VALUES}, optional={"labels": VALUES, "x": VALUES})


@given(st.one_of(VALUES, st.lists(st.one_of(GROUP, VALUES), max_size=4)))
@example([{"targets": [1, {"a": "b"}]}])
@example([None, {"targets": ["gpu-1"], "labels": None}])
def test_any_list_is_members_or_problems(found: object) -> None:
    text = msgspec.json.encode(found)
    with contextlib.suppress(DocumentError):
        assert all(member.name for member in parse_list(text, 9856))


def test_a_list_with_an_entry_that_is_none_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    settings = NodesSettings(file_sd=(str(path),))
    members = Members()
    path.write_text("[{targets: [gpu-1]}]")
    members.read(settings)
    path.write_text("[{targets: [1, {a: b}]}]")
    members.read(settings)
    assert list(members.by_name) == ["gpu-1"]
    assert "its last 1 nodes stay" in members.problems[0]


@pytest.mark.parametrize("odd", ["[fd00::1]:9856", "fd00::2", "-oProxyCommand=x", "a b", "ü"])
def test_a_name_that_no_request_can_have_is_left_out(tmp_path: Path, odd: str) -> None:
    """A check of a label would have it: its record could not be read again."""
    path = tmp_path / "nodes.json"
    path.write_bytes(msgspec.json.encode([{"targets": ["gpu-1:9856", odd]}]))
    members = Members()
    members.read(NodesSettings(file_sd=(str(path),)))
    assert list(members.by_name) == ["gpu-1"]
    assert all(msgspec.convert(name, NodeName) for name in members.by_name)
    assert members.problems[0].startswith("1 of the listed nodes are left out, such as ")
