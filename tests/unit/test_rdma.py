"""RDMA: the files of a port, the families of its counters, the GID to use."""

from __future__ import annotations

import pytest

from nodevitals.linux.sysfs import parse_integer
from nodevitals.probes.common.rdma import Gid, choose, parse_gid, parse_id, parse_rate
from nodevitals.probes.rdma.reader import CONGESTION, ERRORS, LIMITS, OTHER, RECEIVED, wanted
from testbed.nics import BNXT_COUNTERS, IRDMA_COUNTERS, LINK_COUNTERS, MLX5_COUNTERS

NOT_FIELDS = ("", "N/A (no PMA)", "\ufffd\x00\x01", "-1", "ACTIVE", "0x1f", "\uff14: ACTIVE")


@pytest.mark.parametrize(
    ("text", "number"),
    [("4: ACTIVE", 4), ("5: ACTIVE_DEFER", 5), ("2: Polling", 2), ("9: <unknown>", 9)],
)
def test_states_are_parsed(text: str, number: int) -> None:
    assert parse_id(text) == number


@pytest.mark.parametrize(
    ("text", "gigabits"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("200 Gb/sec (2X NDR)", 200),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("40 Gb/sec (4X QDR)", 40),
        ("56 Gb/sec", 56),
        ("800 Gb/sec (8X NDR)", 800),
    ],
)
def test_rates_are_parsed(text: str, gigabits: float) -> None:
    assert parse_rate(text) == gigabits * 1e9 / 8


@pytest.mark.parametrize("text", NOT_FIELDS)
def test_malformed_text_is_missing(text: str) -> None:
    assert (parse_id(text), parse_rate(text), parse_integer(text)) == (None, None, None)
    assert parse_gid(text) is None


@pytest.mark.parametrize("text", ["0 Gb/sec", "400 Gb/s", "400 Gb/sec (4X NDR", "400"])
def test_truncated_rate_is_missing(text: str) -> None:
    assert parse_rate(text) is None


def test_known_counters_are_errors_congestion_or_traffic() -> None:
    files = [f"counters/{name}" for name in LINK_COUNTERS]
    files += [f"hw_counters/{name}" for name in MLX5_COUNTERS]
    found = {file.partition("/")[2]: (family, factor) for file, family, factor in wanted(files, ())}
    assert found["symbol_error"] == (ERRORS, 1)
    assert found["local_ack_timeout_err"] == (ERRORS, 1)
    assert found["port_xmit_wait"] == (CONGESTION, 1)
    assert found["port_rcv_data"] == (RECEIVED, 4)  # words of four bytes
    assert not {"lifespan", "rx_write_requests", "req_cqe_flush_error"} & found.keys()


def test_other_counters_are_read_on_request_but_never_a_setting() -> None:
    files = [f"hw_counters/{name}" for name in MLX5_COUNTERS]
    found = {file: family for file, family, _ in wanted(files, ("rx_*", "lifespan"))}
    assert found["hw_counters/rx_write_requests"] == OTHER
    assert "hw_counters/lifespan" not in found


def test_errors_of_each_driver_are_read() -> None:
    for names, error in ((BNXT_COUNTERS, "oos_drop_count"), (IRDMA_COUNTERS, "CRC errors")):
        found = {
            file: family for file, family, _ in wanted((f"hw_counters/{n}" for n in names), ())
        }
        assert found[f"hw_counters/{error}"] == ERRORS


def test_limits_follow_from_the_width_of_the_counters() -> None:
    assert LIMITS["link_downed"] == 255
    assert LIMITS["excessive_buffer_overrun_errors"] == 15
    assert LIMITS["port_xmit_discards"] == 65535
    assert LIMITS["port_xmit_wait"] == 4294967295


LOCAL = "fe80:0000:0000:0000:005a:00ff:fe00:0001"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a01:0203"
SELF_ASSIGNED = "0000:0000:0000:0000:0000:ffff:a9fe:0203"
GLOBAL = "fd00:0001:0000:0000:0000:0000:0000:0001"
V1, V2 = "IB/RoCE v1", "RoCE v2"


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        ([(0, LOCAL, V1), (1, LOCAL, V2), (2, IPV4, V1), (3, IPV4, V2)], 3),
        ([(1, LOCAL, V2), (4, GLOBAL, V2), (5, IPV4, V2), (7, IPV4, V2)], 5),
        ([(1, LOCAL, V2), (9, GLOBAL, V2)], 9),
        ([(1, LOCAL, V2), (3, SELF_ASSIGNED, V2)], 1),
        ([(0, LOCAL, V1), (2, IPV4, V1)], None),
        ([(2, SELF_ASSIGNED, V2)], None),
        ([], None),
    ],
)
def test_best_gid_is_chosen(rows: list[tuple[int, str, str]], index: int | None) -> None:
    gids = [Gid(row, parse_gid(text) or b"", kind, "ens1f0np0") for row, text, kind in rows]
    best = choose(gids)
    assert (best.index if best else None) == index
    if best:
        assert best.routable == (best.index != 1)
