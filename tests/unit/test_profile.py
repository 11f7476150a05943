"""The expected state of a node: each defect is put into a tree of small files, and one check of the
profile that was learned from the healthy node names it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevitals.commands.profile import Checked, profile_of
from nodevitals.document import DocumentError
from nodevitals.probe import Host, ProbeError, Readings
from nodevitals.probes.common.facts import Facts
from nodevitals.probes.profile.conditions import Condition, conforms, found_text, found_texts
from nodevitals.probes.profile.device_facts import acs_redirects
from nodevitals.probes.profile.document import KNOWN, PREFIXES, known, parse_profile
from nodevitals.probes.profile.node_facts import (
    parse_chosen,
    parse_cmdline,
    parse_limits,
    parse_meminfo,
)
from nodevitals.probes.profile.probe import ProfileProbe, ProfileSettings
from testbed import processes
from testbed.node import ROOT
from testbed.trees import write

GPU, NIC, NVME, BRIDGE = "0000:17:00.0", "0000:18:00.0", "0000:19:00.0", "0000:16:00.0"
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""


def acs_config(control: int) -> bytes:
    """A configuration space with two extended capabilities: AER, then ACS."""
    place = 0x148
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x1 | 1 << 16 | place << 20)
    struct.pack_into("<I", config, place, 0xD | 1 << 16)
    struct.pack_into("<H", config, place + 6, control)
    return bytes(config)


def healthy(root: Path) -> None:
    """A node with one device of each kind."""
    (root / "sys/class/iommu/dmar0").mkdir(parents=True)
    cpus = {
        f"sys/devices/system/cpu/cpu{number}/{file}": text
        for number in range(4)
        for file, text in {
            "online": "1",
            "topology/physical_package_id": str(number // 2),
            "cpufreq/scaling_governor": "performance",
            "microcode/version": "0x2b0005",
        }.items()
    }
    write(
        root,
        {
            **cpus,
            "proc/sys/kernel/osrelease": "6.8.0-60-example\n",
            "proc/sys/kernel/numa_balancing": "0\n",
            "proc/sys/net/ipv4/tcp_mem": "1\t2\t3\n",
            "proc/sys/net/ipv4/conf/ens1.7/rp_filter": "2\n",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz ro iommu=pt quiet\n",
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example  CPU 9\n",
            "proc/meminfo": "MemTotal:  2000000 kB\nSwapTotal: 0 kB\nHugePages_Total: 3\n",
            "proc/10/comm": "slurmd\n",
            "proc/10/limits": LIMITS,
            "proc/11/comm": "chronyd\n",
            "proc/12/comm": "containerd\n",
            "sys/module/nvidia_peermem/version": "580.1\n",
            "sys/module/mlx5_core/refcnt": "1\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
            "sys/devices/system/cpu/smt/control": "on\n",
            "sys/devices/system/node/node0/cpulist": "0-1\n",
            "sys/devices/system/node/node1/cpulist": "2-3\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
            "sys/devices/system/edac/mc/mc0/dimm0/size": "65536\n",
            "sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count": "0\n",
            "sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count": "0\n",
            "sys/devices/system/edac/mc/mc0/dimm1/size": "65536\n",
            "sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count": "0\n",
            "sys/devices/system/edac/mc/mc0/dimm1/dimm_ue_count": "0\n",
            "sys/class/dmi/id/product_name": "EX-9000\n",
            "sys/class/dmi/id/sys_vendor": "Example\n",
            "sys/class/dmi/id/bios_version": "2.1\n",
            "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
            "sys/class/infiniband/mlx5_0/board_id": "EX_0000000001\n",
            "sys/class/infiniband/mlx5_0/device/current_link_width": "16\n",
            "sys/class/infiniband/mlx5_0/device/current_link_speed": "32.0 GT/s PCIe\n",
            "sys/class/infiniband/mlx5_0/device/numa_node": "1\n",
            "sys/class/nvme/nvme0/model": "Example NVMe\n",
            "sys/class/nvme/nvme0/firmware_rev": "1.0\n",
            "sys/class/nvme/nvme0/transport": "pcie\n",
            "sys/class/nvme/nvme0/device/current_link_width": "4\n",
            "sys/class/nvme/nvme0/device/current_link_speed": "16.0 GT/s PCIe\n",
            f"sys/bus/pci/devices/{GPU}/vendor": "0x10de\n",
            f"sys/bus/pci/devices/{GPU}/class": "0x030200\n",
            f"sys/bus/pci/devices/{GPU}/numa_node": "0\n",
            f"sys/bus/pci/devices/{BRIDGE}/class": "0x060400\n",
            "etc/os-release": 'ID=example\nVERSION_ID="12.1"\n',
            "etc/resolv.conf": "search x\nnameserver 192.0.2.53\n",
        },
    )
    (root / f"sys/bus/pci/devices/{BRIDGE}/config").write_bytes(acs_config(0))
    processes.kernel(root / "proc")


def probe(root: Path, profile: str = "") -> ProfileProbe:
    host = Host(rootfs=str(root), procfs=str(root / "proc"), sysfs=str(root / "sys"))
    return ProfileProbe(host, ProfileSettings(file=profile))


def run(one: ProfileProbe, *messages: Facts) -> dict[str, Checked]:
    """The checks after a run."""
    readings = Readings(messages, families=ProfileProbe.families)
    one.run(readings)
    answers, checks = {}, {}
    for sample in readings.samples:
        if sample.family == "nodevitals_profile_conforms":
            answers[sample.labels[0]] = bool(sample.value)
        if sample.family == "nodevitals_profile_check_info":
            checks[sample.labels[0]] = sample.labels[1:]
    return {
        name: Checked(wanted, found, answers.get(name)) for name, (wanted, found) in checks.items()
    }


@pytest.fixture
def node(tmp_path: Path) -> Path:
    healthy(tmp_path)
    return tmp_path


GPUS = Facts(
    "nvidia", {"nvidia.ecc": {"GPU 0": "on", "GPU 1": "on"}, "accelerator.count": {"": "2"}}
)
MORE = """\
  sysctl.net.ipv4.tcp_mem: "1 2 3"
  sysctl.net.ipv4.conf.ens1/7.rp_filter: 2
  cmdline.iommu: pt
  cmdline.nomodeset: not set
  memory.dimm_errors: {at_most: 10}
"""


@pytest.fixture
def learned(node: Path) -> Path:
    """The profile of the healthy node, with what only a person adds."""
    file = node / "profile.yaml"
    file.write_text(profile_of("EX", run(probe(node), GPUS)) + MORE)
    return file


def test_a_healthy_node_conforms_to_its_own_profile(node: Path, learned: Path) -> None:
    checks = run(probe(node, str(learned)), GPUS)
    wanted = {name: one for name, one in checks.items() if one.wanted}
    assert len(wanted) > 40
    assert {name for name, one in wanted.items() if not one.conforms} == set()


def put(path: str, text: str) -> Callable[[Path], None]:
    return lambda root: (write(root, {path: text}), None)[1]


def acs_on(root: Path) -> None:
    (root / f"sys/bus/pci/devices/{BRIDGE}/config").write_bytes(acs_config(0x1D))


def no_iommu(root: Path) -> None:
    (root / "sys/class/iommu/dmar0").rmdir()


def without(*paths: str) -> Callable[[Path], None]:
    def remove(root: Path) -> None:
        for path in paths:
            (root / path).unlink()
            (root / path).parent.rmdir()

    return remove


CPU3 = "sys/devices/system/cpu/cpu3"
DIMM1 = "sys/devices/system/edac/mc/mc0/dimm1"
MLX5 = "sys/class/infiniband/mlx5_0"
DEFECTS = {
    "kernel.release": put("proc/sys/kernel/osrelease", "6.8.0-59-example"),
    "clock.source": put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
    "clock.daemon": without("proc/11/comm"),
    "container.runtime": put("proc/12/comm", "sleep"),
    "module.nvidia_peermem": without("sys/module/nvidia_peermem/version"),
    "module_version.nvidia_peermem": put("sys/module/nvidia_peermem/version", "570.9"),
    "sysctl.kernel.numa_balancing": put("proc/sys/kernel/numa_balancing", "1"),
    "sysctl.net.ipv4.tcp_mem": put("proc/sys/net/ipv4/tcp_mem", "1 2 4"),
    "sysctl.net.ipv4.conf.ens1/7.rp_filter": put("proc/sys/net/ipv4/conf/ens1.7/rp_filter", "1"),
    "cmdline.iommu": put("proc/cmdline", "ro iommu=off"),
    "cmdline.nomodeset": put("proc/cmdline", "ro iommu=pt nomodeset"),
    "cpu.model": put("proc/cpuinfo", "model name : Other CPU"),
    "cpu.online": put(f"{CPU3}/online", "0"),
    "cpu.sockets": put(f"{CPU3}/topology/physical_package_id", "2"),
    "cpu.numa_nodes": without("sys/devices/system/node/node1/cpulist"),
    "cpu.governor": put(f"{CPU3}/cpufreq/scaling_governor", "powersave"),
    "cpu.microcode": put(f"{CPU3}/microcode/version", "0x2b0001"),
    "cpu.smt": put("sys/devices/system/cpu/smt/control", "off"),
    "memory.bytes": put("proc/meminfo", "MemTotal: 1000000 kB\nSwapTotal: 0 kB"),
    "memory.swap_bytes": put("proc/meminfo", "MemTotal: 2000000 kB\nSwapTotal: 8 kB"),
    "memory.dimms": put(f"{DIMM1}/size", "0"),
    "memory.dimm_bytes": put(f"{DIMM1}/size", "32768"),
    "memory.dimm_errors": put(f"{DIMM1}/dimm_ce_count", "11"),
    "memory.thp": put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
    "memory.hugepages_2048kB": put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
    "iommu": no_iommu,
    "pcie.acs": acs_on,
    "system.product": put("sys/class/dmi/id/product_name", "EX-8000"),
    "bios.version": put("sys/class/dmi/id/bios_version", "2.0"),
    "rdma.devices": put("sys/class/infiniband/mlx5_1/fw_ver", "28.39.1002"),
    "rdma.firmware": put(f"{MLX5}/fw_ver", "28.38.1000"),
    "rdma.board": put(f"{MLX5}/board_id", "EX_0000000002"),
    "pcie.nic.width": put(f"{MLX5}/device/current_link_width", "8"),
    "pcie.nic.speed": put(f"{MLX5}/device/current_link_speed", "16.0 GT/s PCIe"),
    "pcie.nic.numa_node": put(f"{MLX5}/device/numa_node", "0"),
    "pcie.accelerator.numa_node": put(f"sys/bus/pci/devices/{GPU}/numa_node", "1"),
    "nvme.count": put("sys/class/nvme/nvme1/model", "Example NVMe"),
    "nvme.model": put("sys/class/nvme/nvme0/model", "Other NVMe"),
    "nvme.firmware": put("sys/class/nvme/nvme0/firmware_rev", "0.9"),
    "pcie.nvme.width": put("sys/class/nvme/nvme0/device/current_link_width", "2"),
    "pcie.nvme.speed": put("sys/class/nvme/nvme0/device/current_link_speed", "8.0 GT/s PCIe"),
    "limit.memlock.slurmd": put("proc/10/limits", LIMITS.replace("unlimited", "65536    ")),
    "limit.nofile.slurmd": put("proc/10/limits", LIMITS.replace("1048576", "1024   ")),
    "os.version": put("etc/os-release", "ID=example\nVERSION_ID=11"),
    "dns.servers": put("etc/resolv.conf", "nameserver 192.0.2.99"),
}


@pytest.mark.parametrize("check", DEFECTS)
def test_one_defect_is_one_check(node: Path, learned: Path, check: str) -> None:
    DEFECTS[check](node)
    checks = run(probe(node, str(learned)), GPUS)
    differing = {name for name, one in checks.items() if one.conforms is False}
    assert differing == {check}
    assert checks[check].found != checks[check].wanted


def test_a_mode_that_is_off_on_one_gpu_names_it(node: Path, learned: Path) -> None:
    one = probe(node, str(learned))
    values = {"nvidia.ecc": {"GPU 0": "on", "GPU 1": "off"}, "accelerator.count": {"": "1"}}
    checks = run(one, Facts("nvidia", values))
    assert checks["nvidia.ecc"] == Checked("on", "off (GPU 1); on (GPU 0)", False)
    assert checks["accelerator.count"] == Checked("2", "1", False)


def test_what_is_not_read_is_unknown(tmp_path: Path, learned: Path) -> None:
    """Neither healthy nor different: a node of which nothing can be read."""
    (tmp_path / "empty/proc").mkdir(parents=True)
    (tmp_path / "empty/sys").mkdir()
    checks = run(probe(tmp_path / "empty", str(learned)))
    answers = {name: one.conforms for name, one in checks.items()}
    assert answers.pop("dns.own_name") is not False
    assert set(answers.values()) == {None}


def test_processes_of_a_container_say_nothing(node: Path, learned: Path) -> None:
    """Without hostPID, the node's daemons are not seen; they may run."""
    (node / "proc/2/stat").unlink()
    checks = run(probe(node, str(learned)), GPUS)
    assert checks["clock.daemon"].conforms is None
    assert checks["limit.memlock.slurmd"].conforms is None


def test_facts_of_a_probe_that_sends_none_any_more_are_unknown(node: Path, learned: Path) -> None:
    one = probe(node, str(learned))
    assert run(one, GPUS)["nvidia.ecc"].conforms
    assert run(one)["nvidia.ecc"].conforms
    state = one.state.received["nvidia"]
    one.state.received["nvidia"] = type(state)(state.facts, state.at - 301)
    assert run(one)["nvidia.ecc"] == Checked("on", "", None)


def test_a_damaged_profile_fails_and_the_last_good_one_counts(node: Path, learned: Path) -> None:
    one = probe(node, str(learned))
    run(one)
    good = learned.read_text()
    for text in (good[: len(good) // 2] + "\n- x", "", "name: x\nexpect: {a: 1}\n"):
        learned.write_text(text)
        readings = Readings(families=ProfileProbe.families)
        with pytest.raises(ProbeError, match="profile"):
            one.run(readings)
        assert any(s.family == "nodevitals_profile_conforms" for s in readings.samples)
    learned.unlink()
    with pytest.raises(ProbeError, match="cannot be read"):
        run(one)
    learned.write_text(good)
    assert run(one)["kernel.release"].conforms


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[]", "write the keys name and expect"),
        ("name: x\nexpect: {}", "1 to 500 facts"),
        ("name: ''\nexpect: {cpu.online: 1}", "1 to 64 characters"),
        ("name: x\nexpects: {}", "did you mean expect"),
        ("name: x\nexpect: {cpu.onlin: 1}", "did you mean cpu.online"),
        ("name: x\nexpect: {module.: loaded}", "unknown fact"),
        ("name: x\nexpect: {cpu.online: eight}", "write a number"),
        ("name: x\nexpect: {cpu.online: []}", "no values"),
        ("name: x\nexpect: {cpu.online: null}", "not a value"),
        ("name: x\nexpect: {cpu.online: [[1]]}", "not a value"),
        ("name: x\nexpect: {cpu.online: {at_most: x}}", "need numbers"),
        ("name: x\nexpect: {cpu.online: {at_least: 3, at_most: 2}}", "exchange them"),
        ("name: x\nexpect: {cpu.online: {matches: '8*'}}", "use at_least"),
        ("name: x\nexpect: {cpu.model: {matches: 3}}", "not a pattern"),
        ("name: x\nexpect: {cpu.model: {like: x}}", "not a condition"),
        ("name: x\nexpect: {kernel.release: 5.10}", "quote it"),
        ("name: x\nexpect: {nvidia.ecc: on}", "boolean"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(text: str, part: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_profile(text.encode())
    assert part in "\n".join(one.within("profile.yaml") for one in caught.value.problems)


@pytest.mark.parametrize(
    ("condition", "texts", "answer"),
    [
        (Condition(one_of=("8",)), ["8"], True),
        (Condition(one_of=("8",)), ["08"], True),
        (Condition(one_of=("1.1",)), ["1.10"], False),
        (Condition(one_of=("a", "b")), ["b", "a"], True),
        (Condition(one_of=("a",)), ["a", "b"], False),
        (Condition(one_of=("a",)), [], None),
        (Condition(at_least=2.0), ["2"], True),
        (Condition(at_least=2.0), ["1.5", "nan"], False),
        (Condition(at_least=2.0), ["3", "nan"], None),
        (Condition(at_most=2.0), ["unlimited"], None),
        (Condition(matches="6.8.*"), ["6.8.0-1"], True),
        (Condition(matches="6.8.*"), ["6.80"], False),
    ],
)
def test_conditions(condition: Condition, texts: list[str], answer: bool | None) -> None:
    assert conforms(condition, dict(zip("abc", texts))) is answer


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ({"": "a (b); c"}, ("a (b); c",)),
        ({"x1": "8", "x2": "8"}, ("8",)),
        ({"x1": "8", "x2": "4", "x3": "8"}, ("4", "8")),
        ({f"x{n}": f"text {n} of many characters" for n in range(9)}, ()),
    ],
)
def test_found_texts_are_read_back(values: dict[str, str], texts: tuple[str, ...]) -> None:
    line = found_text(values)
    assert len(line) <= 128
    assert line.isprintable()
    found = found_texts(line)
    assert found == texts or values == {"": "a (b); c"}


def test_facts_are_known_by_their_names() -> None:
    for name in KNOWN:
        assert known(name) is not None
    for prefix in PREFIXES:
        assert known(prefix) is None
        assert known(f"{prefix}x") is not None


@pytest.mark.parametrize("name", ["../../etc/passwd", "kernel/../../1/environ", "a", "", "a.b\n"])
def test_a_parameter_is_no_path(node: Path, learned: Path, name: str) -> None:
    """Names of a profile that lead out of /proc/sys are read as nothing."""
    one = probe(node)
    facts = one._read({f"sysctl.{name}": Condition(one_of=("x",))})
    assert f"sysctl.{name}" not in facts


def test_parsers() -> None:
    assert parse_cmdline('a=1 b c="x" a=2') == {"a": "2", "b": "set", "c": "x"}
    assert parse_chosen("always [madvise] never") == "madvise"
    assert parse_chosen("always") is None
    assert parse_meminfo("MemTotal: 3 kB\nHugePages_Total: 4\nX: y kB\n") == {"MemTotal": 3072}
    assert parse_limits(LIMITS) == {"memlock": "unlimited", "nofile": "1048576"}
    assert parse_limits("Max locked memory     \nMax open files  x\n") == {}


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        (acs_config(0), False),
        (acs_config(0x4), True),
        (acs_config(0x1B), False),
        (struct.pack("<I", 0x1 | 1 << 16 | 0x100 << 20).rjust(260, b"\0") + bytes(3836), False),
        (acs_config(0x4)[:64], None),
        (acs_config(0x4)[:256], False),
        (b"\xff" * 4096, False),
        (b"", None),
    ],
)
def test_access_control_of_a_bridge(config: bytes, answer: bool | None) -> None:
    assert acs_redirects(config) is answer


@pytest.mark.parametrize(
    "file", sorted((ROOT / "exporter/packaging/profiles").glob("*.yaml")), ids=lambda f: f.stem
)
def test_shipped_profiles_are_valid_and_name_their_source(file: Path) -> None:
    profile = parse_profile(file.read_bytes())
    assert profile.conditions["accelerator.count"].one_of == ("8",)
    assert "https://" in file.read_text()


def test_every_defect_is_in_the_catalogue_of_faults() -> None:
    page = (ROOT / "docs/fault-coverage.md").read_text()
    assert [name for name in DEFECTS if f" | `{name}` |" not in page] == []
