"""Exposed series, declared families and shipped rules agree."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from nodevitals import catalogue, probes
from nodevitals.probes.common.accelerators import ACTIONS
from testbed import conditions, gpus, processes
from testbed.apiserver import ApiServer
from testbed.bmc import Bmc
from testbed.disks import Machine as DiskMachine
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.kubelet import Kubelet, gpu_pods, gpu_uuid
from testbed.mlxlink import Mlxlink
from testbed.modules import qsfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine as NicMachine
from testbed.node import ROOT, Node, wait_until
from testbed.npus import Machine as NpuMachine
from testbed.servers import BINARIES
from testbed.switches import topology
from testbed.systemd import BUS, Systemd, Unit
from testbed.trees import write
from testbed.workloads import Workloads

RULES = sorted((ROOT / "rules").glob("*.yaml"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return an agent with every shipped probe, on a machine with all hardware and with faults."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "disk").mkdir()
    disks = every_disk(folder)
    bmc = Bmc(folder)
    bmc.event(0x0C, 0x6F, 0x01)
    bmc.answer("log", "@denied")
    (folder / "maintenance").write_text("kernel update")
    (folder / "profile.yaml").write_text("name: B200\nexpect: {accelerator.count: 8}\n")
    subprocess.run(["mount", "-t", "tmpfs", "disk", folder / "disk"], check=True)
    machine = Machine(folder, "B200", 3).start()
    machine.set(0, fabric="3 0 0x129 3")
    machine.set(1, fabric="3 0 0x329 3", fabric_place="7 1")
    machine.set(1, retired__0=0, retired__1=0, retired_pending=0)
    machine.set_field(1, gpus.C2C_LINKS, 1)
    machine.set_field(1, gpus.C2C_ERRORS[0], 0)
    machine.partition(0, "3g.90gb")
    machine.remove("1.remapped")
    machine.lose(2)
    nics = NicMachine(folder / "sys", mlx5_infiniband=1, mlx5_roce=2, irdma=1)
    nics.bond("bond0", *nics.interfaces.values(), speed=400_000)
    guid, switch = 0x02FE5A0000180001, 0x02FE5A00FF000002
    fabric = topology({guid: (switch, 3, "MF0;leaf-2:MQM9700/U1")})
    write(folder, {"fabric.txt": fabric})
    npus = NpuMachine(folder, "910B").start()
    npus.change(1, health="Alarm", codes=["80E01801"], new_ecc=True)
    npus.change(0, vnpus={100: "vir02"})
    write_scripts(folder)
    mountinfo = Path("/proc/self/mountinfo").read_text()
    write(folder / "proc", {"self/mountinfo": mountinfo})
    conditions.healthy(folder)
    processes.add_gpu_file(folder / "proc", f"{machine.slots[0]}.0", 0)
    processes.add_job(folder / "proc", 100, "4711", "/dev/nvidia0")
    Workloads(folder).slurm()
    machine.set(1, processes="100:1073741824")
    for process in (folder / "proc").glob("[0-9]*"):
        if not (process / "cgroup").exists():
            write(process, {"cgroup": "0::/"})
    pods = gpu_pods(gpus=1, pods=2)
    pods[1].devices = {"nvidia.com/hostdev": ["0000:c1:00.2"]}
    cluster = ExitStack()
    mlxlink = Mlxlink(folder)
    mlxlink.set("0000:18:00.0")
    kernel = cluster.enter_context(EthtoolKernel(folder))
    drivers = Driver(qsfp(), {2: 5, 3: 0, 4: 9}, {0: 100})
    kernel.interfaces = dict.fromkeys(nics.interfaces.values(), drivers)
    kernel.interfaces[[*nics.interfaces.values()][-1]] = Driver(error=errno.EIO)
    kubelet = cluster.enter_context(Kubelet(folder, pods))
    kubelet.allocatable = {"nvidia.com/gpu": [gpu_uuid(0)]}
    api = cluster.enter_context(ApiServer(folder, pods))
    systemd = cluster.enter_context(Systemd(folder))
    systemd.units["kubelet.service"] = Unit()
    kill = f"oom-kill:,task_memcg=/kubepods/pod{pods[0].uid}/{pods[0].container_id},task=a"
    with cluster, KernelLog(folder) as log, socket.create_server(("127.0.0.1", 0)) as peer:
        port = peer.getsockname()[1]
        log.write(f"NVRM: Xid (PCI:{machine.slots[1]}): 79, GPU has fallen off the bus.")
        log.write("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 12028, Fatal, Link 1 some error")
        log.write("mlx5_core 0000:41:00.0: device's health compromised - reached miss count")
        log.write(kill)
        target = {"path": str(folder / "disk"), "access": "write", "fstype": "tmpfs"}
        config = {
            "labels": {"rack": "r1"},
            "defaults": {"interval": "500ms"},
            "probes": {
                "mounts": {"targets": [target]},
                "nvidia": {
                    "expected": 3,
                    "details": True,
                    "activity": True,
                    **machine.settings,
                },
                "kernel_log": {"path": str(log.path)},
                "kubernetes": {
                    "interval": "500ms",
                    "socket": str(kubelet.path),
                    "node": "node-7",
                    "labels": {"tenant": ["user.id"]},
                    **api.settings,
                },
                "rdma": {"counters": ["rx_read_requests"]},
                "network": {},
                "switches": {
                    "interval": "500ms",
                    "ports": {"mlx5_1/1": "leaf-1"},
                    "ibnetdiscover": str(folder / "fabric.txt"),
                },
                "services": {"interval": "500ms", "bus": str(folder / BUS), "private": "/none"},
                "disks": {"interval": "500ms", **disks.settings},
                "bmc": {"interval": "4s", "timeout": "4s", **bmc.settings},
                "transceivers": {
                    "interval": "8s",
                    "timeout": "8s",
                    "mlxlink": str(mlxlink.program),
                },
                "maintenance": {"file": str(folder / "maintenance")},
                "profile": {"interval": "1s", "file": str(folder / "profile.yaml")},
                "jobs": {"enabled": True, "interval": "500ms"},
                "scripts": {
                    "folder": str(folder / "scripts"),
                    "interval": "4s",
                    "textfiles": [{"path": str(folder / "nccl"), "interval": "4s"}],
                },
                "peers": {
                    "interval": "500ms",
                    "targets": [
                        {"host": "localhost", "port": 1},
                        {"host": "127.0.0.1", "port": port},
                    ],
                },
                "ascend": {"interval": "8s", "timeout": "8s", "expected": 8, **npus.settings},
            },
        }
        flags = machine.flags
        environment = preloaded(machine.environment, disks.environment, kernel.environment)
        with Node(
            folder, config, *flags, PYTHONPATH=str(ROOT / "exporter"), **environment
        ) as running:
            last = "nodevitals_nvidia_xid_last_timestamp_seconds"
            wait_until(lambda: running.value("nodevitals_nvidia_sxid_errors_total"))
            wait_until(lambda: running.value(last))
            wait_until(lambda: running.value("nodevitals_pod_oom_kills_total"))
            pages = "nodevitals_ascend_next_isolated_pages"
            wait_until(lambda: any(name == pages for name, _ in running.samples()))
            # Some values are a difference between two runs.
            wait_until(lambda: min(runs(running, besides=("ascend", "transceivers"))) >= 2)
            disks.vanish("nvme1")
            yield running
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


def every_disk(folder: Path) -> DiskMachine:
    """Return disks of each kind; a multipath device; an array that is checked; one disk is gone."""
    disks = DiskMachine(folder)
    disks.nvme(0)
    disks.nvme(1)
    disks.nvme(2)
    disks.answer(2, "errno 5")
    disks.sata()
    disks.sas()
    disks.array(sync_action="check", sync_completed="1 / 2")
    disks.mapping("dm-0", "mpatha", "mpath-3600", ("sda", "sdb"))
    return disks


def write_scripts(folder: Path) -> None:
    """Write a check of the site, and text files of a job."""
    write(folder, {"scripts/check": "#!/bin/sh\necho 'OK|used=50% runs=3c'\n"})
    (folder / "scripts/check").chmod(0o755)
    shared = 'slurm_job_id="1",node="n",gpu="GPU0",comm_name="c",n_nodes="1",nranks="8"'
    collective = f'{{{shared},collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"}}'
    p2p = f'{{{shared},p2p_operation="Send",message_size="4-5GB"}}'
    lines = (
        f"nccl_bus_bandwidth_gbs{collective} 300",
        f"nccl_collective_exec_time_microseconds{collective} 9000",
        f"nccl_p2p_bus_bandwidth_gbs{p2p} 300",
        f"nccl_p2p_exec_time_microseconds{p2p} 9000",
        'rccl_errors{tenant="a"} 0',
    )
    text = "".join(f"{line}\n" for line in lines)
    write(folder, {"nccl/a.prom": text})


def preloaded(*environments: dict[str, str]) -> dict[str, str]:
    """All of these; libraries that several preload come one after the other."""
    libraries = [one["LD_PRELOAD"] for one in environments if "LD_PRELOAD" in one]
    merged = {key: value for one in environments for key, value in one.items()}
    return {**merged, "LD_PRELOAD": ":".join(libraries)}


def runs(node: Node, besides: tuple[str, ...]) -> list[float]:
    """Return the number of runs of each target, besides those of slow probes."""
    totals: dict[str, float] = {}
    for (name, pairs), value in node.samples().items():
        labels = dict(pairs)
        if name == "nodevitals_probe_runs_total" and labels["probe"] not in besides:
            key = f"{labels['probe']}/{labels['target']}"
            totals[key] = totals.get(key, 0) + value
    return list(totals.values())


def test_promtool_accepts_the_text_format(node: Node) -> None:
    done = subprocess.run(
        [BINARIES / "promtool", "check", "metrics"],
        input=node.get(Accept="text/plain").text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_openmetrics_parser_accepts_the_openmetrics_format(node: Node) -> None:
    text = node.get(Accept="application/openmetrics-text").text
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert len(families) == len({family.name for family in families}) > 30


def test_every_exposed_series_is_declared_with_its_labels(node: Node) -> None:
    declared = catalogue.all_families()
    for name, pairs in node.samples():
        family = declared[name]
        if family is not catalogue.NODE_INFO:
            further = {"tenant"} if family.open else set()
            assert {label for label, _ in pairs} <= {*family.labels, *further}


def unexposed(node: Node) -> set[str]:
    """Return the declared families without a sample now."""
    exposed = {name for name, _ in node.samples()}
    # fabric: tests/e2e/test_fabric.py, on eight nodes; selfcheck, on an idle node:
    # tests/integration/test_selfcheck_agent.py.
    elsewhere = ("misbehave", "fabric", "selfcheck")
    kinds = (one for one in probes.registered().values() if one.name not in elsewhere)
    declared = {family.name for kind in kinds for family in kind.families}
    # The CPU times in the simulated /proc do not change.
    return declared - exposed - {"nodevitals_node_cpu_utilization_ratio"}


def test_each_probe_exposes_every_family_it_declares(node: Node) -> None:
    # On a busy machine a run of ascend may come too late: its samples come with a later one.
    wait_until(lambda: not unexposed(node), what="a sample of every family")


def rules() -> list[dict[str, Any]]:
    """Return every shipped rule."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def test_rules_that_record_a_declared_family_have_its_labels() -> None:
    declared = {**catalogue.all_families(), **catalogue.hub_families()}
    for rule in rules():
        name = rule.get("record", ":")
        if ":" not in name:
            family = declared[name]
            by = set(re.findall(r"\w+", rule["expr"].partition("by (")[2].partition(")")[0]))
            labels = (by | set(rule["labels"])) - {"cluster", "instance", "job"}
            assert labels == set(family.labels), rule


def test_every_fault_has_the_labels_of_the_taxonomy() -> None:
    """Dashboards and the hub select faults by these labels."""
    wanted = {"fault", "component", "severity", "scope", "action"}
    found = 0
    for rule in rules():
        if rule.get("record") == "nodevitals:fault":
            found += 1
            # These labels come from the metric itself.
            with_action = ("recovery_needed", "recovery_when_idle", "nvidia_xid", "npu_fault_code")
            of_metric = {"action"} if rule["labels"]["fault"] in with_action else set()
            assert set(rule["labels"]) | of_metric == wanted, rule
            assert rule["labels"].get("action", "none") in ACTIONS
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert found > 40


def test_every_fault_has_a_name_in_chinese() -> None:
    text = (ROOT / "alertmanager/templates/nodevitals.zh.tmpl").read_text()
    for rule in rules():
        fault = rule.get("labels", {}).get("fault", "none")
        assert fault == "none" or f'eq . "{fault}"' in text, fault


def test_every_runbook_belongs_to_an_alert_and_has_four_sections() -> None:
    names = {rule["alert"] for rule in rules() if "alert" in rule}
    for page in (ROOT / "rules/runbooks").glob("*.md"):
        assert page.stem in names
        text = page.read_text()
        for section in ("Meaning", "Impact", "Diagnosis", "Mitigation"):
            assert f"\n## {section}\n" in text, page
    for page in (ROOT / "rules/runbooks/zh").glob("*.md"):
        assert page.stem in names
        for section in ("含义", "影响", "诊断", "处置"):
            assert f"\n## {section}\n" in page.read_text(), page


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (["severity=critical"], "on-call,second-tier,third-tier,chat"),
        (["severity=warning", "component=rdma"], "storage-and-network"),
        (["severity=warning", "component=accelerator"], "hardware"),
        (["severity=info", "component=node"], "null"),
        (["severity=info", "owner=alice"], "job-owner"),
        (["severity=none", "alertname=InsideFleetIncident"], "null"),
        (["severity=none", "alertname=Watchdog"], "dead-mans-switch"),
    ],
)
def test_alerts_are_routed_to_receivers(labels: list[str], receivers: str) -> None:
    config = f"--config.file={ROOT / 'alertmanager/alertmanager.yaml'}"
    done = subprocess.run(
        [BINARIES / "amtool", "config", "routes", "test", config, *labels],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert done.stdout.strip() == receivers
