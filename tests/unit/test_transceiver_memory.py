"""The memory of transceivers: SFF-8472, SFF-8636 and CMIS."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.transceivers.module import Module, read_module
from testbed.modules import FIRST, LANE_WATTS, Memory, osfp, qsfp, sfp


def read(memory: Memory) -> Module:
    def page(number: int, offset: int, address: int) -> bytes:
        try:
            return memory[address, number, offset]
        except KeyError:
            raise OSError(errno.EINVAL, "no such page") from None

    module = read_module(page)
    assert module is not None
    return module


def test_qsfp_has_sensors_of_four_lanes_and_limits() -> None:
    module = read(qsfp())
    assert (module.kind, module.copper) == ("QSFP", False)
    identity = (module.manufacturer, module.part_number, module.serial)
    assert identity == ("TESTBED OPTICS", "TB-Q28-SR4", "TB0000001")
    assert module.temperature_celsius == 45.5
    assert module.voltage_volts == pytest.approx(3.3)
    assert [one.number for one in module.lanes] == [1, 2, 3, 4]
    assert [one.receive_watts for one in module.lanes] == pytest.approx(LANE_WATTS)
    assert [one.transmit_watts for one in module.lanes] == pytest.approx([1e-3] * 4)
    assert [one.bias_amperes for one in module.lanes] == pytest.approx([7e-3] * 4)
    assert module.receive_low_watts == pytest.approx(0.2e-3)
    assert module.transmit_low_watts == pytest.approx(0.1e-3)
    assert module.temperature_high_celsius == 70


def test_qsfp_without_a_monitor_of_the_transmitted_power() -> None:
    module = read(qsfp(byte_220=0x08))
    assert [one.transmit_watts for one in module.lanes] == [None] * 4
    assert module.transmit_low_watts is None


def test_qsfp_with_flat_memory_has_no_limits() -> None:
    memory = qsfp(byte_2=0x04)
    del memory[FIRST, 3, 128]
    module = read(memory)
    assert module.receive_low_watts is None
    assert len(module.lanes) == 4


def test_sfp_has_one_lane_and_may_be_cold() -> None:
    module = read(sfp())
    assert module.temperature_celsius == -2.5
    assert module.voltage_volts == pytest.approx(3.31)
    (lane,) = module.lanes
    assert lane.receive_watts == pytest.approx(0.5e-3)
    assert lane.transmit_watts == pytest.approx(0.6e-3)
    assert lane.bias_amperes == pytest.approx(30e-3)
    assert module.receive_low_watts == pytest.approx(0.05e-3)


@pytest.mark.parametrize("diagnostics", [0x00, 0x40, 0x58])
def test_sfp_without_sensors_or_with_uncalibrated_ones_has_none(diagnostics: int) -> None:
    module = read(sfp(diagnostics=diagnostics))
    assert (module.lanes, module.temperature_celsius) == ((), None)
    assert module.serial == "TB0000002"


@pytest.mark.parametrize(
    "memory",
    [qsfp(copper=True), sfp(cable=4), sfp(cable=8), osfp(copper=True)],
    ids=["QSFP", "SFP passive", "SFP active", "OSFP"],
)
def test_copper_cable_has_no_sensors(memory: Memory) -> None:
    module = read(memory)
    assert module.copper
    assert module.manufacturer == "TESTBED OPTICS"
    assert (module.lanes, module.temperature_celsius, module.voltage_volts) == ((), None, None)
    assert module.receive_low_watts is None


def test_cmis_has_as_many_lanes_as_the_module_and_a_scaled_bias() -> None:
    module = read(osfp())
    assert (module.kind, module.part_number) == ("OSFP", "TB-OSFP-DR4")
    assert module.temperature_celsius == 50.25
    assert [one.receive_watts for one in module.lanes] == pytest.approx(LANE_WATTS)
    assert [one.transmit_watts for one in module.lanes] == pytest.approx([2e-3] * 4)
    assert [one.bias_amperes for one in module.lanes] == pytest.approx([120e-3] * 4)
    assert module.receive_low_watts == pytest.approx(0.2e-3)
    assert module.transmit_low_watts == pytest.approx(0.3e-3)
    assert len(read(osfp(watts=(1e-3,) * 8)).lanes) == 8


def test_cmis_without_a_monitor_of_the_received_power() -> None:
    module = read(osfp(monitors=0x0B))
    assert [one.receive_watts for one in module.lanes] == [None] * 4
    assert module.receive_low_watts is None


@pytest.mark.parametrize(
    ("memory", "key", "place"),
    [
        (qsfp(), (FIRST, 0, 128), 22),
        (qsfp(), (FIRST, 0, 128), 70),
        (sfp(), (FIRST, 0, 0), 21),
        (sfp(), (FIRST, 0, 0), 70),
        (osfp(), (FIRST, 0, 128), 22),
        (osfp(), (FIRST, 1, 128), 40),
        (osfp(), (FIRST, 2, 128), 70),
    ],
)
def test_wrong_checksum_is_no_module(memory: Memory, key: tuple[int, int, int], place: int) -> None:
    changed = bytearray(memory[key])
    changed[place] ^= 0x10
    with pytest.raises(ValueError, match="wrong checksum"):
        read({**memory, key: bytes(changed)})


def test_text_that_is_none_is_left_out() -> None:
    module = read(qsfp(byte_150=0xFF, byte_198=0x07))
    assert (module.manufacturer, module.serial) == ("", "")
    assert module.part_number == "TB-Q28-SR4"


def test_unknown_kind_is_no_module() -> None:
    assert read_module(lambda *_: bytes(128)) is None
    assert read_module(lambda *_: b"\xff" * 128) is None


def test_error_of_a_page_is_raised() -> None:
    memory = qsfp()
    del memory[FIRST, 3, 128]
    with pytest.raises(OSError, match="no such page"):
        read(memory)


@given(st.sampled_from([0x03, 0x0D, 0x11, 0x18, 0x19, 0x1E]), st.binary(min_size=127, max_size=127))
def test_no_memory_raises_anything_else(kind: int, rest: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_module(lambda *_: bytes([kind]) + rest)
