"""Parsers with a text that each reads, and hostile texts made of it.

In: a parser and a size. Out: texts of about that size; the numbers in a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from nodevitals.checks.ssh.remote import parse_gids
from nodevitals.commands.rules.check_expressions import changed_meanings
from nodevitals.commands.rules.expression import selectors
from nodevitals.linux.kmsg import parse_record
from nodevitals.linux.process import parse_load_average, parse_process_stat
from nodevitals.linux.sysfs import parse_integer
from nodevitals.probes.ascend import parsers
from nodevitals.probes.ascend.queries import MAPPING, Query
from nodevitals.probes.ascend.table import parse_table
from nodevitals.probes.common.addresses import parse_address
from nodevitals.probes.common.interface import parse_speed
from nodevitals.probes.common.rdma import parse_gid, parse_id, parse_rate
from nodevitals.probes.fabric.tools import PARSERS
from nodevitals.probes.kernel_log.families import PATTERNS, event_of, suppressed
from nodevitals.probes.kernel_log.xid import action_of, parse_sxid, parse_xid
from nodevitals.probes.mounts.mountinfo import parse_mountinfo
from nodevitals.probes.node import parse_loadavg, parse_vmstat
from nodevitals.probes.nvidia.hardware import parse_version
from nodevitals.probes.switches.sources import (
    parse_list,
    parse_neighbours,
    parse_port,
    parse_topology,
)
from testbed import npus, switches
from testbed import tooloutput as out

ONE_CHARACTER = (
    "\n",
    " ",
    "\t",
    "0",
    "9",
    "a",
    "|",
    "-",
    "+",
    ":",
    "/",
    '"',
    "{",
    "[",
    "\0",
    "\ufffd",
)
DIGITS = (20, 400, 4_000, 5_000)
SPELLINGS = (("", ""), ("", ".00"), ("-", ""))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Parser(NamedTuple):
    """A parser, a text that it reads, and the errors that it declares."""

    parse: Callable[[str], Any]
    text: str
    errors: tuple[type[Exception], ...] = ()


def _tables() -> dict[str, Parser]:
    chips = [npus.chip(0), npus.chip(1, 1, physical=3, processes=0)]
    return {
        f"npu-smi info, {layout}": Parser(parse_table, npus.table(chips, layout))
        for layout in npus.LAYOUTS
    }


def _blocks() -> dict[str, Parser]:
    chip = npus.chip(0, ecc={"HBM Single Bit Error Count": 7})
    ecc = npus.blocks({"NPU ID": 0, "Chip Count": 1}) + "\n" + npus.ecc(chip)
    health = npus.blocks({"Health": "OK", "Error Code": "80E01801", "Chip ID": 0})
    mapping = "NPU ID   Chip ID   Chip Logic ID   Chip Name\n0        0         4     Ascend 910B\n"
    health_query = Query("health 0 0", "npu-smi", (), 1.0)

    def numbers(text: str) -> list[object]:
        found = parsers.parse_blocks(text).values()
        return [[parsers.number_of(block, key) for key in block] for block in found]

    def codes(text: str) -> list[object]:
        found = parsers.parse_blocks(text).values()
        return [parsers.parse_error_codes(block) for block in found]

    return {
        "blocks, ecc": Parser(numbers, ecc),
        "blocks, health": Parser(codes, health),
        "blocks, of a chip": Parser(lambda text: parsers.block_of(text, 0), health),
        "mapping": Parser(parsers.parse_mapping, mapping),
        "identity": Parser(parsers.dashed, str(chip["vdie"])),
        "query, mapping": Parser(MAPPING.is_readable, mapping),
        "query, health": Parser(health_query.is_readable, health),
    }


def _hccn() -> dict[str, Parser]:
    return {
        "hccn link": Parser(parsers.parse_link, "[devid 0]link status: UP\n"),
        "hccn health": Parser(parsers.parse_net_health, "[device 0] net health status: Success\n"),
        "hccn speed": Parser(parsers.parse_speed, "Speed: 200000 Mb/s\n"),
        "hccn statistics": Parser(
            parsers.parse_statistics, "packet statistics:\nmac_rx:3\nroce_tx:4\n"
        ),
        "hccn optical": Parser(parsers.parse_optical, npus.optical(npus.chip(0))),
    }


def _tools() -> dict[str, Parser]:
    rate = out.bandwidth_row(65536, 1000, 391.27, "Gb/sec", 392.0)
    latency = out.latency_row(8, 1000, 1.42, 9.93, 1.47, 1.49, 0.08, 1.57, 5.02)
    pairs = {"MsgSize": 65536, "n_iterations": 1000, "BW_peak": 392.0, "BW_average": 391.27}
    lines = ",\n".join(f'"{name}": {value}' for name, value in pairs.items())
    as_json = (
        f'{{\n"test": "RDMA_Write_BW_Test",\n"results": {{\n{lines},\n"MsgRate": 0.746288\n}}\n}}\n'
    )
    texts = {
        "perftest": out.perftest_head("write_bw") + out.bandwidth_columns("Gb/sec") + rate,
        "perftest, latency": out.perftest_head("send_lat") + out.latency_columns() + latency,
        "perftest, json": as_json,
        "nccl": out.nccl(out.nccl_row(1 << 20, 310.2, 1.5)),
        "hccl": out.hccl_row(1 << 20, 310.2),
        "iperf3": out.iperf3(9.4e9),
    }
    return {name: Parser(PARSERS[name.partition(",")[0]], text) for name, text in texts.items()}


def _kernel() -> dict[str, Parser]:
    xid = "NVRM: Xid (PCI:0000:c1:00): 145, pid=7, name=train, RLW_REMAP Nonfatal XC0 (0x00000004)"
    sxid = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 7 error"

    def all_events(text: str) -> list[object]:
        """Without the hints, which would skip most patterns."""
        return [bool(pattern.expression.match(text)) for pattern in PATTERNS] + [event_of(text)]

    return {
        "xid": Parser(parse_xid, xid),
        "action of nvlink": Parser(lambda text: action_of(145, text), xid[40:]),
        "action of a change": Parser(lambda text: action_of(154, text), "to 0x2 (node reboot)"),
        "sxid": Parser(parse_sxid, sxid),
        "events": Parser(all_events, "nvme nvme0: I/O 7 QID 3 timeout"),
        "suppressed": Parser(suppressed, "net_ratelimit: 7 callbacks suppressed"),
        "kmsg": Parser(lambda text: parse_record(text.encode()), "6,339,5140900,-;NET: registered"),
    }


def _files() -> dict[str, Parser]:
    mount = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
    gid = "fe80:0000:0000:0000:0202:c9ff:fe00:0001"
    return {
        "mountinfo": Parser(parse_mountinfo, mount),
        "process": Parser(parse_process_stat, "7 (a) b) S 1 7 7 0 -1 4194560\n"),
        "load average": Parser(
            parse_load_average, "0.1 0.2 0.3 1/234 567\n", (ValueError, IndexError)
        ),
        "loadavg": Parser(parse_loadavg, "0.1 0.2 0.3 1/234 567\n"),
        "vmstat": Parser(parse_vmstat, "nr_free_pages 7\noom_kill 3\n"),
        "integer": Parser(parse_integer, "7"),
        "port state": Parser(parse_id, "4: ACTIVE"),
        "port rate": Parser(parse_rate, "400 Gb/sec (4X NDR)"),
        "gid": Parser(parse_gid, gid),
        "gids": Parser(
            parse_gids, f"gids/3:{gid}\ngid_attrs/types/3:RoCE v2\ngid_attrs/ndevs/3:eth1\n"
        ),
        "speed": Parser(parse_speed, "100000"),
        "driver version": Parser(parse_version, "NVRM version: NVIDIA UNIX Kernel Module  580.82"),
        "address": Parser(lambda text: parse_address(text, 22), "node-2:22", (ValueError,)),
    }


def _switches() -> dict[str, Parser]:
    seen = [
        ("ens1f0", switches.neighbour("leaf-1", "Ethernet1")),
        ("ens2f0", switches.neighbour("", "7", "local")),
    ]
    fabric = switches.topology(
        {0x02FE5A0000180001: (0x02FE5A00FF000002, 3, "MF0;leaf-2:MQM9700/U1")}
    )
    rows = "host,device,port,switch\nnode-*,mlx5_0,1,leaf-1\nnode-2,ens1f0,,leaf-1\n"
    return {
        "lldp, json0": Parser(parse_neighbours, switches.json0(seen), (ValueError,)),
        "lldp, json": Parser(parse_neighbours, switches.compact(seen), (ValueError,)),
        "ibnetdiscover": Parser(
            lambda text: parse_topology(text.encode(), {0x02FE5A0000180001}), fabric
        ),
        "list of switches": Parser(lambda text: parse_list(text, "node-2"), rows, (ValueError,)),
        "port": Parser(parse_port, "mlx5_0/1"),
    }


def _rules() -> dict[str, Parser]:
    expression = 'sum by (a) (rate(x_total{job="n", a=~"b|c"}[5m:1m])) > 0.5 # why\n'
    return {
        "selectors": Parser(lambda text: list(selectors(text)), expression),
        "prometheus 3": Parser(lambda text: list(changed_meanings(text)), expression),
    }


PARSED = {
    **_tables(),
    **_blocks(),
    **_hccn(),
    **_tools(),
    **_kernel(),
    **_files(),
    **_switches(),
    **_rules(),
}


def numbers_in(value: object) -> Iterator[float]:
    """Yield every number in a result."""
    if isinstance(value, bool | str | bytes | None):
        return
    if isinstance(value, int | float):
        yield value
        return
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    assert isinstance(value, Iterable), value
    for part in value:
        yield from numbers_in(part)


def hostile_texts(parser: Parser, size: int) -> Iterator[str]:
    """Texts of about `size` characters: one character, the parser's text again and again, with
    other numbers each time, and with one character drawn out before, within and behind it.
    """
    text = parser.text
    longest = max(text.splitlines(keepends=True), key=len)
    middle = len(text) // 2
    for character in ONE_CHARACTER:
        yield character * size
        yield text[:middle] + character * size + text[middle:]
        yield longest.strip() + character * size + "x"
    for piece in (text, longest, longest.strip()):
        yield piece * (size // len(piece))
    yield "".join(NUMBER.sub(str(number), longest) for number in range(size // len(longest)))


def texts_with_long_numbers(parser: Parser) -> Iterator[str]:
    """A number of many digits in each place, and in all places at once: more than a float has, and
    more than int() reads.
    """
    figures = [sign + "9" * digits + end for digits in DIGITS for sign, end in SPELLINGS]
    for figure in (*figures, "1e999"):
        yield NUMBER.sub(figure, parser.text)
        for place in NUMBER.finditer(parser.text):
            yield parser.text[: place.start()] + figure + parser.text[place.end() :]
