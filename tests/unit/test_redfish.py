"""Parts and entries of the event log in Redfish's JSON: states, limits, and wrong types."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.bmc import redfish as parse
from nodevitals.probes.bmc.families import EVENT_TYPES, SEVERITIES
from nodevitals.probes.bmc.parts import Part, unique
from nodevitals.probes.bmc.redfish_client import path
from nodevitals.probes.bmc.redfish_log import is_newest_first, parse_entry, parse_time
from testbed.redfish import ODD, documents

PARSERS: tuple[Callable[[Any], Part], ...] = (
    parse.power_supply,
    parse.fan,
    parse.temperature,
    parse.reading,
    parse.battery,
    partial(parse.redundancy, of="power"),
)
FAULTS = ("failed", "predictive_failure", "input_lost", "critical", "lost", "warning", "low")


def status(state: str | None, health: str | None) -> dict[str, Any]:
    return {"Name": "a", "Status": {"State": state, "Health": health}}


@pytest.mark.parametrize(
    ("state", "health", "more", "expected"),
    [
        ("Enabled", "OK", {}, "ok"),
        ("Enabled", "Critical", {}, "failed"),
        ("Enabled", "Warning", {}, "predictive_failure"),
        ("Enabled", None, {}, None),
        ("Enabled", "Nonsense", {}, None),
        ("Absent", "Critical", {}, "absent"),
        ("Absent", None, {"LineInputStatus": "LossOfInput"}, "absent"),
        ("Enabled", "Critical", {"LineInputStatus": "LossOfInput"}, "input_lost"),
        ("Enabled", "OK", {"LineInputStatus": "OutOfRange"}, "input_lost"),
        ("UnavailableOffline", "Critical", {"LineInputVoltage": 0}, "input_lost"),
        ("UnavailableOffline", "Critical", {"LineInputVoltage": None}, "failed"),
        ("Enabled", "OK", {"LineInputVoltage": 0}, "ok"),
        ("StandbySpare", "OK", {}, "inactive"),
        ("UnavailableOffline", None, {}, "inactive"),
        (None, "OK", {}, "ok"),
        (None, None, {}, None),
    ],
)
def test_state_of_a_power_supply(
    state: str | None, health: str | None, more: dict[str, Any], expected: str | None
) -> None:
    """An empty bay is absent whatever its health; without health nothing is known."""
    assert parse.power_supply({**status(state, health), **more}).state == expected


@pytest.mark.parametrize(
    ("state", "health", "expected"),
    [
        ("Enabled", "OK", "ok"),
        ("Enabled", "Warning", "warning"),
        ("Enabled", "Critical", "failed"),
        ("UnavailableOffline", "Critical", "failed"),
        ("UnavailableOffline", "Warning", None),
        ("Absent", "Critical", "absent"),
        ("Disabled", "Critical", None),
        ("Enabled", None, None),
    ],
)
def test_state_of_a_fan(state: str, health: str | None, expected: str | None) -> None:
    """A connector that is disabled says nothing."""
    assert parse.fan(status(state, health)).state == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"ReadingCelsius": 40, **status("Enabled", "OK")}, "ok"),
        ({"ReadingCelsius": 40, **status("Enabled", "Critical")}, "critical"),
        ({"ReadingCelsius": None, **status("Enabled", "Critical")}, None),
        ({"ReadingCelsius": 40, **status("Absent", "Critical")}, None),
        ({"ReadingCelsius": 40, "UpperThresholdCritical": 40}, "critical"),
        ({"ReadingCelsius": 40, "UpperThresholdNonCritical": 39}, "warning"),
        ({"ReadingCelsius": 40, "UpperThresholdCritical": 0}, None),
        ({"ReadingCelsius": 40}, None),
        ({"Reading": 40, "Thresholds": {"UpperCritical": {"Reading": 30}}}, "critical"),
        ({"Reading": 40, "Thresholds": {"UpperCaution": {"Reading": 60}}}, "ok"),
    ],
)
def test_state_of_a_temperature(document: dict[str, Any], expected: str | None) -> None:
    """By its health, else by its limits; a limit of 0 is none."""
    assert parse.temperature(document).state == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "lost"),
        ({"Mode": "NotRedundant"}, None),
        ({"RedundancyType": "NotRedundant"}, None),
        ({"RedundancyEnabled": False}, None),
    ],
)
def test_redundancy_that_is_not_configured(more: dict[str, Any], expected: str | None) -> None:
    """A node that is built without it has lost nothing."""
    assert parse.redundancy({**status("Enabled", "Critical"), **more}, "power").state == expected


def test_numbers_that_are_none() -> None:
    """0 W is no reading of a node that runs; a switch is no number."""
    assert parse.watts({"PowerControl": [{"PowerConsumedWatts": 0}]}) is None
    assert parse.watts({"PowerControl": [{"PowerConsumedWatts": True}]}) is None
    assert parse.metric_watts({"PowerWatts": {"Reading": float("nan")}}) is None
    assert parse.fan({"Reading": -1, "ReadingUnits": "RPM"}).value is None
    assert parse.fan({"Reading": 300, "ReadingUnits": "Percent"}).value is None


@pytest.mark.parametrize(
    "text",
    ["https://a/redfish/v1", "//a/redfish/v1", "/redfish/a b", "/redfish/\r\nX: y", "/etc", 7],
)
def test_what_is_no_path(text: object) -> None:
    """It would leave the service, or end the line of a request."""
    assert path(text) == ""


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"SensorType": "Memory", "Severity": "Critical"}, ("memory", "critical")),
        ({"SensorType": "Drive Slot / Bay", "Severity": "Warning"}, ("drive", "warning")),
        (
            {"SensorType": "Power Supply / Converter", "Severity": "Critical"},
            ("power_supply", "critical"),
        ),
        ({"SensorType": "Memory", "Severity": "OK"}, None),
        ({"SensorType": "Memory", "Severity": "Critical", "EntryCode": "Deassert"}, None),
        ({"SensorType": "Fan", "Severity": "Critical", "EntryCode": "Transition to OK"}, None),
        ({"SensorType": "Physical Chassis Security", "Severity": "Critical"}, None),
        ({"SensorType": None, "Severity": "Critical"}, ("other", "critical")),
        (
            {
                "SensorType": "Temperature",
                "Severity": "Warning",
                "EntryCode": "Upper Non-recoverable - going low",
            },
            None,
        ),
        (
            {
                "SensorType": "Temperature",
                "Severity": "Critical",
                "EntryCode": "Upper Critical - going high",
            },
            ("temperature", "critical"),
        ),
    ],
)
def test_fault_of_an_entry(entry: dict[str, Any], expected: tuple[str, str] | None) -> None:
    """The end of a fault and an opened chassis are none."""
    event = parse_entry(entry).event
    assert (event and (event.kind, event.severity)) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T03:04:05Z", 1795143845),
        ("2026-11-20T03:04:05.123+00:00", 1795143845),
        ("2026-11-20T11:04:05+08:00", 1795143845),
        ("2026-11-19T21:04:05-06:00", 1795143845),
        ("2026-11-20T03:04:05", 0),
        ("1970-01-01T00:00:09Z", 0),
        ("0000-99-99T99:99:99Z", 0),
        ("[NOT SET]", 0),
    ],
)
def test_time_of_an_entry(text: str, seconds: float) -> None:
    """Without a time zone, or of a clock that was not set, it is unknown."""
    assert parse_time(text) == seconds


def test_order_of_a_log() -> None:
    """By time, else by number; a log that does not tell begins with its oldest entry."""
    one = parse_entry({"Id": "1", "Created": "2026-11-20T03:04:05Z"})
    two = parse_entry({"Id": "2", "Created": "2026-11-20T03:04:06Z"})
    bare = (parse_entry({"Id": "1"}), parse_entry({"Id": "2"}))
    assert (is_newest_first(two, one), is_newest_first(one, two)) == (True, False)
    assert (is_newest_first(*bare[::-1]), is_newest_first(*bare)) == (True, False)
    assert not is_newest_first(parse_entry({"Id": "b"}), parse_entry({"Id": "a"}))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place below a value: what it is in, and its key."""
    if isinstance(value, (dict, list)):
        for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(one)


def elements(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each object."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, (dict, list)):
            yield from elements(one)


@pytest.mark.parametrize("shape", ["old", "new"])
def test_wrong_type_at_each_place_of_a_part(shape: str) -> None:
    """Nothing is raised, and no fault is made of a healthy part."""
    for element in elements(documents(shape)):
        one = copy.deepcopy(element)
        for document, key in list(places(one)):
            for odd in ODD:
                value, document[key] = document[key], odd
                found = [parser(one) for parser in PARSERS]
                document[key] = value
                assert not any(part.state in FAULTS for part in found), (element, key, odd)
                assert all(part.value is None or abs(part.value) <= 1e9 for part in found)
                assert all(len(part.name) <= 64 for part in unique(found))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "Id",
    "Created",
    "Severity",
    "SensorType",
    "EntryCode",
    "SensorNumber",
    "MessageId",
    "@odata.id",
)


@given(st.dictionaries(st.sampled_from(NAMES), ANY))
def test_no_entry_breaks_the_parser(document: dict[str, Any]) -> None:
    """Nothing is raised, and labels are those of the families."""
    found = parse_entry(document)
    assert found.event is None or found.event.kind in EVENT_TYPES
    assert found.event is None or found.event.severity in SEVERITIES
