"""The checks that a node offers: those whose tool and devices it has.

In: PATH, /proc, /sys and /dev of the node. Out: `Check`, each one run of a tool, and why others are
not offered. A tool that is absent is no failure.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Optional

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probes.common.rdma import ACTIVE, gid_of_port, parse_id, parse_rate
from nodevitals.probes.fabric.admission import TestedLink
from nodevitals.probes.fabric.tools import nccl, perftest
from nodevitals.probes.selfcheck.results import KINDS, Kind
from nodevitals.probes.selfcheck.settings import SelfcheckSettings
from nodevitals.probes.selfcheck.tools import ascend_dmi, dcgm, mbw, nvbandwidth

COPY_SECONDS = 120.0
MEMORY_SECONDS = 120.0
LOOPBACK_SECONDS = 30.0
COLLECTIVE_SECONDS = 180.0
COLLECTIVE_BYTES = 1 << 30
COLLECTIVE_ITERATIONS = 20
LOOPBACK_BYTES = 1 << 20
LOOPBACK_TEST_SECONDS = 3
MEMORY_MARGIN = 2 * mbw.ARRAYS
_AVAILABLE = re.compile(r"^MemAvailable: +([0-9]{1,15}) kB$", re.MULTILINE)
_NPU = re.compile(r"davinci([0-9]{1,4})")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a tool: what it tests, its command line, its environment, its longest time."""

    kind: Kind
    tool: str
    devices: tuple[str, ...] = ()
    port: str = ""
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    seconds: float
    expected: Optional[float] = None
    link: TestedLink = TestedLink()
    rdma: Optional[perftest.PerftestOptions] = None
    """The options of a loopback, whose server and client are two runs."""
    mebibytes: int = 0

    @property
    def name(self) -> str:
        """The check in a few words."""
        where = "/".join(part for part in (",".join(self.devices), self.port) if part)
        return f"{self.kind} {where}".rstrip()


class Offer(msgspec.Struct, frozen=True):
    """The checks of this node, and why each other kind is not offered."""

    checks: tuple[Check, ...]
    absent: dict[str, str]


class _AbsentError(Exception):
    """The node has no such check; the text is the reason."""


def offer(
    host: Host,
    settings: SelfcheckSettings,
    kinds: Sequence[Kind],
    devices: Sequence[str] = (),
) -> Offer:
    """The checks of these kinds. If devices are given, only their checks: indexes of accelerators,
    names of RDMA devices or ports (`mlx5_0/1`).
    """
    checks: list[Check] = []
    absent: dict[str, str] = {}
    for kind in sorted(set(kinds), key=KINDS.index):
        try:
            checks += _offered(kind, host, settings, tuple(devices))
        except _AbsentError as error:
            absent[kind] = str(error)
    return Offer(tuple(checks), absent)


def _offered(
    kind: Kind, host: Host, settings: SelfcheckSettings, wanted: tuple[str, ...]
) -> list[Check]:
    expected = settings.expected.of(kind)
    if kind == "memory":
        return [_memory(settings.memory_mebibytes, expected, wanted)]
    if kind == "rdma_loopback":
        return list(_loopbacks(host, expected, wanted))
    if kind == "dcgm":
        return [_dcgm(host, settings.dcgm_level, wanted)]
    if kind == "collective":
        return [_collective(host, expected, wanted)]
    return list(_copies(kind, host, expected, wanted))


def _tool(name: str) -> str:
    if shutil.which(name) is None:
        raise _AbsentError(f"{name} is not on PATH")
    return name


def gpus(host: Host) -> tuple[str, ...]:
    """Indexes of the GPUs of NVIDIA's driver, in the order of the bus."""
    return tuple(str(index) for index in range(len(list_names(host.proc("driver/nvidia/gpus")))))


def _chosen(all_of_them: Sequence[str], wanted: Sequence[str], what: str) -> tuple[str, ...]:
    chosen = tuple(name for name in all_of_them if not wanted or name in wanted)
    if not chosen:
        raise _AbsentError(f"the node has no {what}" if not all_of_them else f"no {what} is chosen")
    return chosen


def _cuda(devices: Sequence[str]) -> dict[str, str]:
    """Variables that give GPUs the numbers of nvidia-smi, whatever the agent's environment is."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(devices)}


def _copies(
    kind: Kind, host: Host, expected: float | None, wanted: Sequence[str]
) -> Iterator[Check]:
    npus = sorted(
        int(match[1]) for name in list_names(host.root("/dev")) if (match := _NPU.fullmatch(name))
    )
    if npus and not gpus(host):
        tool = _tool("ascend-dmi")
        for device in _chosen([str(npu) for npu in npus], wanted, "NPU"):
            yield Check(
                kind=kind,
                tool=tool,
                devices=(device,),
                argv=tuple(ascend_dmi.argv(kind, device)),
                seconds=COPY_SECONDS,
                expected=expected,
            )
        return
    tool = _tool("nvbandwidth")
    devices = _chosen(gpus(host), wanted, "GPU")
    yield Check(
        kind=kind,
        tool=tool,
        devices=devices,
        argv=tuple(nvbandwidth.argv(kind)),
        environment=_cuda(devices),
        seconds=COPY_SECONDS,
        expected=expected,
    )


def has_memory(check: Check, host: Host) -> bool:
    """Whether there is memory for the arrays of a check, and as much again for other processes."""
    match = _AVAILABLE.search(read_text(host.proc("meminfo")) or "")
    return MEMORY_MARGIN * check.mebibytes <= (int(match[1]) // 1024 if match else 0)


def _memory(mebibytes: int, expected: float | None, wanted: Sequence[str]) -> Check:
    tool = _tool("mbw")
    if wanted:
        raise _AbsentError("it has no device, and some are chosen")
    return Check(
        kind="memory",
        tool=tool,
        argv=tuple(mbw.argv(mebibytes)),
        seconds=MEMORY_SECONDS,
        expected=expected,
        mebibytes=mebibytes,
    )


def _dcgm(host: Host, level: int, wanted: Sequence[str]) -> Check:
    tool = _tool("dcgmi")
    devices = _chosen(gpus(host), wanted, "GPU")
    return Check(
        kind="dcgm",
        tool=tool,
        devices=devices,
        argv=tuple(dcgm.argv(level, devices if wanted else ())),
        seconds=dcgm.TIMEOUT_SECONDS[level],
    )


def _collective(host: Host, expected: float | None, wanted: Sequence[str]) -> Check:
    tool = _tool("all_reduce_perf")
    devices = _chosen(gpus(host), wanted, "GPU")
    if len(devices) < 2:
        raise _AbsentError("it takes two GPUs")
    sizes = (COLLECTIVE_BYTES, COLLECTIVE_BYTES, 1)
    return Check(
        kind="collective",
        tool=tool,
        argv=tuple(nccl.argv("all_reduce", *sizes, COLLECTIVE_ITERATIONS, len(devices))),
        environment=_cuda(devices),
        seconds=COLLECTIVE_SECONDS,
        expected=expected,
    )


def _loopbacks(host: Host, expected: float | None, wanted: Sequence[str]) -> Iterator[Check]:
    tool = _tool("ib_write_bw")
    ports = [
        (device, port)
        for device in list_names(host.sys("class/infiniband"))
        for port in list_names(host.sys(f"class/infiniband/{device}/ports"))
        if port.isdecimal()
    ]
    names = [f"{device}/{port}" for device, port in ports]
    chosen = [name for name in wanted if "/" in name]
    chosen += [f"{device}/{port}" for device, port in ports if device in wanted]
    usable = [name for name, at in zip(names, ports) if _is_active(host, *at)]
    if names and not usable:
        raise _AbsentError("no RDMA port is active")
    for name in _chosen(usable, chosen or wanted, "active RDMA port"):
        device, _, port = name.partition("/")
        gid = gid_of_port(host, device, int(port))
        yield Check(
            kind="rdma_loopback",
            tool=tool,
            devices=(device,),
            port=port,
            seconds=LOOPBACK_SECONDS,
            expected=expected,
            link=_link(host, device, port),
            rdma=perftest.PerftestOptions(
                operation="write_bw",
                device=device,
                ib_port=int(port),
                gid_index=None if gid is None else gid.index,
                message_bytes=LOOPBACK_BYTES,
                seconds=LOOPBACK_TEST_SECONDS,
            ),
        )


def _is_active(host: Host, device: str, port: str) -> bool:
    text = read_text(host.sys(f"class/infiniband/{device}/ports/{port}/state"))
    return parse_id(text or "") == ACTIVE


def _link(host: Host, device: str, port: str) -> TestedLink:
    """The port, whose traffic shows whether it is in use."""
    folder = f"class/infiniband/{device}/ports/{port}"
    counters = tuple(f"{folder}/counters/{name}" for name in ("port_xmit_data", "port_rcv_data"))
    return TestedLink(counters, 4, parse_rate(read_text(host.sys(f"{folder}/rate")) or ""))
