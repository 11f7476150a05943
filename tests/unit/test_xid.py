"""Every form of the driver's lines is parsed, and no other line is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nodevitals.probes.common.accelerators import ACTIONS
from nodevitals.probes.common.nvidia import normal_bus_id
from nodevitals.probes.kernel_log.xid import RULE_CODES, XID_ACTIONS, parse_sxid, parse_xid

LINES = [
    tuple(line.split("\t", 1))
    for line in (Path(__file__).parent / "xid_lines.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("expected", "line"), LINES)
def test_line_has_its_xid_and_one_action(expected: str, line: str) -> None:
    xid, sxid = parse_xid(line), parse_sxid(line)
    found = "-"
    if xid is not None:
        found = f"xid {xid.bus_id} {xid.code} {xid.action}"
    elif sxid is not None:
        found = f"sxid {sxid.switch} {sxid.bus_id} {sxid.code} {sxid.action}"
    assert found == expected


def test_text_of_the_driver_is_kept() -> None:
    xid = parse_xid("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=trainer, Ch 8, MMU Fault: a, b")
    assert xid is not None
    assert xid.text == "Ch 8, MMU Fault: a, b"


def test_every_code_has_an_action_of_the_closed_list() -> None:
    assert set(XID_ACTIONS.values()) <= set(ACTIONS)
    assert all(XID_ACTIONS[code] in ("reset_device", "reboot_node") for code in RULE_CODES)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:18:00.0", "0000:18:00"),
        ("0000:9B:00", "0000:9b:00"),
        ("00010000:01:00.0", "10000:01:00"),
    ],
)
def test_every_spelling_of_a_bus_id_is_normalized(text: str, normal: str) -> None:
    assert normal_bus_id(text) == normal


PIECES = (
    *("NVRM:", "Xid", "SXid", "(PCI:", "0000:1a:00", "):", "79,", "79", "kernel:", "NVRM: Xid"),
    *("GPU has fallen off the bus.", "[", "]", "\x00", "pid=1", "name=x,", "nvidia-nvswitch0:"),
    *(
        "Fatal,",
        "  ",
        "\t",
        "(PCI:0000:1a:00)",
        "audit:",
        "comm=",
        "\u00e9",
        "GPU-I:05",
        "0x1",
        "-",
    ),
)


def test_million_lines_of_noise_have_no_xid() -> None:
    """Parts of the driver's lines in any order, but never a line that the driver writes."""
    generator = random.Random(20250304)
    choices = generator.choices
    for _ in range(1_000_000):
        line = " ".join(choices(PIECES, k=1 + int(generator.random() * 7)))
        assert parse_xid(line) is None, line
        assert parse_sxid(line) is None, line
