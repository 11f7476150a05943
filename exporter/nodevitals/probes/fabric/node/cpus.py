"""The CPUs on which a tool runs: those of the NUMA node of the tested device. From another one all
data crosses the connection between the processors, at up to half the speed
(https://fasterdata.es.net/host-tuning/interrupt-binding, of NVIDIA
https://community.mellanox.com/docs/DOC-2491).

In: `local_cpulist` of a device in sysfs. Out: numbers of CPUs; none where they are unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import read_text
from nodevitals.probes.fabric.node.port import CPUS_FILE, place_of
from nodevitals.probes.fabric.settings import TestSettings

MAX_CPUS = 8192  # the kernel's own limit, CONFIG_NR_CPUS
_RANGES = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,1000}")


def cpus_near(test: TestSettings, host: Host) -> frozenset[int]:
    """The CPUs of the device's NUMA node on which this process may run; none where these are all
    that it has, or none of them.
    """
    own = os.sched_getaffinity(0)
    near = parse_cpus(read_text(host.sys(place_of(test)[0]) / CPUS_FILE) or "") & own
    return frozenset() if near == own else near


def cpus_of(facts: Mapping[str, str]) -> frozenset[int]:
    """The CPUs of the NUMA node of a port on another node, from what PORT_SCRIPT printed there."""
    return parse_cpus(facts.get(CPUS_FILE, ""))


def pinned(argv: Sequence[str], cpus: Collection[int]) -> list[str]:
    """The command line that runs a program on these CPUs; on any where there are none."""
    return ["taskset", "-c", spelled(cpus), *argv] if cpus else list(argv)


def parse_cpus(text: str) -> frozenset[int]:
    """The numbers of `0-15,64-79`; none for any other text."""
    if not _RANGES.fullmatch(text):
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), MAX_CPUS) + 1))
    return frozenset(found)


def spelled(cpus: Collection[int]) -> str:
    """The numbers as ranges: `0-15,64-79`."""
    runs = []
    for _, group in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
        runs.append(f"{numbers[0]}{last}")
    return ",".join(runs)
