"""The tables of `nodevitals probe`: a row per metric, a column per device, values with units."""

from __future__ import annotations

import pytest

from nodevitals.commands.run_probe import Shown, Table, human, seconds, tables
from nodevitals.families import Family, Kind


def family(name: str, text: str = "Number of things.") -> Family:
    kind: Kind = "counter" if name.endswith("_total") else "gauge"
    return Family(name=f"nodevitals_{name}", kind=kind, help=text)


def shown(name: str, value: float, **labels: str) -> Shown:
    return Shown(family(name), labels, value)


def listed(*samples: Shown, describe: bool = False) -> list[Table]:
    return [[list(row) for row in table] for table in tables(samples, describe)]


def test_devices_are_columns_and_labels_that_only_repeat_them_are_left_out() -> None:
    samples = [
        shown("gpu_fans", number, device=device, uuid=f"GPU-{device}", place=place)
        for number, (device, place) in enumerate([("0", "a"), ("0", "b"), ("1", "a"), ("1", "b")])
    ]
    assert listed(*samples) == [
        [
            ["METRIC", "LABELS", "#0", "#1"],
            ["gpu_fans", "place=a", "0", "2"],
            ["gpu_fans", "place=b", "1", "3"],
        ]
    ]


def test_the_node_has_a_table_of_its_own() -> None:
    assert listed(shown("node_cpus", 2), shown("mount_size_bytes", 0, mountpoint="/data")) == [
        [["METRIC", "VALUE"], ["node_cpus", "2"]],
        [["METRIC", "/data"], ["mount_size_bytes", "0 B"]],
    ]


def test_series_that_are_alike_are_one_row() -> None:
    alike = [shown("gpu_link", 1, device="0", link=str(link)) for link in range(18)]
    assert listed(*alike)[0][1:] == [["gpu_link", "each link (18)", "1"]]
    broken = [*alike[:17], shown("gpu_link", 0, device="0", link="17")]
    assert len(listed(*broken)[0]) == 19


def test_facts_are_a_row_per_device_and_not_repeated() -> None:
    first = shown("accelerator_info", 1, device="0", uuid="GPU-0", model="H100", serial="")
    second = shown("nvidia_mode_info", 1, device="0", uuid="GPU-0", mig="off")
    assert listed(first, second) == [
        [["DEVICE", "UUID", "MODEL"], ["0", "GPU-0", "H100"]],
        [["DEVICE", "MIG"], ["0", "off"]],
    ]


def test_more_devices_than_fit_are_further_tables() -> None:
    samples = [shown(f"m{metric}", 1, device=str(n)) for metric in range(9) for n in range(10)]
    assert [len(table[0]) for table in listed(*samples)] == [9, 3]


def test_hundreds_of_peers_are_rows() -> None:
    samples = [shown("peer_reachable", 1, peer=f"node-{n}", port="22") for n in range(300)]
    (table,) = listed(*samples)
    assert table[:2] == [["", "peer_reachable"], ["node-0/22", "1"]]
    assert len(table) == 301


def test_a_missing_value_is_a_dash() -> None:
    table = listed(shown("a", 1, device="0"), shown("b", 1, device="1"))[0]
    assert table[1:] == [["a", "1", "-"], ["b", "-", "1"]]


def test_helps_on_demand() -> None:
    assert listed(shown("node_cpus", 2), describe=True) == [
        [["METRIC", "VALUE", "HELP"], ["node_cpus", "2", "Number of things."]]
    ]


@pytest.mark.parametrize(
    ("name", "text", "value", "expected"),
    [
        ("memory_bytes", "", 25276514304, "23.54 GiB"),
        ("page_bytes", "", 4096, "4,096 B"),
        ("size_bytes", "", 0, "0 B"),
        ("read_bytes_total", "", 2**70, "1024 EiB"),
        ("link_bytes_per_second", "", 5e10, "50 GB/s"),
        ("up", "Whether it is up.", 1, "yes"),
        ("up", "Whether it is up.", 0, "no"),
        ("up", "Whether it is up.", 2, "2"),
        ("temperature_celsius", "", 61, "61 °C"),
        ("power_watts", "", 120.5, "120.5 W"),
        ("energy_joules_total", "", 5e6, "5,000,000 J"),
        ("clock_hertz", "", 1.98e9, "1980 MHz"),
        ("used_ratio", "", 0.5, "50%"),
        ("errors_total", "", 1234567, "1,234,567"),
        ("load", "", 2.8912, "2.891"),
        ("load", "", float("nan"), "nan"),
        ("load", "", float("inf"), "inf"),
        ("offset", "", -3, "-3"),
        ("offset_bytes", "", -30000, "-29.3 KiB"),
    ],
)
def test_values_have_units(name: str, text: str, value: float, expected: str) -> None:
    assert human(family(name, text or "Some."), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (2.6e-05, "26 µs"),
        (0.0189, "18.9 ms"),
        (16, "16 s"),
        (600, "10m"),
        (90061, "1d 1h 1m"),
        (-0.5, "-500 ms"),
    ],
)
def test_durations(value: float, expected: str) -> None:
    assert seconds(value) == expected
