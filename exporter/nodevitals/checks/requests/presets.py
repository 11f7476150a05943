"""The presets that every hub has; a site's preset of the same name replaces one."""

from __future__ import annotations

from typing import Any, Optional

import msgspec

from nodevitals.checks.model import Kind, TestRequest
from nodevitals.checks.requests.devices import ALL


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of parameters."""

    kind: Kind
    test: TestRequest = TestRequest()
    rounds: Optional[int] = None
    share: Optional[float] = None
    expected: Optional[str] = None


def _collective(tool: str, operation: str, sizes: str = "1GiB", **more: Any) -> Preset:
    fields = {"tool": tool, "operation": operation, "sizes": sizes, **more}
    return Preset(kind="collective", test=msgspec.convert(fields, TestRequest))


def _pairs(tool: str, operation: str, sizes: str, iterations: int, queue_pairs: int = 1) -> Preset:
    fields = {"tool": tool, "operation": operation, "sizes": sizes, "iterations": iterations}
    test = msgspec.convert({**fields, "queue_pairs": queue_pairs}, TestRequest)
    return Preset(kind="matrix", test=test)


def _whole_machine() -> Preset:
    fields = {"tool": "perftest", "operation": "write_bw,send_lat", "device": ALL}
    return Preset(kind="matrix", test=msgspec.convert(fields, TestRequest))


PRESETS: dict[str, Preset] = {
    "whole-machine": _whole_machine(),
    "ib-write-64k": _pairs("perftest", "write_bw", "64KiB", 1000),
    "ib-write-sweep": _pairs("perftest", "write_bw", "4KiB..8MiB x4", 200, queue_pairs=8),
    "ib-read-1m": _pairs("perftest", "read_bw", "1MiB", 1000),
    "latency": _pairs("perftest", "send_lat", "8B", 1000),
    "tcp": _pairs("iperf3", "tcp", "128KiB", 2000, queue_pairs=4),
    "nccl-all-reduce": _collective("nccl", "all_reduce"),
    "nccl-all-reduce-sweep": _collective("nccl", "all_reduce", "8B..8GiB x8"),
    "nccl-alltoall": _collective("nccl", "alltoall"),
    "hccl-all-reduce": _collective("hccl", "all_reduce"),
    "nccl-all-reduce-roce": _collective(
        *("nccl", "all_reduce", "32MiB..8GiB x2"),
        devices_per_process=8,
        gid_index=3,
        mca={
            "coll_hcoll_enable": "0",
            "pml": "ob1",
            "btl": "^openib",
            "btl_tcp_if_include": "bond0",
        },
    ),
    "hccl-all-reduce-sweep": _collective(
        *("hccl", "all_reduce", "8KiB..64MiB x2"), data_type="fp32", reduction="sum"
    ),
}
"""A preset of pairs is of the kind `matrix` and serves `pair` as well."""
