"""The output of `mlxlink --json`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.transceivers.mlxlink import Printed, parse_mlxlink
from testbed.mlxlink import COPPER, COUNTERS, EMPTY, OPTICAL, document


def parse(module: object = OPTICAL, counters: object = COUNTERS) -> Printed:
    return parse_mlxlink(
        document({"Module Info": module, "Physical Counters and BER Info": counters})
    )


def test_values_are_in_base_units() -> None:
    found = parse()
    module = found.module
    assert module is not None
    assert (module.kind, module.copper, module.serial) == ("OSFP", False, "TB0000004")
    assert module.temperature_celsius == 54
    assert module.temperature_high_celsius == 75
    assert module.voltage_volts == pytest.approx(3.2612)
    received = [one.receive_watts for one in module.lanes]
    assert received == pytest.approx([1.2589e-3, 1e-3, 0.7943e-3, 1.5849e-3], rel=1e-3)
    assert module.receive_low_watts == pytest.approx(0.1e-3)
    assert [one.bias_amperes for one in module.lanes] == pytest.approx([8.38e-3] * 4)
    assert found.raw_errors == (120, 30, 0, 7)
    assert found.effective_errors == 0


def test_copper_cable_has_no_sensors() -> None:
    module = parse(COPPER).module
    assert module is not None
    assert module.copper
    assert (module.lanes, module.voltage_volts, module.receive_low_watts) == ((), None, None)


def test_cage_without_a_module() -> None:
    assert parse(EMPTY).module is None
    assert parse(None).module is None


def test_values_that_are_not_available_are_missing() -> None:
    module = parse({**OPTICAL, "Rx Power Current [dBm]": "N/A"}).module
    assert module is not None
    assert [one.receive_watts for one in module.lanes] == [None] * 4
    assert module.receive_low_watts is None
    assert module.lanes[0].bias_amperes is not None
    none = dict.fromkeys(COUNTERS, "N/A")
    found = parse(counters=none)
    assert (found.raw_errors, found.effective_errors) == ((), None)


def test_lane_without_light_has_none() -> None:
    module = parse({**OPTICAL, "Rx Power Current [dBm]": "-40.0,1.0 [-10..6]"}).module
    assert module is not None
    assert module.lanes[0].receive_watts == 0


def test_numbers_that_no_module_has() -> None:
    for text in ("nan [0..1]", "1e999", "inf", "-", "1.2.3 [", "9" * 400, "999,999 [1..2]"):
        module = parse({**OPTICAL, "Rx Power Current [dBm]": text}).module
        assert module is not None
        watts = [one.receive_watts for one in module.lanes]
        assert all(one is None or 0 <= one < 1e3 for one in watts), text
    module = parse({**OPTICAL, "Rx Power Current [dBm]": ",".join(["1.0"] * 1000)}).module
    assert module is not None
    assert len(module.lanes) <= 16


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "Failed",
        '{"result": null}',
        '{"result": {"output": 3}}',
        "{" * 5000,
        "[" * 5000,
    ],
)
def test_output_that_is_not_of_mlxlink(text: str) -> None:
    with pytest.raises(ValueError, match="mlxlink"):
        parse_mlxlink(text)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.fixed_dictionaries({"values": st.lists(st.none() | st.text(max_size=3), max_size=3)}),
)


@given(
    st.dictionaries(st.sampled_from([*OPTICAL]), VALUES),
    st.dictionaries(st.sampled_from([*COUNTERS]), VALUES),
)
def test_no_value_raises(module: dict[str, object], counters: dict[str, object]) -> None:
    text = json.dumps(
        {
            "result": {
                "output": {
                    "Module Info": {**OPTICAL, **module},
                    "Physical Counters and BER Info": counters,
                }
            }
        }
    )
    parse_mlxlink(text)
