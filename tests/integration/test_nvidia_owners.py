"""Probe `nvidia`: device memory of processes that belong to no job, on a simulated machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.gpus import GIB, Machine
from testbed.node import ROOT, Node, run, wait_until
from testbed.workloads import POD, SESSION, SLURM_STEP, Workloads

MEMORY = "nodevitals_accelerator_memory_without_job_bytes"
PROCESSES = "nodevitals_accelerator_processes_without_job"
CALL = "nvmlDeviceGetComputeRunningProcesses_v3"


class Site:
    """A machine with GPUs and what runs on it."""

    def __init__(self, folder: Path, namespace: str = "") -> None:
        self.machine = Machine(folder, "H100", 2).start()
        self.work = Workloads(folder, namespace) if namespace else Workloads(folder)

    def list(self, gpu: int, *processes: tuple[int, int | None]) -> None:
        """Let NVML list these processes, with the memory of each."""
        words = (f"{pid}:{'-' if size is None else size}" for pid, size in processes)
        self.machine.state[f"{gpu}.processes"] = " ".join(words) or "0"
        self.machine.write()

    def values(self, **settings: object) -> dict[str, tuple[float | None, float | None]]:
        """Memory and processes without a job, by GPU."""
        machine = self.machine
        config = machine.folder / "once.yaml"
        config.write_text(json.dumps({"probes": {"nvidia": {**machine.settings, **settings}}}))
        flags = (f"--config.file={config}", *machine.flags)
        done = run("probe", "nvidia", "--raw", *flags, **machine.environment)
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[tuple[str, str], float] = {}
        for line in done.stdout.splitlines():
            name, _, rest = line.partition("{")
            if name in (MEMORY, PROCESSES):
                device = rest.partition('device="')[2].partition('"')[0]
                found[name, device] = float(line.rsplit(" ", 1)[1])
        return {one: (found.get((MEMORY, one)), found.get((PROCESSES, one))) for one in ("0", "1")}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Slurm, and its job 4711 with process 100 on both GPUs."""
    made = Site(tmp_path)
    made.work.slurm()
    made.work.process(100, SLURM_STEP)
    made.list(0, (100, 10 * GIB))
    made.list(1, (100, 20 * GIB))
    return made


def test_memory_of_a_process_that_a_job_left_behind(site: Site) -> None:
    site.work.process(200)
    site.list(0, (100, 10 * GIB), (200, 5 * GIB), (200, 1 * GIB))
    assert site.values() == {"0": (6 * GIB, 1), "1": (0, 0)}


def test_pods_are_jobs(tmp_path: Path) -> None:
    made = Site(tmp_path)
    made.work.kubernetes()
    made.work.process(100, POD)
    made.work.process(200, "/system.slice/docker-1f.scope")
    # As an agent in a pod sees its sisters, with the kubelet's driver cgroupfs.
    made.work.process(300, "/../../pod11111111-2222-4333-8444-555555555555/1f")
    made.list(0, (100, GIB), (200, 2 * GIB), (300, 4 * GIB))
    made.list(1)
    assert made.values() == {"0": (2 * GIB, 1), "1": (0, 0)}


@pytest.mark.parametrize(
    "name",
    ["nv-hostengine", "dcgm-exporter", "nvidia-persiste", "nvidia-cuda-mps", "nvidia-smi", "Xorg"],
)
def test_memory_of_monitoring_and_of_mps_is_not_held(site: Site, name: str) -> None:
    site.work.process(200, "/system.slice/some.service", name)
    site.list(0, (200, GIB))
    assert site.values()["0"] == (0, 0)


def test_site_may_ignore_its_own_programs(site: Site) -> None:
    site.work.process(200, SESSION, "site-burner")
    site.list(0, (200, GIB))
    assert site.values()["0"] == (GIB, 1)
    assert site.values(ignore=["site-burner"])["0"] == (0, 0)


def test_size_that_nvml_does_not_tell_leaves_the_number_of_processes(site: Site) -> None:
    site.work.process(200)
    site.work.process(201)
    site.list(0, (200, GIB), (201, None))
    site.list(1, (100, None))
    assert site.values() == {"0": (None, 2), "1": (0, 0)}


@pytest.mark.parametrize("code", [4, 7, 3, 999])
def test_list_that_nvml_refuses_is_unknown(site: Site, code: int) -> None:
    """No permission, a list that grows faster than it is read, not supported, unknown."""
    site.machine.state[f"0.fault.{CALL}"] = f"!{code}"
    site.machine.write()
    assert site.values() == {"0": (None, None), "1": (0, 0)}


def test_process_that_has_ended_or_is_hidden_is_unknown_on_its_gpu_alone(site: Site) -> None:
    site.list(0, (100, GIB), (99999, GIB))
    assert site.values() == {"0": (None, None), "1": (0, 0)}


def test_other_pid_namespace_is_unknown_not_empty(tmp_path: Path) -> None:
    """Without hostPID, NVML leaves processes out, and the GPU looks unused."""
    made = Site(tmp_path, "pid:[4026532201]")
    made.work.kubernetes()
    made.list(0)
    assert made.values() == {"0": (None, None), "1": (None, None)}


def test_node_without_a_scheduler_is_unknown(tmp_path: Path) -> None:
    """Also with Slurm whose jobs have no cgroups: all of its processes would be without a job."""
    made = Site(tmp_path)
    made.work.process(200)
    made.list(0, (200, GIB))
    (tmp_path / "sys/fs/cgroup/system.slice/slurmd.service").mkdir(parents=True)
    assert made.values() == {"0": (None, None), "1": (None, None)}


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("freezer/slurm", "4:freezer:/slurm/uid_1000/job_4711/step_0"),
        ("memory/slurm_n1", "4:memory:/slurm_n1/uid_1000/job_4711/step_0"),
    ],
    ids=["freezer", "several slurmd"],
)
def test_first_version_of_cgroups(tmp_path: Path, place: str, line: str) -> None:
    made = Site(tmp_path)
    made.work.slurm(place)
    made.work.process(100)
    (tmp_path / "proc/100/cgroup").write_text(f"{line}\n0::/\n")
    made.work.process(200)
    made.list(0, (100, GIB))
    made.list(1, (200, GIB))
    assert made.values() == {"0": (0, 0), "1": (GIB, 1)}


def test_agent_follows_a_process_to_its_end(site: Site) -> None:
    site.work.process(200)
    site.list(1, (200, 3 * GIB))
    labels = {"vendor": "nvidia", "device": "1", "uuid": site.machine.uuid(1)}
    nvidia = {"interval": "500ms", "timeout": "500ms", **site.machine.settings}
    environment = {"PYTHONPATH": str(ROOT / "exporter"), **site.machine.environment}
    folder, flags = site.machine.folder, site.machine.flags
    with Node(folder, {"probes": {"nvidia": nvidia}}, *flags, **environment) as running:
        wait_until(lambda: running.value(MEMORY, **labels) == 3 * GIB)
        # Half-ended: gone from procfs, and still listed.
        site.work.end(200)
        wait_until(lambda: running.value(MEMORY, **labels) is None)
        assert running.value("nodevitals_accelerator_up", **labels) == 1
        site.list(1)
        wait_until(lambda: running.value(MEMORY, **labels) == 0)


def test_wrong_names_are_errors_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "nodevitals.yaml"
    file.write_text("probes: {nvidia: {ignore: site-burner}}\n")
    assert "probes.nvidia.ignore" in run("check-config", str(file)).stderr
