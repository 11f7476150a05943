"""The image's root file system, built as the Containerfile says, and the agent in it under the
restrictions of the DaemonSet: tests/data/image-restrictions.yaml.
"""

from __future__ import annotations

import json
import re
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodevitals.probes.fabric.tools.report import BANDWIDTH, LATENCY
from testbed import image
from testbed.confinement import CAPABILITIES
from testbed.imagemachine import Machine
from testbed.node import free_port, wait_until
from testbed.trees import write

LIMIT = 120_000_000
SUCCESS = "nodevitals_probe_success"
MACHINES = {"amd64": "Advanced Micro Devices X86-64", "arm64": "AArch64"}
UNWANTED = re.compile(r"(gcc|g\+\+|cc|ld|as|make|pip.*|apt.*|dpkg.*|su|sudo|mount|curl|wget)")
RIGHTS = sum(
    1 << CAPABILITIES.index(name)
    for name in image.RESTRICTIONS["securityContext"]["hardware"]["capabilities"]["add"]
)
TOOLS = [f"ib_{one}" for one in (*BANDWIDTH, *LATENCY)]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The root file system by architecture."""
    folder = tmp_path_factory.mktemp("image")
    wheel = image.build_wheel(folder / "wheel")
    return {name: image.build_root(name, folder / name, wheel) for name in MACHINES}


@pytest.fixture(scope="module")
def root(roots: dict[str, Path]) -> Path:
    return roots[image.NATIVE]


@pytest.mark.parametrize("architecture", MACHINES)
def test_content_is_small(
    roots: dict[str, Path], architecture: str, tmp_path: Path, record_property: Any
) -> None:
    root = roots[architecture]
    content = sum(file.lstat().st_size for file in image.files(root) if not file.is_symlink())
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(root, "")
    packed = (tmp_path / "image.tar").stat().st_size
    record_property("bytes", (content, packed))
    assert max(content, packed) < LIMIT


@pytest.mark.parametrize("architecture", MACHINES)
def test_every_library_is_there(roots: dict[str, Path], architecture: str) -> None:
    """Of every program, library and Python module, for the right machine."""
    root = roots[architecture]
    programs = [file for file in image.files(root) if image.is_elf(file)]
    names = {path.name for path in image.files(root)}
    command = ["readelf", "--file-header", "--dynamic", "--wide", *map(str, programs)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    machines = set(re.findall(r"Machine: +(.+)", text))
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
    assert machines == {MACHINES[architecture]}
    assert {"libc.so.6", "libibverbs.so.1", "libiperf.so.0", "libssl.so.3"} <= needed
    assert needed <= names


@pytest.mark.parametrize("architecture", MACHINES)
def test_nothing_to_gain_rights_with(roots: dict[str, Path], architecture: str) -> None:
    root = roots[architecture]
    for file in image.files(root):
        status, path = file.lstat(), str(file.relative_to(root))
        own = path == "var/lib/nodevitals"
        assert (status.st_uid, status.st_gid) == ((65532, 65532) if own else (0, 0)), path
        if not file.is_symlink():
            shared = status.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH | stat.S_IWGRP)
            assert not shared or path == "tmp", path
    programs = {file.name for file in (root / "usr/bin").iterdir()}
    assert not (root / "usr/sbin").exists() or not any((root / "usr/sbin").iterdir())
    assert {"nodevitals", "python3.11", "sh", "iperf3", *TOOLS} <= programs
    assert not {name for name in programs if UNWANTED.fullmatch(name)}


@pytest.mark.parametrize("architecture", MACHINES)
def test_scanners_see_what_is_inside(roots: dict[str, Path], architecture: str) -> None:
    root = roots[architecture]
    lines = (image.SCRIPTS / "packages.txt").read_text().splitlines()
    wanted = {line for line in lines if not line.startswith("#")}
    described = {file.name: file.read_text() for file in (root / "var/lib/dpkg/status.d").iterdir()}
    assert set(described) == wanted
    for name, text in described.items():
        assert re.search(rf"^Package: {re.escape(name)}$", text, re.MULTILINE)
        assert re.search(rf"^Architecture: ({architecture}|all)$", text, re.MULTILINE)
        documents = root / "usr/share/doc" / name
        assert (documents / "copyright").exists() or documents.is_symlink(), name
    assert 'VERSION_ID="12"' in (root / "etc/os-release").read_text()


def test_python_lock_has_what_the_package_asks_for(root: Path) -> None:
    """As installed: with the extra for pods, whose import would fail otherwise."""
    script = (
        "import importlib.metadata as m, re\n"
        "for line in m.requires('nodevitals'):\n"
        "    if 'extra ==' not in line or \"'pods'\" in line:\n"
        "        print(re.match(r'[A-Za-z0-9_-]+', line)[0])\n"
        "import h2, bcrypt, sqlite3, ssl\n"
    )
    done = image.container(root, {}).run("python3.11", "-c", script)
    assert done.returncode == 0, done.stderr
    locked = (image.SCRIPTS / "python.lock").read_text().lower().replace("_", "-")
    names = done.stdout.lower().split()
    assert {"h2", "msgspec", "bcrypt"} <= set(names)
    assert [name for name in names if not re.search(rf"^{name}==", locked, re.MULTILINE)] == []


def test_lock_has_both_architectures() -> None:
    text = (image.SCRIPTS / "debian.lock").read_text()
    found = {
        name: sorted(re.findall(rf"/([^/_]+)_[^/]+_{name}\.deb$", text, re.MULTILINE))
        for name in MACHINES
    }
    assert found["amd64"] == found["arm64"]
    assert len(found["amd64"]) == len(set(found["amd64"])) > 20


def test_no_module_is_compiled_at_start(root: Path) -> None:
    """A read-only root cannot keep compiled modules: each worker would compile them again."""
    command = (
        "python3.11",
        "-v",
        "-c",
        "import nodevitals.agent, h2, sqlite3, ssl, yaml",
    )
    loaded = image.container(root, {}).run(*command).stderr
    sources = re.findall(r"^# code object from '?(/[^'\n]+)", loaded, re.MULTILINE)
    cached = re.findall(r"^# code object from '(/[^']+\.pyc)'", loaded, re.MULTILINE)
    matched = re.findall(r"^# (/\S+\.pyc) matches", loaded, re.MULTILINE)
    assert len(cached) + len(matched) > 100
    assert [path for path in sources if not path.endswith(".pyc")] == []


def test_perftest_runs_as_far_as_it_comes_without_a_device(root: Path) -> None:
    made = image.container(root, {}, ["user"])
    for tool in TOOLS:
        assert made.run(tool, "--version").stdout.startswith("Version: "), tool
        missing = made.run(tool, "-d", "mlx5_0", "peer").stderr
        assert "Did not detect devices" in missing, tool


@pytest.mark.parametrize("without", [(), ("tmp",)])
def test_iperf3_between_two_containers(
    root: Path, tmp_path: Path, without: tuple[str, ...]
) -> None:
    """A file in /tmp is what each stream begins with."""
    tmp_path.chmod(0o777)
    made = image.container(root, {"tmp": tmp_path}, ["user", *without])
    port = f"--port={free_port()}"
    server = subprocess.Popen(
        [*made.command, "iperf3", "--server", port], stdout=subprocess.DEVNULL
    )
    try:
        client = ("iperf3", "--client=127.0.0.1", port, "--bytes=1M", "--json")
        report = wait_until(lambda: answered(made.run(*client)), what="iperf3")
    finally:
        server.kill()
        server.wait()
    if without:
        assert "unable to create a new stream" in report["error"]
    else:
        assert report["end"]["sum_sent"]["bytes"] >= 1 << 20


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any] | None:
    """What iperf3 reports once the server listens."""
    report: dict[str, Any] = json.loads(done.stdout)
    return None if "Connection refused" in report.get("error", "") else report


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as made:
        yield made


def outcomes(pod: image.Pod, success: float) -> set[str]:
    """The probes with a target that has this success."""
    return {
        dict(labels)["probe"] for labels, value in pod.family(SUCCESS).items() if value == success
    }


def test_agent_serves_all_probes(root: Path, machine: Machine) -> None:
    machine.log.write("NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")
    with machine.pod(root) as pod:
        wanted = {*machine.config()["probes"], "history"}
        # All of them at once: on a busy machine one run may take too long.
        wait_until(
            lambda: outcomes(pod, 1.0) >= wanted and not outcomes(pod, 0.0),
            60,
            "every probe succeeds",
        )
        ups = [value for (name, _), value in pod.samples().items() if name.endswith("ator_up")]
        assert ups == [1.0] * 16
        assert pod.fork_server().nice() == -10
        for pid in {pod.agent().pid, *pod.tree()}:
            with suppress(FileNotFoundError):  # a worker that has ended
                assert confinement_of(pid) == ("1", "2", RIGHTS), pid
    assert pod.process.returncode == 0


def test_another_user_serves_what_needs_no_right(root: Path, machine: Machine) -> None:
    """As a pod with its own processes, where the agent is process 1 and reaps its workers."""
    with machine.pod(root, "user", "hostPID") as pod:
        wanted = {"nvidia", "rdma", "network", "peers", "node", "history"}
        wait_until(lambda: outcomes(pod, 1.0) >= wanted, 60, "probes without rights succeed")
        lost = {"mounts", "kernel_log", "ascend"}
        wait_until(lambda: outcomes(pod, 0.0) == lost, 60, "the others fail")
        assert set(pod.agent().uids()) == {65532}
        assert pod.agent().nice() == pod.fork_server().nice() == 0
        wait_until(partial(no_zombie, pod), what="workers are reaped")
    assert pod.process.returncode == 0


def confinement_of(pid: int) -> tuple[str, str, int]:
    """no_new_privs, the seccomp mode, and the capabilities that it can have."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    return status["NoNewPrivs"], status["Seccomp"], int(status["CapBnd"], 16)


def no_zombie(pod: image.Pod) -> bool:
    return "zombie" not in pod.tree().values()


@pytest.mark.parametrize(
    ("entry", "lost"),
    [("nvidia", {"kernel_log", "ascend"}), ("cpu", {"kernel_log", "ascend", "mounts"})],
)
def test_daemonsets_of_the_chart(root: Path, machine: Machine, entry: str, lost: set[str]) -> None:
    """As its README says: of these, no entry has the kernel log or the lock of npu-smi."""
    with machine.chart_pod(root, entry) as pod:
        wanted = {*machine.config()["probes"], "history"} - lost
        wait_until(lambda: outcomes(pod, 1.0) >= wanted, 60, "probes succeed")
        wait_until(lambda: outcomes(pod, 0.0) == lost, 60, "the others fail")
    assert pod.process.returncode == 0


def test_priority_needs_a_capability(root: Path, machine: Machine) -> None:
    with machine.pod(root, "SYS_NICE") as pod:
        wait_until(lambda: "node" in outcomes(pod, 1.0), 60)
        assert pod.fork_server().nice() == 0


@pytest.mark.parametrize(
    "row", image.RESTRICTIONS["needs"], ids=lambda row: f"{row['probe']}-{row['right']}"
)
def test_probe_without_a_right(root: Path, machine: Machine, row: dict[str, str]) -> None:
    """With all rights it succeeds, as above."""
    denied = machine.pod(root, row["right"]).probe(row["probe"])
    assert denied.returncode == 1
    assert row["lost"] in denied.stderr


# What the gate of fabric tests says while a worker of the agent has a GPU open: a child of the same
# parent, as the process that asks.
GATE = """
import subprocess, sys
question, procfs = sys.argv[1:]
ask = (
    "from nodevitals.linux.host import Host\\n"
    "from nodevitals.probes.fabric.admission import Gate, GateSettings, TestedLink\\n"
    f"gate = Gate(GateSettings(), Host(procfs={procfs!r}))\\n"
    f"print(gate.{question})"
)
with open("/dev/nvidia0") as gpu:
    worker = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, stdout=gpu)
asked = subprocess.run([sys.executable, "-c", ask])
worker.communicate(b"end")
sys.exit(asked.returncode)
"""


@pytest.mark.parametrize(
    "row", image.RESTRICTIONS["gate"], ids=lambda row: f"{row['reason']}-{row['right']}"
)
def test_fabric_tests_without_a_right(root: Path, tmp_path: Path, row: dict[str, str]) -> None:
    tmp_path.chmod(0o755)
    gpu = tmp_path / "nvidia0"
    gpu.touch()
    question, procfs = "check()", "/host/proc"
    if row["reason"] == "processes_unseen":
        # kthreadd, which is not in the test's own PID namespace, and processes of other users.
        question, procfs = "check_before_start(TestedLink())", f"/host{tmp_path}/proc"
        write(tmp_path / "proc", {"2/stat": "2 (kthreadd) S 0 0 0 0 -1\n"})
        (tmp_path / "proc/1").mkdir()
        (tmp_path / "proc/1/fd").symlink_to("/proc/1/fd")
        (tmp_path / "proc/4242/fd").mkdir(parents=True)
        (tmp_path / "proc/4242/fd").chmod(0)
    sources = {"root": Path("/"), "/dev/nvidia0": gpu}
    for without, said in (([], "None"), ([row["right"]], row["reason"])):
        command = ("python3.11", "-c", GATE, question, procfs)
        done = image.container(root, sources, without).run(*command)
        assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr
