"""Outputs of Nagios plugins and of nhc: what they say in base units, and never more than that."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.scripts.nagios import (
    MAX_LABEL_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    MAX_VALUES,
    Value,
    clean,
    parse_nhc,
    parse_output,
)
from nodevitals.probes.scripts.program import Ended
from nodevitals.probes.scripts.script import Result, result_of
from nodevitals.probes.scripts.settings import ScriptSettings


def values(text: str, kilobyte: int = 1000) -> dict[str, tuple[float, str]]:
    report = parse_output(f"OK | {text}", kilobyte)
    return {one.label: (one.value, one.unit) for one in report.values}


@pytest.mark.parametrize(
    ("data", "value", "unit"),
    [
        ("a=5", 5, "none"),
        ("a=-0.5;1;2;0;10", -0.5, "none"),
        ("a=1.5s", 1.5, "seconds"),
        ("a=20ms;@10:20;~:5", 0.02, "seconds"),
        ("a=3us", 3e-6, "seconds"),
        ("a=12.5%;80;90;0;100", 0.125, "ratio"),
        ("a=7B", 7, "bytes"),
        ("a=2KB", 2000, "bytes"),
        ("a=2MB", 2e6, "bytes"),
        ("a=2GB;;;0;", 2e9, "bytes"),
        ("a=2TB", 2e12, "bytes"),
        ("a=17c", 17, "counter"),
        ("a=1e3", 1000, "none"),
    ],
)
def test_values_are_in_base_units(data: str, value: float, unit: str) -> None:
    report = parse_output(f"OK | {data}")
    assert report.values == (Value("a", report.values[0].value, unit),)
    assert report.values[0].value == pytest.approx(value)
    assert report.invalid == 0


def test_a_kilobyte_has_1024_bytes_where_configured() -> None:
    assert values("a=2MB", 1024) == {"a": (2 * 1024**2, "bytes")}


def test_quoted_labels_have_spaces_and_quotes() -> None:
    found = values("'/var lib'=1MB;2;3 'it''s'=4 plain=5%")
    assert list(found) == ["/var lib", "it's", "plain"]


def test_data_of_further_lines_counts() -> None:
    text = "DISK OK - free | /=1MB\n/ 15272 MB\n/boot 68 MB | /boot=2MB\n/home=3MB\n"
    report = parse_output(text)
    assert report.text == "DISK OK - free"
    assert [one.label for one in report.values] == ["/", "/boot", "/home"]


@pytest.mark.parametrize(
    "data",
    [
        "a=",
        "a=1,5",
        "a=1mB",
        "a=0x10",
        "a=nan",
        "a=inf",
        "a=1e999",
        "a=-1c",
        "a=1_000",
        "a=٣",
        "a=1;2;3;4;5;6",
        "a=1;two",
        "'a=1",
        "=1",
        "word",
        f"{'a' * (MAX_LABEL_CHARACTERS + 1)}=1",
        "'a\x07'=1",
    ],
)
def test_an_invalid_item_is_missing_and_counted(data: str) -> None:
    report = parse_output(f"OK | {data} b=2")
    assert [one.label for one in report.values] == ["b"]
    assert report.invalid == 1


def test_an_unknown_value_is_missing_and_not_an_error() -> None:
    assert parse_output("OK | a=U;1;2") == parse_output("OK")


def test_the_first_of_two_equal_labels_counts() -> None:
    report = parse_output("OK | a=1 a=2")
    assert [one.value for one in report.values] == [1]
    assert report.invalid == 1


def test_too_many_values_are_counted() -> None:
    report = parse_output("OK |" + "".join(f" a{index}=1" for index in range(MAX_VALUES + 5)))
    assert len(report.values) == MAX_VALUES
    assert report.invalid == 5


@given(st.text(max_size=300))
def test_any_output_gives_bounded_finite_values(text: str) -> None:
    report = parse_output(f"OK | {text}")
    assert len(report.text) <= MAX_TEXT_CHARACTERS
    assert report.text.isprintable()
    assert len({one.label for one in report.values}) == len(report.values) <= MAX_VALUES
    for one in report.values:
        assert math.isfinite(one.value)
        assert one.label.isprintable()
        assert 0 < len(one.label) <= MAX_LABEL_CHARACTERS


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20),
    st.floats(-1e12, 1e12),
)
def test_what_the_guidelines_allow_is_read(label: str, number: float) -> None:
    label = label.replace("=", "_").replace("|", "_")
    written = label.replace("'", "''")
    assert values(f"'{written}'={number!r};1:2;@3:4;0;9") == {label: (number, "none")}


def ended(status: int | None, output: str = "", error: str = "") -> Ended:
    return Ended(status, output, error, 0)


def said(result: Result) -> tuple[str, str, str]:
    return result.status, result.failure, result.report.text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, ("ok", "", "said so")),
        (1, ("warning", "", "said so")),
        (2, ("critical", "", "said so")),
        (3, ("unknown", "", "said so")),
        (4, ("unknown", "status", "exit status 4: said so")),
        (255, ("unknown", "status", "exit status 255: said so")),
        (-9, ("unknown", "signal", "ended by signal 9")),
        (None, ("unknown", "timeout", "did not end in time and was ended")),
    ],
)
def test_exit_statuses(status: int | None, expected: tuple[str, str, str]) -> None:
    assert said(result_of(ended(status, "said so | a=1\n"), ScriptSettings(name="x"))) == expected


def test_text_of_a_script_that_prints_to_standard_error() -> None:
    result = result_of(ended(2, "", "\n bad \n"), ScriptSettings(name="x"))
    assert said(result) == ("critical", "", "bad")


NHC = "ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted"


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, "", ("ok", "", "no failed check")),
        (1, NHC, ("critical", "", "check_fs_mount: /scratch not mounted")),
        (77, f"begin\n{NHC}\n", ("critical", "", "check_fs_mount: /scratch not mounted")),
        (
            1,
            "nhc: bad option",
            ("unknown", "output", "exit status 1: nhc: bad option"),
        ),
        (10, "", ("unknown", "output", "exit status 10:")),
        (
            142,
            "ERROR:  nhc:  Health check failed:  Script timed out.",
            ("unknown", "timeout", "Script timed out."),
        ),
    ],
)
def test_results_of_nhc(status: int, output: str, expected: tuple[str, str, str]) -> None:
    script = ScriptSettings(name="nhc", output="nhc")
    assert said(result_of(ended(status, output), script)) == expected
    assert said(result_of(ended(status, "", output), script)) == expected


def test_nhc_without_its_line() -> None:
    assert parse_nhc("all is well") is None


@given(st.text())
def test_texts_are_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()
