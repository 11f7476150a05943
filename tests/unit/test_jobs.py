"""Probe `jobs`: who has which accelerator, on simulated nodes and by real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings
from nodevitals.probes.common.cgroups import is_pod, parse_job_id
from nodevitals.probes.common.device_files import DeviceFile, OwnProcesses, parse_device_path
from nodevitals.probes.common.device_names import DeviceName, DeviceNames, NpuNames
from nodevitals.probes.jobs.devices import parse_information
from nodevitals.probes.jobs.probe import MAX_SERIES, JobsProbe, JobsSettings, ProcessReader, scan
from nodevitals.probes.jobs.slurm import (
    MAX_TEXT_CHARACTERS,
    parse_environment,
    parse_uid,
)
from testbed import processes
from testbed.node import wait_until
from testbed.processes import SCOPE, add, add_gpu, add_job
from testbed.trees import write

ONE, TWO = "GPU-0000-1", "GPU-0000-2"
INFO = "nodevitals_pod_accelerator_info"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a Slurm node with two GPUs; their minor numbers are not in the order of the slots."""
    processes.kernel(tmp_path / "proc")
    passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:5::/:/bin/sh\nbob:x:1001:5::/:/bin/sh\n"
    write(tmp_path / "root", {"etc/slurm/slurm.conf": "", "etc/passwd": passwd})
    add_gpu(tmp_path, "0000:18:00.0", 1, ONE)
    add_gpu(tmp_path, "0000:2a:00.0", 0, TWO)
    return tmp_path


def new_probe(root: Path, **settings: Any) -> JobsProbe:
    """Return the probe on this node."""
    host = Host(rootfs=str(root / "root"), procfs=str(root / "proc"), sysfs=str(root / "sys"))
    return JobsProbe(host, JobsSettings(**settings))


def run(probe: JobsProbe, *messages: object, interrupted: tuple[str, ...] = ()) -> Readings:
    """Run it once."""
    readings = Readings(messages, families=JobsProbe.families, interrupted=interrupted)
    probe.run(readings)
    return readings


def units(readings: Readings) -> list[tuple[str, ...]]:
    """Return namespace, pod, job_name, owner, queue and uuid of each series."""
    rows = [one.labels for one in readings.samples if one.family == INFO]
    assert all(row[2] == "" and row[6] == "nvidia" for row in rows)
    return [(*row[:2], *row[3:6], row[8]) for row in rows]


def value(readings: Readings, name: str) -> float:
    """Return a sample without labels."""
    found = [one.value for one in readings.samples if one.family == f"nodevitals_jobs_{name}"]
    return found[0]


def test_job_has_what_its_processes_have_open(root: Path) -> None:
    """By the number in the name of the device file, which is not the index of the GPU."""
    add_job(root / "proc", 100, "4711", "/dev/nvidiactl", "/dev/nvidia-uvm")
    add_job(root / "proc", 101, "4711", "/dev/nvidia1", "/dev/nvidia1")
    readings = run(new_probe(root))
    assert units(readings) == [("slurm", "4711", "train", "alice", "gpu", ONE)]
    assert value(readings, "processes") == 1
    names = DeviceNames({"0000:18:00": DeviceName("0", ONE), "0000:2a:00": DeviceName("1", TWO)})
    labels = run(new_probe(root), names).samples[1].labels
    assert labels[-3:] == ("nvidia", "0", ONE)


def test_names_stay_after_their_message(root: Path) -> None:
    """A message is delivered once; the state keeps it, and the file of a GPU is read once."""
    add_job(root / "proc", 100, "4711", "/dev/nvidia1")
    probe = new_probe(root)
    run(probe, DeviceNames({"0000:18:00": DeviceName("0", ONE)}))
    for folder in ("0000:18:00.0", "0000:2a:00.0"):
        (root / "proc/driver/nvidia/gpus" / folder / "information").unlink()
    assert units(run(probe)) == [("slurm", "4711", "train", "alice", "gpu", ONE)]
    # Bound again, its minor number may be another.
    driver = root / "sys/bus/pci/devices/0000:18:00.0/driver"
    (driver.parent / "new").symlink_to("../../drivers/nvidia")
    (driver.parent / "new").rename(driver)
    add_gpu_text = "GPU UUID: \t GPU-0000-1\nDevice Minor: \t 5\n"
    write(root / "proc/driver/nvidia/gpus/0000:18:00.0", {"information": add_gpu_text})
    assert units(run(probe)) == []


def test_process_without_job_belongs_to_its_user(root: Path) -> None:
    """Unless the site wants no users; a user that the node does not know is a number."""
    add(root / "proc", 100, "/dev/nvidia0", uid=1001)
    add(root / "proc", 101, "/dev/nvidia1", uid=4000)
    assert units(run(new_probe(root))) == [
        ("user", "4000", "", "4000", "", ONE),
        ("user", "bob", "", "bob", "", TWO),
    ]
    assert units(run(new_probe(root, users=False))) == []


def test_monitoring_pods_and_the_agent_are_left_out(root: Path) -> None:
    """As are Slurm's own daemons."""
    pod = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"
    add(root / "proc", 100, "/dev/nvidia0", name="nvidia-persiste", uid=0)
    add(root / "proc", 101, "/dev/nvidia0", cgroup=pod)
    add(root / "proc", 102, "/dev/nvidia0", name="slurmstepd", cgroup=f"{SCOPE}/job_5/step_0/slurm")
    add(root / "proc", 103, "/dev/nvidia0", name="nodevitals")
    stat = f"103 (nodevitals) S {os.getppid()} 1 1 0\n"
    write(root / "proc/103", {"stat": stat})
    assert units(run(new_probe(root))) == []


def test_name_that_is_no_text(root: Path) -> None:
    """Any process can give itself one (PR_SET_NAME)."""
    add(root / "proc", 100, "/dev/nvidia0")
    (root / "proc/100/stat").write_bytes(b"100 (\xff\xfe) S 42 100 100 0 -1 4194560 1 0\n")
    assert units(run(new_probe(root))) == [("user", "alice", "", "alice", "", TWO)]
    assert OwnProcesses(str(root / "proc"), ()).include("100") is False


def test_process_whose_job_is_not_known_is_no_user(root: Path) -> None:
    """Its device would be reported as another's; the run fails."""
    add_job(root / "proc", 100, "7", "/dev/nvidia0")
    (root / "proc/100/cgroup").unlink()
    (root / "proc/100/cgroup").mkdir()
    readings = Readings(families=JobsProbe.families)
    with pytest.raises(ProbeError, match="cannot be read: 1"):
        new_probe(root).run(readings)
    assert units(readings) == []


def test_allocated_device_counts_while_it_is_not_open(root: Path) -> None:
    """But not where another has it open; and the kernel goes before the environment."""
    add_job(root / "proc", 100, "7", JOB_GPUS="0,1")
    both = [("slurm", "7", "train", "alice", "gpu", uuid) for uuid in (ONE, TWO)]
    assert units(run(new_probe(root))) == both
    assert units(run(new_probe(root, allocations=False))) == []
    add(root / "proc", 101, "/dev/nvidia0", uid=1001)
    assert units(run(new_probe(root))) == [both[0], ("user", "bob", "", "bob", "", TWO)]


def test_allocated_number_without_a_device_is_no_open_device(root: Path) -> None:
    """The number is a user's text."""
    add_job(root / "proc", 100, "7", JOB_GPUS="900,1")
    readings = run(new_probe(root))
    assert len(units(readings)) == 1
    assert value(readings, "unidentified_devices") == 0


def test_allocated_numbers_are_not_used_with_mig(root: Path) -> None:
    """Slurm's numbers are then those of other files."""
    write(root / "proc/driver/nvidia/capabilities/gpu0/mig", {"gi1/access": ""})
    add_job(root / "proc", 100, "7", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", JOB_GPUS="1")
    assert units(run(new_probe(root))) == [("slurm", "7", "train", "alice", "gpu", TWO)]


def test_environment_of_another_job_is_not_used(root: Path) -> None:
    """A user who pretends to be another job, or another user, is in his own job."""
    faked = {"SLURM_JOB_ID": "99", "SLURM_JOB_NAME": "theirs", "SLURM_JOB_USER": "bob"}
    cgroup = f"{SCOPE}/job_7/step_batch/user/task_0"
    add(root / "proc", 100, "/dev/nvidia0", cgroup=cgroup, environment=faked)
    assert units(run(new_probe(root))) == [("slurm", "7", "", "alice", "", TWO)]
    add(root / "proc", 101, "/dev/nvidia1", environment=faked)
    assert ("user", "alice", "", "alice", "", ONE) in units(run(new_probe(root)))


def test_job_that_begins_with_processes_of_root_has_its_user(root: Path) -> None:
    """As Slurm's step `extern` does, with a `sleep`: root is not kept."""
    cgroup = f"{SCOPE}/job_7/step_extern"
    texts = {"SLURM_JOB_ID": "7"}
    add(root / "proc", 100, cgroup=cgroup, uid=0, name="sleep", environment=texts)
    probe = new_probe(root)
    run(probe)
    add_job(root / "proc", 101, "7", "/dev/nvidia0")
    assert [unit[3] for unit in units(run(probe))] == ["alice"]


def test_texts_of_a_job_do_not_change(root: Path) -> None:
    """A series that a user can rename at will would be many."""
    add_job(root / "proc", 100, "7", "/dev/nvidia0")
    probe = new_probe(root)
    first = units(run(probe))
    environment = "SLURM_JOB_ID=7\0SLURM_JOB_NAME=other\0"
    write(root / "proc/100", {"environ": environment})
    assert units(run(probe)) == first
    (root / "proc/100/cgroup").write_text("0::/\n")
    run(probe)
    assert probe.state.jobs == {}


def test_names_are_one_line_and_bounded(root: Path) -> None:
    """Names of jobs are users' texts."""
    add_job(root / "proc", 100, "7", "/dev/nvidia0", JOB_NAME='a\n"\x1b[31m' + "x" * 5000)
    name = units(run(new_probe(root)))[0][2]
    assert name.startswith('a?"?[31mxx')
    assert len(name) == MAX_TEXT_CHARACTERS


def test_series_are_bounded(root: Path) -> None:
    """Over the limit they are counted; jobs go before users."""
    for number in range(MAX_SERIES + 20):
        add(root / "proc", 1000 + number, "/dev/nvidia0", uid=5000 + number)
    add_job(root / "proc", 100, "7", "/dev/nvidia0")
    readings = run(new_probe(root))
    assert len(units(readings)) == MAX_SERIES
    assert units(readings)[0][0] == "slurm"
    assert value(readings, "omitted_series") == 21


def test_npus_by_physical_id(root: Path) -> None:
    """Without the message of the probe `ascend` they are counted as not identified."""
    add_job(root / "proc", 100, "7", "/dev/davinci3", "/dev/davinci_manager")
    probe = new_probe(root)
    assert value(run(probe), "unidentified_devices") == 1
    readings = run(probe, NpuNames({3: DeviceName("3", "AA-BB")}))
    rows = [one.labels for one in readings.samples if one.family == INFO]
    assert rows == [("slurm", "7", "", "train", "alice", "gpu", "ascend", "3", "AA-BB")]


def test_what_hangs_is_not_read_again(root: Path) -> None:
    """The run after one that was ended there leaves it out: the rest is reported."""
    add_job(root / "proc", 100, "7", "/dev/nvidia0")
    add_job(root / "proc", 101, "7", "/dev/nvidia1")
    places: list[tuple[str, str]] = []

    class Noted(Readings):
        def at(self, device: str, call: str) -> None:
            places.append((device, call))

    new_probe(root).run(Noted(families=JobsProbe.families))
    assert places == [
        ("all processes", "readlink"),
        ("process 100", "environ"),
        ("user 1000", "getpwuid"),
        ("0000:18:00.0", "information"),
        ("0000:2a:00.0", "information"),
    ]
    (root / "proc/100/environ").unlink()
    (root / "proc/driver/nvidia/gpus/0000:18:00.0/information").unlink()
    hung = ("process 100", "user 1000", "0000:18:00.0")
    readings = run(new_probe(root), interrupted=hung)
    assert units(readings) == [("slurm", "7", "train", "1000", "gpu", TWO)]
    assert value(readings, "unidentified_devices") == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [("var/lib/kubelet/pod-resources/kubelet.sock", "kubelet"), ("nothing", "no Slurm")],
)
def test_absent_with_a_kubelet_or_without_slurm(root: Path, path: str, text: str) -> None:
    """Unless it is required."""
    if path == "nothing":
        (root / "root/etc/slurm/slurm.conf").unlink()
    write(root / "root", {path: ""})
    with pytest.raises(Absent, match=text):
        run(new_probe(root))
    run(new_probe(root, enabled=True))


def test_scope_of_slurm_is_enough(root: Path) -> None:
    """Its files are elsewhere on some nodes."""
    (root / "root/etc/slurm/slurm.conf").unlink()
    (root / "sys/fs/cgroup/system.slice/n1_slurmstepd.scope").mkdir(parents=True)
    run(new_probe(root))


def test_other_processes_are_not_seen(root: Path) -> None:
    """In a PID namespace of its own, the probe fails and does not report that nothing is used."""
    (root / "proc/2/stat").unlink()
    with pytest.raises(ProbeError, match="hostPID"):
        run(new_probe(root))


def test_hidden_processes_are_counted() -> None:
    """As another user without capabilities, whose run fails for that reason."""
    code = (
        "import os\n"
        "from nodevitals.probes.common.device_files import OwnProcesses\n"
        "from nodevitals.probes.jobs.probe import scan\n"
        "os.setuid(65534)\n"
        "print(scan('/proc', OwnProcesses('/proc', ())).hidden > 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("cgroup", "job_id"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0", "12"),
        ("0::/system.slice/n1_slurmstepd.scope/job_12/step_0/slurm", "12"),
        ("0::/../../system.slice/slurmstepd.scope/job_12", "12"),
        ("0::/hpc.slice/hpc-slurm.slice/slurmstepd.scope/job_12/step_extern", "12"),
        ("9:devices:/slurm/uid_1000/job_12/step_0/task_0\n0::/", "12"),
        ("9:freezer:/slurm_n1/uid_1000/job_12/step_0", "12"),
        ("0::/system.slice/slurmstepd.scope/system", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_12", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/x.slice/slurmstepd.scope/job_12", ""),
        ("0::/system.slice/slurmstepd.scope/job_12x", ""),
        ("0::/slurm/uid_1000/job_12", ""),
        ("0::/system.slice/docker-1.scope/job_12", ""),
        ("", ""),
    ],
)
def test_job_of_a_cgroup(cgroup: str, job_id: str) -> None:
    """Only where Slurm's daemon creates them: users can create cgroups below their own service."""
    assert parse_job_id(cgroup) == job_id


@pytest.mark.parametrize("end", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_name_of_a_process_or_cgroup_does_not_begin_a_line(end: str) -> None:
    """The kernel ends lines with a newline only, which it permits in neither."""
    own = f"0::/user.slice/user-1000.slice/user@1000.service/x{end}0::"
    assert parse_job_id(f"{own}/system.slice/slurmstepd.scope/job_4711") == ""
    assert not is_pod(f"{own}/kubepods/x")
    status = f"Name:\tx{end}Uid:\t1001\nUmask:\t0022\nUid:\t1000\t1000\t1000\t1000\n"
    assert parse_uid(status) == 1000


def test_cgroups_of_pods() -> None:
    """Of both drivers, of kind, and of v1."""
    for path in (
        "0::/kubepods.slice/kubepods-pod1.slice/x.scope",
        "0::/kubelet.slice/kubelet-kubepods.slice/x.scope",
        "5:devices:/kubepods/besteffort/pod1/2",
        "0::/../kubepods/pod1",
    ):
        assert is_pod(path)
    assert not is_pod("0::/user.slice/user-1000.slice/user@1000.service/kubepods/x")


@given(st.text(max_size=200))
def test_any_cgroup_and_path(text: str) -> None:
    """Never an exception, never more than digits."""
    job_id = parse_job_id(text)
    assert job_id == "" or (job_id.isdecimal() and len(job_id) <= 10)
    assert is_pod(text) in (True, False)
    assert parse_device_path(text) is None
    assert parse_information(text) is None


@given(st.dictionaries(st.sampled_from(["JOB_GPUS", "STEP_GPUS", "JOB_NAME"]), st.text()))
def test_any_environment(found: dict[str, str]) -> None:
    """Texts are one bounded line, devices few numbers."""
    entries = {"SLURM_JOB_ID": "7"} | {f"SLURM_{name}": text for name, text in found.items()}
    data = "\0".join(f"{key}={value}" for key, value in entries.items())
    texts = parse_environment(data.encode("utf-8", "surrogatepass"), "7")
    assert texts is not None
    assert len(texts.name) <= MAX_TEXT_CHARACTERS
    assert (texts.name or "x").isprintable()
    assert len(texts.devices) <= 64


def test_information_without_uuid() -> None:
    """Before the GPU is first opened; other vendors' texts are no uuid."""
    text = "GPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 3\n"
    gpu = parse_information(text)
    assert gpu is not None
    assert (gpu.minor, gpu.uuid) == (3, "")


def test_real_processes_in_a_container(tmp_path: Path) -> None:
    """With the device file of its own /dev; and one that ends is gone."""
    script = (
        "mount -t tmpfs none /dev && touch /dev/nvidia6 && exec 5</dev/nvidia6 && exec sleep 60"
    )
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "5", "SLURM_JOB_NAME": "real"}
    own = OwnProcesses("/proc", ())
    with subprocess.Popen(["unshare", "-m", "sh", "-c", script], env=environment) as process:
        try:
            # As its parent is this process, and that of the agent would be another.
            wait_until(lambda: any(one.pid == process.pid for one in scan("/proc", own).processes))
            found = next(one for one in scan("/proc", own).processes if one.pid == process.pid)
            assert found.files == {DeviceFile("nvidia", 6)}
            reader = ProcessReader(Host(), Readings())
            texts = reader.job_texts("5", [2**22, process.pid])
            assert texts is not None
            assert texts.name == "real"
            assert reader.uid(process.pid) == os.getuid()
            assert reader.user_name(0) == "root"
            assert reader.user_name(54321) is None
        finally:
            process.kill()
    assert not any(one.pid == process.pid for one in scan("/proc", own).processes)
