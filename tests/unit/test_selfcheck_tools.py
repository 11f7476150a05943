"""The output of the tools of self-checks gives results or why not; damaged output no wrong one."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.probes.selfcheck.results import (
    KINDS,
    MAX_BYTES_PER_SECOND,
    MAX_MESSAGE,
    OUTCOMES,
    Result,
    measured,
    worst,
)
from nodevitals.probes.selfcheck.tools import ascend_dmi, dcgm, mbw, nvbandwidth
from nodevitals.probes.selfcheck.tools.documents import find_document
from testbed import selfchecktools as out

H2D = "host_to_device_memcpy_ce"
SIZE = ascend_dmi.SIZE


def copies(text: str, devices: tuple[str, ...] = ("0", "1"), status: int = 0) -> list[Result]:
    return nvbandwidth.parse(text, status, "host_to_device", devices, None)


def everything(text: str, status: int = 0) -> list[Result]:
    """The results of all parsers."""
    return [
        *copies(text, status=status),
        *mbw.parse(text, status, 1024, None),
        *ascend_dmi.parse(text, status, "host_to_device", "0", None),
        *dcgm.parse(text, status, ("0", "1")),
    ]


GOOD = (
    out.nvbandwidth(H2D, [55.5, 54.25]),
    out.mbw(1024, 11.5),
    out.ascend_dmi("h2d", "0", SIZE, 24.8),
    out.dcgm4(["0", "1"]),
)


def test_the_cells_are_strings_in_decimal_gigabytes() -> None:
    found = copies(out.nvbandwidth(H2D, [55.5, 54.25]))
    assert [(one.device, one.bandwidth_bytes_per_second) for one in found] == [
        ("0", 55.5e9),
        ("1", 54.25e9),
    ]
    assert copies(out.nvbandwidth(H2D, [55.5, 54.25]), ("4", "7"))[1].device == "7"


def test_a_small_figure_has_an_exponent() -> None:
    (found,) = copies(out.nvbandwidth(H2D, [0.00000125]), ("0",))
    assert found.bandwidth_bytes_per_second == pytest.approx(1250)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"status": "Not Found"}, "harness"),
        ({"status": "ERROR"}, "harness"),
        ({"status": "Waived"}, "skipped"),
        ({"status": 7}, "harness"),
        ({"bandwidth_description": "latency SM (ns)"}, "harness"),
        ({"bandwidth_description": None}, "harness"),
        ({"bandwidth_matrix": None}, "harness"),
        ({"bandwidth_matrix": [["1", "2"], ["3", "4"]]}, "harness"),
        ({"bandwidth_matrix": [["55.5"]]}, "harness"),
        ({"bandwidth_matrix": ["5", "5"]}, "harness"),
        ({"bandwidth_matrix": [[55.5, None]]}, "harness"),
        ({"name": "another_one"}, "harness"),
    ],
)
def test_a_case_that_is_no_result(change: dict[str, Any], outcome: str) -> None:
    document = json.loads(out.nvbandwidth(H2D, [55.5, 54.25]))
    document["nvbandwidth"]["testcases"][0].update(change)
    found = copies(json.dumps(document))
    assert {one.outcome for one in found} == {outcome}
    assert [one.device for one in found] == ["0", "1"]


def test_a_status_other_than_0_is_a_failure_of_the_harness() -> None:
    assert {one.outcome for one in copies(GOOD[0], status=1)} == {"harness"}


def test_wrong_data_is_a_failure_of_the_hardware_and_of_no_known_gpu() -> None:
    text = out.nvbandwidth(H2D, [55.5, 54.25], "corrupt")
    assert [(one.device, one.outcome) for one in copies(text, status=1)] == [("", "failed")]
    (one,) = copies(text, ("3",), status=1)
    assert (one.device, one.outcome) == ("3", "failed")


def test_the_average_of_mbw_is_in_binary_units() -> None:
    (found,) = mbw.parse(out.mbw(1024, 11.5), 0, 1024, 20e9)
    assert found.bandwidth_bytes_per_second == pytest.approx(11.5e9, rel=1e-5)
    assert (found.outcome, found.expected_bytes_per_second) == ("slow", 20e9)


@pytest.mark.parametrize("fault", ["zero", "garbled", "nan", "negative", "enormous"])
def test_a_line_of_mbw_that_does_not_agree_with_itself(fault: str) -> None:
    assert mbw.parse(out.mbw(1024, 11.5, fault), 0, 1024, None)[0].outcome == "harness"


def test_arrays_of_another_size_are_another_test() -> None:
    assert mbw.parse(out.mbw(64, 11.5), 0, 1024, None)[0].outcome == "harness"
    twice = out.mbw(64, 11.5) + "\n" + out.mbw(64, 11.5)
    assert mbw.parse(twice, 0, 64, None)[0].outcome == "harness"


@pytest.mark.parametrize("copies_in_time", [1, ascend_dmi.TIMES])
def test_the_time_of_ascend_dmi_is_of_one_copy_or_of_all(copies_in_time: int) -> None:
    text = out.ascend_dmi("h2d", "3", SIZE * copies_in_time, 24.8)
    text = text.replace(f" {SIZE * copies_in_time} ", f" {SIZE} ")
    (found,) = ascend_dmi.parse(text, 0, "host_to_device", "3", None)
    assert (found.device, found.outcome) == ("3", "ok")
    assert found.bandwidth_bytes_per_second == pytest.approx(24.8e9)


def test_a_row_of_ascend_dmi_that_is_not_ours() -> None:
    good = out.ascend_dmi("h2d", "3", SIZE, 24.8)
    for text, device in (
        (good, "4"),
        (good.replace(str(SIZE), "1024"), "3"),
        (good.replace("Host to Device", "Device to Host"), "3"),
        (out.ascend_dmi("h2d", "3", SIZE, 24.8, "garbled"), "3"),
        (good + good, "3"),
        (good.replace("24.800000", "nan"), "3"),
    ):
        (found,) = ascend_dmi.parse(text, 0, "host_to_device", device, None)
        assert found.outcome == "harness", text


def version_4(fault: str = "") -> dict[str, Any]:
    """The document of one GPU, without the line before it."""
    found: dict[str, Any] = json.loads(out.dcgm4(["0"], fault).partition("\n")[2])
    return found


def diagnosis(status: str, **more: object) -> str:
    """The JSON of version 3: its root, its ids, its nulls between tests."""
    result = {"gpu_ids": "0", "status": status, **more}
    both = {"gpu_ids": "0, 1", "status": "PASS"}
    deployment = [{"name": "Denylist", "results": [both]}, None]
    hardware = [{"name": "GPU Memory", "results": [result, {"gpu_ids": 1, "status": "PASS"}]}]
    categories = [
        {"category": "Deployment", "tests": deployment},
        {"category": "Hardware", "tests": hardware},
    ]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.3.5"}})


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *(("PASS", "ok"), ("Pass", "ok"), ("pass", "ok")),
        *(("FAIL", "failed"), ("Fail", "failed"), ("WARN", "warning")),
        *(("SKIP", "ok"), ("Skipped", "ok"), ("Not Run", "ok")),
        *(("", "harness"), ("Sideways", "harness")),
    ],
)
def test_statuses_of_version_3_in_any_case(status: str, outcome: str) -> None:
    found = dcgm.parse(diagnosis(status), 0, ("0", "1"))
    assert [(one.device, one.outcome) for one in found] == [("0", outcome), ("1", "ok")]


def test_a_failure_names_its_test_and_its_text() -> None:
    text = diagnosis("FAIL", warnings=["Row remap\nfailed"], info=["x"])
    assert dcgm.parse(text, 226, ("0", "1"))[0].message == "GPU Memory: Row remap failed"
    one = dcgm.parse(diagnosis("FAIL", warnings="A string"), 226, ("0", "1"))[0]
    assert one.message == "GPU Memory: A string"


def test_a_setting_of_the_node_is_a_warning() -> None:
    """Persistence mode that is off fails a test of DCGM, and is no fault of the hardware."""
    found = dcgm.parse(out.dcgm4(["0"], "configuration"), 226, ("0", "1"))
    assert [one.outcome for one in found] == ["warning"]
    text = diagnosis("FAIL").replace("GPU Memory", "Persistence Mode")
    assert dcgm.parse(text, 226, ("0", "1"))[0].outcome == "warning"
    mixed = version_4("configuration")
    results = mixed["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["results"]
    results[0]["warnings"].append("a text without a severity")
    assert dcgm.parse(json.dumps(mixed), 226, ("0", "1"))[0].outcome == "failed"


def test_a_device_of_which_all_tests_were_skipped_is_skipped() -> None:
    text = diagnosis("SKIP").replace('"PASS"', '"SKIP"')
    assert {one.outcome for one in dcgm.parse(text, 0, ("0", "1"))} == {"skipped"}


def test_the_number_of_devices_is_that_of_the_node() -> None:
    """A tool that prints any numbers makes no series."""
    text = diagnosis("PASS").replace('"0, 1"', f'"{",".join(map(str, range(1000)))}"')
    assert [one.device for one in dcgm.parse(text, 0, ("0", "1"))] == ["0", "1", ""]


def test_a_runtime_error_says_nothing_of_the_hardware() -> None:
    found = dcgm.parse(out.dcgm4(["0"], "runtime_error"), 1, ("0", "1"))
    assert [(one.device, one.outcome) for one in found] == [("0", "harness"), ("1", "harness")]
    assert "host engine" in found[0].message


def test_a_summary_that_fails_counts_where_no_result_does() -> None:
    document = version_4()
    test = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["test_summary"] = {"status": "Fail", "warnings": [{"warning": "no driver"}]}
    found = dcgm.parse(json.dumps(document), 226, ("0", "1"))
    assert [(one.device, one.outcome) for one in found] == [("0", "ok"), ("", "failed")]


@pytest.mark.parametrize("entity", [-1, 1.5, "0", None, True, 10**30, math.nan])
def test_an_entity_without_a_sound_number_has_no_name(entity: object) -> None:
    document = version_4()
    result = document["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]
    result["entity_id"] = entity
    assert [one.device for one in dcgm.parse(json.dumps(document), 0, ("0", "1"))] == ["0", ""]
    result.update(entity_id=0, entity_group="CPU")
    cpu = dcgm.parse(json.dumps(document), 0, ("0", "1"))
    assert [one.device for one in cpu] == ["0", ""]
    result["status"] = "Fail"
    cpu = dcgm.parse(json.dumps(document), 226, ("0", "1"))
    assert (cpu[1].outcome, cpu[1].message) == ("failed", "CPU 0 memory: Fail")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{" * 500_000,
        '{"nvbandwidth":' * 100_000,
        "[" * 500_000,
        '{"nvbandwidth": {"testcases": ' + "9" * 900_000 + "}}",
        '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": [{"entity_id": '
        + "9" * 900_000
        + "}]}]}]}}",
        "x" * 1_000_000,
        "{}" * 100_000,
    ],
    ids=["empty", "braces", "nested", "brackets", "number", "entity", "word", "objects"],
)
def test_hostile_output_takes_no_time_and_is_no_result(text: str) -> None:
    began = time.process_time()
    assert {one.outcome for one in everything(text)} == {"harness"}
    assert all(len(one.message) <= MAX_MESSAGE for one in everything(text))
    assert time.process_time() - began < 20


@settings(max_examples=60)
@given(st.sampled_from(GOOD), st.data())
def test_output_that_is_cut_has_no_figure_that_was_not_printed(
    text: str, data: st.DataObject
) -> None:
    """The whole output gives the same figures as any beginning that gives any."""
    # Two tools have results of one key here; one of them finds nothing in the other's output.
    whole = {(one.key, one.bandwidth_bytes_per_second) for one in everything(text)}
    for one in everything(text[: data.draw(st.integers(0, len(text)))]):
        assert one.outcome in ("ok", "harness")
        figure = one.bandwidth_bytes_per_second
        assert figure is None or (one.key, figure) in whole


@settings(max_examples=60)
@given(st.sampled_from(GOOD), st.data())
def test_any_change_of_a_character_gives_sound_results(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    for one in everything(changed):
        assert one.kind in KINDS
        assert one.outcome in OUTCOMES
        assert one.bandwidth_bytes_per_second is None or (
            0 < one.bandwidth_bytes_per_second <= MAX_BYTES_PER_SECOND
        )
        assert "\n" not in one.message


@given(st.text(max_size=300), st.integers(-64, 255))
def test_any_text_is_no_result(text: str, status: int) -> None:
    assert {one.outcome for one in everything(text, status)} <= {"harness", "skipped"}


@given(st.floats())
def test_only_a_sound_figure_is_a_bandwidth(value: float) -> None:
    one = measured("memory", "", "", value, None)
    assert (one.outcome == "ok") == (0 < value <= MAX_BYTES_PER_SECOND)
    assert (one.bandwidth_bytes_per_second is None) == (one.outcome == "harness")


def test_the_worst_outcome_counts() -> None:
    assert worst(["ok", "warning", "slow"]) == "slow"
    assert worst(["harness", "failed", "slow"]) == "failed"
    assert worst(["skipped", "ok"]) == "ok"
    assert worst([]) is None


def test_the_document_is_found_behind_other_braces() -> None:
    assert find_document('{a} {"b": 1} {"c": {"d": 1}}', ("c",)) == {"d": 1}
    assert find_document('{"c": [1]}', ("c",)) is None
