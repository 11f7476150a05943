"""Comments that silence a finding of `nodevitals rules check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.commands.rules.check import check

SILENCED = """\
groups:
  - name: g
    rules:
      {above}
      - record: one  {beside}
        expr: |
          nodevitals_one
          {within}

      # A comment.
      {next}
      - record: two
        expr: vector(2)
"""


@pytest.mark.parametrize("place", ["above", "beside", "within"])
def test_a_comment_with_a_reason_silences_a_finding(tmp_path: Path, place: str) -> None:
    places = dict.fromkeys(("above", "beside", "within", "next"), "#")
    places[place] = "# nodevitals disable metric/unknown: exposed by a script of this site"
    (tmp_path / "a.yaml").write_text(SILENCED.format(**places))
    assert check([tmp_path], None) == []


@pytest.mark.parametrize(
    ("place", "comment", "name", "line", "rule"),
    [
        ("above", "metric/unknown", "silence/no-reason", 4, "one"),
        ("above", "metric/unknown:", "silence/no-reason", 4, "one"),
        ("above", "metric/unknow: reason", "silence/unknown", 4, "one"),
        ("above", ": reason", "silence/unknown", 4, "one"),
        ("next", "metric/unknown: reason", "silence/unused", 11, "two"),
        ("top", "metric/unknown: reason", "silence/unused", 1, ""),
    ],
)
def test_a_comment_that_silences_nothing_is_a_finding(
    tmp_path: Path, place: str, comment: str, name: str, line: int, rule: str
) -> None:
    places = dict.fromkeys(("above", "beside", "within", "next"), "#")
    places[place] = f"# nodevitals disable {comment}"
    text = SILENCED.format(**places)
    (tmp_path / "a.yaml").write_text(f"{places['top']}\n\n{text}" if place == "top" else text)
    found = check([tmp_path], None)
    assert [finding.id for finding in found if finding.id != name] == ["metric/unknown"]
    (finding,) = (finding for finding in found if finding.id == name)
    assert (finding.line, finding.rule) == (line, rule)


def test_a_comment_for_an_id_that_is_not_searched_is_no_finding(tmp_path: Path) -> None:
    places = dict.fromkeys(("above", "beside", "within", "next"), "#")
    places["next"] = "# nodevitals disable test/missing: tested elsewhere"
    (tmp_path / "a.yaml").write_text(SILENCED.format(**places))
    assert [finding.id for finding in check([tmp_path], None)] == ["metric/unknown"]
    ids = [finding.id for finding in check([tmp_path], None, strict=True)]
    assert sorted(ids) == ["metric/unknown", "silence/unused"]


def test_a_comment_silences_its_own_rule_only(tmp_path: Path) -> None:
    text = SILENCED.replace("vector(2)", "nodevitals_two")
    comment = "# nodevitals disable metric/unknown: reason"
    text = text.format(above=comment, beside="", within="", next="#")
    (tmp_path / "a.yaml").write_text(text)
    assert [finding.rule for finding in check([tmp_path], None)] == ["two"]
