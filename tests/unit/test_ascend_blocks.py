"""What `npu-smi info -t`, `-m` and hccn_tool print: by chip and key, or missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.ascend import parsers
from testbed.npus import blocks as printed
from testbed.npus import chip, ecc, optical

TWO_CHIPS = (
    printed({"NPU ID": 4, "Chip Count": 2})
    + "\n"
    + printed({"NPU Temperature (C)": 39, "Chip ID": 0})
    + "\n"
    + printed({"NPU Temperature (C)": 41, "Chip ID": 1})
    + "\n"
    + printed({"LM75A_TE (C)": 36, "Chip Name": "MCU"})
)


def test_chip_id_may_be_first_or_last_and_the_mcu_is_not_a_chip() -> None:
    found = parsers.parse_blocks(TWO_CHIPS)
    key = "NPU Temperature (C)"
    assert {number: parsers.number_of(block, key) for number, block in found.items()} == {
        0: 39,
        1: 41,
    }
    first = printed({"Chip ID": 1, "Temperature(C)": 46}) + "\n" + printed({"Chip Name": "mcu"})
    assert set(parsers.parse_blocks(first)) == {1}


def test_npu_that_is_one_chip_has_no_chip_id() -> None:
    text = printed({"NPU ID": 3, "NPU Real-time Power(W)": "296.5"})
    assert parsers.number_of(parsers.parse_blocks(text)[0], "NPU Real-time Power(W)") == 296.5


def test_values_that_appear_twice_are_dropped() -> None:
    line = "\tTemperature(C) : 46\n"
    assert "Temperature(C)" not in parsers.parse_blocks(line + line + "\tChip ID : 0\n")[0]
    both = "\tChip ID : 0\n\tHealth : OK\n\tChip ID : 1\n"
    assert parsers.parse_blocks(both) == {}
    assert (
        parsers.parse_blocks("\tHealth : OK\n\tChip ID : 0\n\n\tHealth : Alarm\n\tChip ID : 0\n")
        == {}
    )


@pytest.mark.parametrize("text", ["NA", "", "-", "12 C", "0x10", "1.2.3"])
def test_text_that_is_not_a_number_is_missing(text: str) -> None:
    assert parsers.number_of({"Temperature(C)": text}, "Temperature(C)") is None
    assert parsers.number_of({}, "Temperature(C)") is None


def test_ecc_is_parsed_on_both_generations() -> None:
    one = chip(
        0, ecc={"HBM Double Bit Error Count": 2, "HBM Double Bit Next-Isolated Pages Count": 1}
    )
    old = parsers.parse_blocks(ecc(one) + "\tChip ID : 0\n")[0]
    new = parsers.parse_blocks(printed({"NPU ID": 0}) + ecc(one, old=False))[0]
    assert old["HBM Double Bit Error Count"] == new["HBM Double Bit Error Count"] == "2"
    assert new["HBM Double Bit Next-Isolated Pages Count"] == "1"


def test_mapping_is_parsed_by_its_header() -> None:
    text = (
        "\tNPU ID            Chip ID           Chip Logic ID     Chip Phy-ID       Chip Name\n"
        "\t0                 0                 0                 4                 Ascend910\n"
        "\t0                 1                 -                 -                 Mcu\n"
        "\t1                 0                 Ascend910\n"
    )
    assert [(row["Chip Phy-ID"], row["Chip Name"]) for row in parsers.parse_rows(text)] == [
        ("4", "Ascend910"),
        ("-", "Mcu"),
    ]
    assert parsers.parse_mapping(text) == {(0, 0): 4}
    assert parsers.parse_rows("There is no NPU card on this server.") == []


def test_block_of_a_chip_may_leave_its_number_out() -> None:
    numbered = "\tHealth : OK\n\tChip ID : 0\n\n\tHealth : Alarm\n\tChip ID : 1\n"
    assert parsers.block_of(numbered, 1)["Health"] == "Alarm"
    assert parsers.block_of(numbered, 2) == {}
    assert parsers.block_of("\tHealth : Alarm\n", 1) == {"Health": "Alarm"}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("NA", ()),
        ("", ()),
        ("80E01801", ("80E01801",)),
        ("80e01801 8C084E00", ("80E01801", "8C084E00")),
        ("something else", None),
    ],
)
def test_fault_codes_are_parsed(text: str, codes: tuple[str, ...] | None) -> None:
    assert parsers.parse_error_codes({"Error Code": text}) == codes


def test_health_block_without_error_code_line_leaves_fault_codes_unknown() -> None:
    assert parsers.parse_error_codes({"Health": "OK"}) is None


def test_vdie_ids_have_dashes_as_in_npu_exporter() -> None:
    assert parsers.dashed("42c711d4 20B03704 4A10C8D4 14CC040A D2102003") == (
        "42C711D4-20B03704-4A10C8D4-14CC040A-D2102003"
    )
    assert (
        parsers.dashed("NA") == parsers.dashed("xxx") == parsers.dashed("42C711D4 20B03704") == ""
    )


@pytest.mark.parametrize(
    ("text", "up"),
    [
        ("link status: UP\n", True),
        ("link status: DOWN\n", False),
        ("[devid 3]link status: UP\r\n", True),
        ("link status: UP\nlink status: DOWN\n", None),
        ("hccn_tool is busy, please try again.\n", None),
        ("", None),
    ],
)
def test_link_status_is_parsed(text: str, up: bool | None) -> None:
    assert parsers.parse_link(text) is up


@pytest.mark.parametrize(
    ("text", "health"),
    [
        ("net health status: Success\n", "success"),
        ("net health status: Socket fail\n", "socket_failed"),
        ("net health status: Receive timeout\n", "receive_timeout"),
        ("net health status: something new\n", "unknown"),
        ("The command is not supported on this product.\n", None),
    ],
)
def test_network_health_is_parsed(text: str, health: str | None) -> None:
    assert parsers.parse_net_health(text) == health


def test_speed_and_statistics_are_parsed() -> None:
    assert parsers.parse_speed("Speed: 200000 Mb/s\n") == 200 * 10**9
    assert parsers.parse_speed("Speed: Unknown!\n") is None
    assert parsers.parse_statistics(
        "packet statistics:\nroce_rx_err_pkt_num:13\nx: y\nport: 4\n"
    ) == {
        "roce_rx_err_pkt_num": 13,
        "port": 4,
    }


def test_received_optical_power_is_parsed_per_lane() -> None:
    module = parsers.parse_optical(optical(chip(0)).replace("present\n", "not present\n"))
    assert module.receive_watts == {0: 0.0010189, 1: 0.0009907, 2: 0.0010213, 3: 0.0010007}
    assert module.receive_low_watts == 0.0001445
    assert parsers.parse_optical("Rx Power0 : not supported\nRx Power1 : 1.0") == parsers.Optical()


@given(st.text(max_size=300))
def test_no_text_raises_an_exception(text: str) -> None:
    for parse in (
        parsers.parse_blocks,
        parsers.parse_rows,
        parsers.parse_mapping,
        parsers.parse_link,
        parsers.parse_net_health,
        parsers.parse_speed,
        parsers.parse_statistics,
        parsers.parse_optical,
    ):
        parse(text)
