"""The file of a profile, and the facts that it can name.

In: YAML text. Out: a Profile, or every problem with its place. Each known fact has the kind of its
texts, and whether the nodes of a pool are compared by it without a profile.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import msgspec

from nodevitals.document import Problem, meant
from nodevitals.probe import Families
from nodevitals.probes.profile.conditions import Condition, Kind, read_condition

STATES = ("conforming", "differing", "unknown")

metrics = Families("profile")
CONFORMS = metrics.gauge(
    "conforms",
    "Whether what was found is what the profile wants; missing where it is unknown.",
    "check",
)
CHECK_INFO = metrics.gauge(
    "check_info",
    "Always 1; what the profile wants of a fact and what was found; empty where there is none.",
    *("check", "wanted", "found"),
)
CHECKS = metrics.gauge("checks", "Number of checks of the profile by their state.", state=STATES)
INFO = metrics.gauge("info", "Always 1; name of the profile.", "name")


class KnownFact(NamedTuple):
    """`common`: healthy nodes of one pool have the same texts, so rules may compare them."""

    kind: Kind
    common: bool
    help: str


_NUMBER: Kind = "number"
_TEXT: Kind = "text"

KNOWN = {
    "accelerator.count": KnownFact(_NUMBER, True, "Number of accelerators that answer."),
    "accelerator.model": KnownFact(_TEXT, True, "Model."),
    "accelerator.memory_bytes": KnownFact(_NUMBER, True, "Size of the device memory."),
    "accelerator.driver": KnownFact(_TEXT, True, "Version of the loaded driver."),
    "accelerator.firmware": KnownFact(_TEXT, True, "Firmware; VBIOS of a GPU."),
    "nvidia.ecc": KnownFact(_TEXT, True, "ECC mode: on or off."),
    "nvidia.mig": KnownFact(_TEXT, True, "MIG mode: on or off."),
    "nvidia.persistence": KnownFact(_TEXT, True, "Persistence mode: on or off."),
    "nvidia.nvlinks": KnownFact(_NUMBER, True, "Number of active NVLinks."),
    "nvidia.pcie_generation": KnownFact(_NUMBER, True, "PCIe generation of GPU and slot."),
    "nvidia.pcie_width": KnownFact(_NUMBER, True, "PCIe lanes of GPU and slot."),
    "nvidia.power_limit_watts": KnownFact(_NUMBER, True, "Enforced power limit."),
    "pcie.accelerator.numa_node": KnownFact(_TEXT, True, "NUMA node of each accelerator."),
    "pcie.nic.width": KnownFact(_NUMBER, True, "PCIe lanes in use of each RDMA adapter."),
    "pcie.nic.speed": KnownFact(_TEXT, True, "PCIe speed in use of each RDMA adapter."),
    "pcie.nic.numa_node": KnownFact(_TEXT, True, "NUMA node of each RDMA adapter."),
    "pcie.nvme.width": KnownFact(_NUMBER, True, "PCIe lanes in use of each NVMe controller."),
    "pcie.nvme.speed": KnownFact(_TEXT, True, "PCIe speed in use of each NVMe controller."),
    "pcie.acs": KnownFact(
        _TEXT, True, "Whether a PCI bridge redirects requests of peers (ACS): on or off."
    ),
    "rdma.devices": KnownFact(_NUMBER, True, "Number of RDMA devices, without virtual functions."),
    "rdma.firmware": KnownFact(_TEXT, True, "Firmware of each RDMA device."),
    "rdma.board": KnownFact(_TEXT, True, "Board (PSID) of each RDMA device."),
    "nvme.count": KnownFact(_NUMBER, True, "Number of NVMe controllers."),
    "nvme.model": KnownFact(_TEXT, False, "Model of each NVMe controller."),
    "nvme.firmware": KnownFact(_TEXT, False, "Firmware of each NVMe controller."),
    "system.vendor": KnownFact(_TEXT, True, "Manufacturer of the system (DMI)."),
    "system.product": KnownFact(_TEXT, True, "Product name of the system (DMI)."),
    "bios.version": KnownFact(_TEXT, True, "Version of the BIOS (DMI)."),
    "kernel.release": KnownFact(_TEXT, True, "Release of the running kernel."),
    "os.version": KnownFact(_TEXT, True, "ID and VERSION_ID of os-release."),
    "cpu.model": KnownFact(_TEXT, True, "Model of the CPUs."),
    "cpu.sockets": KnownFact(_NUMBER, True, "Number of CPU packages."),
    "cpu.online": KnownFact(_NUMBER, True, "Number of online logical CPUs."),
    "cpu.numa_nodes": KnownFact(_NUMBER, True, "Number of online NUMA nodes."),
    "cpu.governor": KnownFact(_TEXT, True, "Frequency governor of each CPU."),
    "cpu.smt": KnownFact(_TEXT, True, "Simultaneous multithreading: on, off, and others."),
    "cpu.microcode": KnownFact(_TEXT, True, "Version of the microcode of each CPU."),
    "clock.source": KnownFact(_TEXT, True, "Clock source of the kernel."),
    "clock.daemon": KnownFact(_TEXT, True, "Time daemon that runs."),
    "memory.bytes": KnownFact(_NUMBER, False, "Memory managed by the kernel."),
    "memory.dimms": KnownFact(_NUMBER, True, "Number of memory modules (EDAC)."),
    "memory.dimm_bytes": KnownFact(_NUMBER, True, "Size of each memory module (EDAC)."),
    "memory.dimm_errors": KnownFact(
        _NUMBER, False, "Errors of each memory module since the driver was loaded (EDAC)."
    ),
    "memory.swap_bytes": KnownFact(_NUMBER, False, "Size of the swap space."),
    "memory.thp": KnownFact(_TEXT, True, "Transparent huge pages: always, madvise or never."),
    "memory.hugepages_2048kB": KnownFact(_NUMBER, False, "Number of huge pages of 2 MiB."),
    "memory.hugepages_1048576kB": KnownFact(_NUMBER, False, "Number of huge pages of 1 GiB."),
    "iommu": KnownFact(_TEXT, True, "Whether the kernel uses an IOMMU: on or off."),
    "container.runtime": KnownFact(_TEXT, True, "Container runtimes that run."),
    "dns.servers": KnownFact(_TEXT, True, "Name servers of resolv.conf, in their order."),
    "dns.own_name": KnownFact(
        _TEXT, True, "Whether the node's own name has an address: resolves or does not resolve."
    ),
}

# Names that end in a word of the site: the kind of the texts, and the pattern of that word.
PREFIXES = {
    "module.": KnownFact(_TEXT, True, "Kernel module: loaded or not loaded."),
    "module_version.": KnownFact(_TEXT, True, "Version of a loaded kernel module."),
    "sysctl.": KnownFact(_TEXT, True, "Kernel parameter, as `sysctl` names it."),
    "cmdline.": KnownFact(_TEXT, True, "Parameter of the kernel's command line."),
    "limit.memlock.": KnownFact(
        _TEXT, True, "Soft limit of locked memory of a process, by its name: bytes or unlimited."
    ),
    "limit.nofile.": KnownFact(
        _TEXT, True, "Soft limit of open files of a process, by its name: a number or unlimited."
    ),
    "unit.": KnownFact(_TEXT, True, "State of a watched systemd unit: active, inactive, failed."),
}


def known(name: str) -> Optional[KnownFact]:
    """The kind of a fact; None if there is no such fact."""
    if name in KNOWN:
        return KNOWN[name]
    for prefix, fact in PREFIXES.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            return fact
    return None


MAX_CONDITIONS = 500
MAX_NAME_CHARACTERS = 64


class Profile(msgspec.Struct, frozen=True):
    """The expected state of one kind of node: conditions by fact."""

    name: str
    conditions: dict[str, Condition]


def parse_profile(text: bytes) -> Profile:
    """The profile in a file. Raises DocumentError with every problem."""
    from nodevitals.document import SettingsDocument

    document = SettingsDocument(text)
    raw = document.values()
    problems: list[Problem] = []
    profile = _read(raw, problems)
    error = document.error(problems)
    if error is not None:
        raise error
    assert profile is not None
    return profile


def _read(raw: object, problems: list[Problem]) -> Profile | None:
    if not isinstance(raw, dict):
        problems.append(Problem("", "not a profile: write the keys name and expect"))
        return None
    problems.extend(
        Problem(str(key), f"unknown key; use name or expect{meant(key, ('name', 'expect'))}")
        for key in raw
        if key not in ("name", "expect")
    )
    name, expect = raw.get("name"), raw.get("expect")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        problems.append(Problem("name", f"not a text of 1 to {MAX_NAME_CHARACTERS} characters"))
    if not isinstance(expect, dict) or not 0 < len(expect) <= MAX_CONDITIONS:
        text = f"not a mapping of 1 to {MAX_CONDITIONS} facts: write FACT: VALUE"
        problems.append(Problem("expect", text))
        return None
    conditions: dict[str, Condition] = {}
    for fact, wanted in expect.items():
        what = known(str(fact))
        if what is None:
            near = meant(fact, (*KNOWN, *PREFIXES))
            text = f"unknown fact{near}; `nodevitals profile facts` lists them"
            problems.append(Problem(f"expect.{fact}", text))
            continue
        condition = read_condition(wanted, what.kind, f"expect.{fact}", problems)
        if condition is not None:
            conditions[str(fact)] = condition
    return Profile(str(name), conditions)
