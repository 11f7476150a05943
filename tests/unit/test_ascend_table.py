"""The table of npu-smi: in every layout a value is right or missing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.probes.ascend.table import MEBIBYTE, Chip, parse_table
from testbed.npus import LAYOUTS, chip, table


def truth(one: dict[str, Any], layout: str) -> dict[str, Any]:
    """Return the values that a parsed chip may have."""
    form = LAYOUTS[layout]
    power = one["power"]
    hbm = one["hbm"] if form["hbm"] else (None, None)
    return {
        "name": one["name"],
        "bus_id": one["bus"].lower(),
        "health": {"OK": 0, "Warning": 1, "Alarm": 2, "Critical": 3}[one["health"]],
        "power_watts": None if power in ("-", "NA") else float(power),
        "temperature_celsius": float(one["temperature"]),
        "utilization_ratio": one["utilization"] / 100,
        "memory_used_bytes": one["memory"][0] * MEBIBYTE,
        "memory_total_bytes": one["memory"][1] * MEBIBYTE,
        "hbm_used_bytes": None if hbm[0] is None else hbm[0] * MEBIBYTE,
        "hbm_total_bytes": None if hbm[1] is None else hbm[1] * MEBIBYTE,
    }


def wrong(parsed: Chip, one: dict[str, Any], layout: str) -> list[str]:
    """Return the fields that are neither right nor missing."""
    right = truth(one, layout)
    return [
        name
        for name, value in right.items()
        if name != "name" and getattr(parsed, name) not in (value, None, "")
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_parsed_completely(layout: str) -> None:
    chips = [
        chip(0, name="910B3", physical=4),
        chip(1, name="Ascend950PR", health="Warning", power="-", hbm=(61609, 65536)),
        chip(32768, name="310P3", health="Critical", power="NA", physical=11, processes=0),
    ]
    chips = [one | {"bus": f"0000:{at:02X}:00.0"} for at, one in enumerate(chips)]
    read = parse_table(table(chips, layout))
    assert (len(read.chips), read.unparsed) == (3, 0)
    for parsed, one in zip(read.chips, chips, strict=True):
        assert (parsed.npu, parsed.chip) == (one["npu"], one["chip"])
        assert parsed.physical == (one["physical"] if LAYOUTS[layout]["device"] else None)
        for name, value in truth(one, layout).items():
            assert getattr(parsed, name) == value, (layout, name)
        assert read.processes_of(parsed) == one["processes"]


def test_two_chips_of_an_npu_are_two_devices() -> None:
    chips = [chip(0, die, physical=die, power="-" if die else "200.1") for die in (0, 1)]
    text = table(chips, "A3")
    lines = text.splitlines()
    between = [at for at, line in enumerate(lines) if line.startswith("+=")][1]
    lines[between] = "+" + "-" * (len(lines[between]) - 2) + "+"
    read = parse_table("\n".join(lines) + "\n")
    assert [(one.npu, one.chip, one.power_watts) for one in read.chips] == [
        (0, 0, 200.1),
        (0, 1, None),
    ]


@pytest.mark.parametrize(
    "nothing", [{"name": ""}, {"temperature": 0}, {"hbm": (0, 0)}], ids=["name", "heat", "hbm"]
)
def test_failed_query_that_prints_ok_is_not_healthy(nothing: dict[str, Any]) -> None:
    read = parse_table(table([chip(0, **nothing), chip(1)], "910B"))
    assert [one.health for one in read.chips] == [None, 0]
    assert read.chips[0].temperature_celsius is None
    assert read.chips[0].hbm_total_bytes is None


def test_header_in_another_language_leaves_the_values_and_an_unlisted_health_word_is_unknown() -> (
    None
):
    text = table([chip(0), chip(1, health="Alarm")], "910B")
    for english, other in {"Health": "健康状态", "Power(W)": "功率(W)", "Alarm": "告警"}.items():
        text = text.replace(english, other)
    read = parse_table(text)
    assert [(one.health, one.temperature_celsius) for one in read.chips] == [(0, 50), (None, 51)]
    assert read.unparsed == 1


def test_rows_that_do_not_alternate_are_dropped_and_counted() -> None:
    lines = table([chip(0), chip(1)], "910B").splitlines()
    rows = [line for line in lines if re.match(r"\| \d", line) and "trainer" not in line]
    head = lines[:6]
    swapped = [*head, rows[0], rows[2], rows[1], rows[3], lines[5]]
    read = parse_table("\n".join(swapped))
    assert (read.chips, read.unparsed) == ((), 4)


CHIPS = st.builds(
    lambda npu, health, power, heat, busy, memory, hbm, name: chip(
        npu,
        health=health,
        power=power,
        temperature=heat,
        utilization=busy,
        memory=memory,
        hbm=hbm,
        name=name,
        physical=npu + 1,
    ),
    st.integers(0, 40000),
    st.sampled_from(["OK", "Warning", "Alarm", "Critical"]),
    st.sampled_from(["-", "NA", "12.8", "98.5", "450.6"]),
    st.integers(1, 110),
    st.integers(0, 100),
    st.sampled_from([(0, 1), (1800, 15000), (44000, 44280)]),
    st.sampled_from([(0, 65536), (3300, 65536), (61609, 65536), (131000, 131072)]),
    st.sampled_from(["910B3", "Ascend950PR", "A name that is longer than its cell", "910B4-1"]),
)
MUTATIONS = ("none", "crlf", "cut", "drop", "widen", "squeeze", "wide", "extra", "junk", "tail")


def mutate(text: str, how: str, where: float) -> str:
    """Return a table changed as other versions, pipes and terminals change it."""
    lines = text.splitlines()
    rows = [at for at, line in enumerate(lines) if line.startswith("| ") and "trainer" not in line]
    if not rows:
        return text
    at = rows[int(where * len(rows))]
    line = lines[at]
    words = [match.span() for match in re.finditer(r"[^\s|]+", line)]
    start, end = words[int(where * len(words))] if words else (1, 1)
    if how == "crlf":
        return "\r\n".join(lines) + "\r\n"
    if how == "cut":
        return text[: int(where * len(text))]
    if how == "drop":  # a cell is empty
        lines[at] = line[:start] + " " * (end - start) + line[end:]
    elif how == "widen":
        lines = [one.replace("|", "   |   ") for one in lines]
    elif how == "squeeze":
        lines = [re.sub(r" {2,}", "  ", one) for one in lines]
    elif how == "wide":  # a wide character for a space moves all that follows
        lines[at] = line[:start] + "\u3000" + line[start:]
    elif how == "extra":  # one more column, in the header and in every row
        lines = [
            re.sub(r"\|$", "  New(x) |", one)
            if "Health" in one or "Bus-Id" in one
            else re.sub(r"\|$", "  77 |", one)
            if one.startswith("| ")
            else one
            for one in lines
        ]
    elif how == "junk":
        lines.insert(at, "[WARN] driver: something | 12 | 99 / 100 |")
    elif how == "tail":
        lines.append("Warning: the driver is 99 / 100 years old")
    return "\n".join(lines) + "\n"


@settings(max_examples=400, deadline=None)
@given(
    st.lists(CHIPS, min_size=1, max_size=4, unique_by=lambda one: one["npu"]),
    st.sampled_from(list(LAYOUTS)),
    st.lists(st.tuples(st.sampled_from(MUTATIONS), st.floats(0, 1, exclude_max=True)), max_size=3),
)
def test_changed_table_never_gives_a_wrong_number(
    chips: list[dict[str, Any]], layout: str, mutations: list[tuple[str, float]]
) -> None:
    chips = [one | {"bus": f"0000:{at:02X}:00.0"} for at, one in enumerate(chips)]
    text = table(chips, layout)
    for how, where in mutations:
        text = mutate(text, how, where)
    by_number = {one["npu"]: one for one in chips}
    for parsed in parse_table(text).chips:
        assert parsed.npu in by_number, text
        assert not wrong(parsed, by_number[parsed.npu], layout), text


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    assert parse_table(text).chips == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_of_rows_does_not_change_the_devices(layout: str) -> None:
    chips = [chip(number, physical=number) for number in range(4)]
    there = parse_table(table(chips, layout)).chips
    back = parse_table(table(chips[::-1], layout)).chips
    assert set(there) == set(back)
    assert len(there) == 4


def test_chip_that_is_listed_twice_is_dropped() -> None:
    chips = [chip(0), chip(0, temperature=99), chip(1)]
    assert [one.npu for one in parse_table(table(chips, "910B")).chips] == [1]
