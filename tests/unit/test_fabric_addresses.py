"""The addresses that iperf3 connects to and from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.fabric.node.addresses import ends, ipv6_addresses, own_address, usable
from nodevitals.probes.fabric.settings import TestSettings

LOOPBACK = TestSettings(tool="iperf3", operation="tcp", device="lo")
TABLE = """\
fe80000000000000021122fffe334455 03 40 20 80     eth1
fd000099000000000000000000000001 03 40 00 20     eth1
fd000099000000000000000000000002 03 40 00 c0     eth1
fd000099000000000000000000000003 03 40 00 80     eth1
fd000098000000000000000000000001 04 40 00 80    eth10
short 03 40
"""


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "fd00:99::3", "2001:db8::1"])
def test_address_of_a_device_is_used(address: str) -> None:
    assert usable(address) == address


@pytest.mark.parametrize(
    "address",
    [
        *("", "gpu-2", "-B", "192.0.2.7;reboot", "192.0.2.07", "0", "192.0.2.7/24"),
        *("127.0.0.1", "0.0.0.0", "169.254.0.1", "224.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "fd00::1%eth0"),
    ],
)
def test_what_a_hostile_target_may_not_name(address: str) -> None:
    assert usable(address) == ""
    assert ends(LOOPBACK, address) == ("", "")


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert usable(text) in ("", text, usable(text.lower()))
    assert not usable(text).startswith("-")


def test_global_addresses_in_use_of_exactly_this_device() -> None:
    assert ipv6_addresses(TABLE, "eth1") == ["fd00:99::3"]
    assert ipv6_addresses("", "eth1") == []


def test_without_an_address_of_the_device_names_are_used() -> None:
    """The loopback device has none, and a device that is not there."""
    for device in ("lo", "none0"):
        test = TestSettings(tool="iperf3", operation="tcp", device=device)
        assert own_address(test) == ""
        assert ends(test, "192.0.2.7") == ("", "")
