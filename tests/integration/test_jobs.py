"""An agent on a Slurm node: jobs get the index and uuid that the probe `nvidia` reads."""

from __future__ import annotations

import os
from pathlib import Path

from testbed import processes
from testbed.gpus import Machine
from testbed.node import ROOT, Node, wait_until
from testbed.processes import add_gpu_file, add_job
from testbed.trees import write

INFO = "nodevitals_pod_accelerator_info"


def test_jobs_have_the_labels_of_their_gpus(tmp_path: Path) -> None:
    """Also when the file of a GPU hangs: the run after that reports the others, and what is known
    stays exposed.
    """
    machine = Machine(tmp_path, "H100", 3).start()
    procfs = tmp_path / "proc"
    processes.kernel(procfs)
    write(tmp_path / "root", {"etc/slurm/slurm.conf": "", "etc/passwd": "alice:x:1000:5::/:\n"})
    minors = dict(zip(machine.slots, (2, 0, 1), strict=False))
    for slot, minor in minors.items():
        add_gpu_file(procfs, f"{slot}.0", minor)
    add_job(procfs, 100, "4711", "/dev/nvidia2", "/dev/nvidia0")
    settings = {"interval": "300ms", "timeout": "300ms"}
    hanging = procfs / "driver/nvidia/gpus" / f"{machine.slots[1]}.0" / "information"
    hanging.unlink()
    os.mkfifo(hanging)
    probes = {"nvidia": {**settings, **machine.settings}, "jobs": settings}
    flags = (*machine.flags, f"--path.rootfs={tmp_path / 'root'}")
    environment = {"PYTHONPATH": str(ROOT / "exporter"), **machine.environment}
    with Node(tmp_path, {"probes": probes}, *flags, **environment) as node:
        wait_until(lambda: node.value(INFO, pod="4711", device="0", owner="alice") == 1)
        assert node.value(INFO, device="1") is None
        wait_until(lambda: node.value("nodevitals_jobs_unidentified_devices") == 1)
        hanging.unlink()
        add_gpu_file(procfs, f"{machine.slots[1]}.0", 0)
        labels = {"namespace": "slurm", "pod": "4711", "job_name": "train", "queue": "gpu"}
        wait_until(lambda: node.value(INFO, device="1", vendor="nvidia", **labels) == 1)
        uuids = {
            dict(found)["device"]: dict(found)["uuid"]
            for name, found in node.samples()
            if name == "nodevitals_accelerator_up"
        }
        assert node.value(INFO, device="1", uuid=uuids["1"]) == 1
