"""A healthy fleet with the noise of healthy fleets, as input series for promtool.

Nothing here needs a person: jobs that use all processors and most of the memory of their nodes,
fill the scratch disks, slow the filer with checkpoints and fail on all ranks; power caps, corrected
errors, symbol errors of PAM4, missed scrapes; a rolling upgrade of the agents, and one of the
drivers with a reboot, in maintenance; counters that restart at 0.
"""

from __future__ import annotations

import random

from nodevitals.probes.kernel_log.xid import RULE_CODES, XID_ACTIONS
from testbed.alerting.series import STEP_SECONDS
from testbed.calendar import BOOTED, LINKS_UP, REBOOT, UNLOADED, UPGRADED, NodeCalendar
from testbed.jobs import Jobs

__all__ = ["STEP_SECONDS", "QuietFleet"]


class QuietFleet:
    """Series of `nodes` nodes over so many hours; the same for the same seed."""

    def __init__(self, nodes: int, hours: float, seed: int = 1) -> None:
        self.samples = int(hours * 3600 / STEP_SECONDS)
        self.series: list[dict[str, str]] = []
        rng = random.Random(seed)
        for number in range(nodes):
            self.series += _QuietNode(number, nodes, self.samples, rng).series


class _QuietNode(NodeCalendar):
    """The series of one node; the order of the parts decides which noise each part gets."""

    def __init__(self, number: int, nodes: int, samples: int, rng: random.Random) -> None:
        super().__init__(number, nodes, samples, rng)
        self._jobs = Jobs(number)
        self._undriven = self.during(UNLOADED, BOOTED)
        self._agent(nodes)
        self._maintenance()
        self._gpus()
        self._xids()
        self._ports()
        self._storage()
        self._scratch()
        self._system()

    def _agent(self, nodes: int) -> None:
        self.add("up", [float(index not in self.missing) for index in range(self.samples)])
        leaf, rack = self.number * 10 // nodes, self.number * 20 // nodes
        domains = f'leaf="leaf-{leaf}", rack="rack-{rack}", pool="p"'
        self.add("nodevitals_node_info", self.flat(1), domains)
        self.add("nodevitals_node_time_seconds", self.times())
        booted = self.upgrade + BOOTED - 60
        boots = self.by_time(lambda at: booted if at > booted else -86400)
        self.add("nodevitals_node_boot_timestamp_seconds", boots)
        for probe in ("nvidia", "rdma", "kernel_log", "node"):
            failed = {self.rng.randrange(self.samples)}
            if probe == "nvidia":
                failed |= set(self.during(UNLOADED, REBOOT))
            values = [float(index not in failed) for index in range(self.samples)]
            target = f'probe="{probe}", target="{probe}"'
            self.add("nodevitals_probe_success", values, target)
            self.add("nodevitals_probe_stuck_seconds", self.flat(0), target)
            self.add("nodevitals_probe_unanswered_seconds", self.flat(0), target)

    def _maintenance(self) -> None:
        self.add("nodevitals_node_maintenance", self.changed(0, 1, 0, UPGRADED))
        end = self.flat(float(self.upgrade + UPGRADED))
        name = "nodevitals_node_maintenance_end_timestamp_seconds"
        self.add(name, end, only=self.during(0, UPGRADED))

    def _gpus(self) -> None:
        vendor = 'vendor="nvidia"'
        self.add("nodevitals_accelerators_expected", self.flat(8), vendor)
        for name in ("present", "baseline"):
            self.add(
                f"nodevitals_accelerators_{name}", self.flat(8), vendor, without=self._undriven
            )
        before, after = range(self._undriven.start), range(self._undriven.stop, self.samples)
        for version, known in (("550.1", before), ("560.2", after)):
            label = f'driver_version="{version}"'
            self.add("nodevitals_nvidia_driver_info", self.flat(1), label, only=known)
        gpu = f'device="0", uuid="GPU-{self.number}-0"'
        self._gpu("nodevitals_accelerator_up", 1, f"{vendor}, {gpu}")
        errors = "nodevitals_accelerator_ecc_errors_total"
        rest = 'lifetime="volatile", location="dram"'
        corrected = f'{vendor}, {gpu}, kind="corrected", {rest}'
        self.add(errors, self.counter(3), corrected, without=self._undriven)
        self._gpu(errors, 0, f'{vendor}, {gpu}, kind="uncorrected", {rest}')
        slowdown = "nodevitals_nvidia_slowdown_active"
        self._gpu(slowdown, 1, f'{gpu}, reason="sw_power_cap"')
        # 5 % of the time.
        hot = [float(index % 40 < 2) for index in range(self.samples)]
        self.add(slowdown, hot, f'{gpu}, reason="hw_thermal"', without=self._undriven)
        self._gpu("nodevitals_nvidia_recovery_action", 1, f'{gpu}, action="none"')
        self._gpu("nodevitals_nvidia_row_remap_pending", 0, gpu)
        self._gpu("nodevitals_nvidia_row_remap_failure", 0, gpu)
        self._links(gpu)

    def _gpu(self, metric: str, value: float, labels: str) -> None:
        """Add what NVML reports, and does not change."""
        self.add(metric, self.flat(value), labels, without=self._undriven)

    def _links(self, gpu: str) -> None:
        """Add the PCIe link, which is slow while idle, and the NVLinks of one node in twenty."""
        for name, value in (
            ("pcie_link_width", 16),
            ("pcie_link_width_max", 16),
            ("pcie_link_generation_max", 5),
            ("nvlinks_expected", 18),
        ):
            self._gpu(f"nodevitals_nvidia_{name}", value, gpu)
        busy = self.by_time(lambda at: self._jobs.load(at).cpu > 0.5)
        generation = [5.0 if one else 1.0 for one in busy]
        name = "nodevitals_nvidia_pcie_link_generation"
        self.add(name, generation, gpu, without=self._undriven)
        name = "nodevitals_accelerator_utilization_ratio"
        self.add(name, busy, f'vendor="nvidia", {gpu}', without=self._undriven)
        up = self.changed(18, 0, BOOTED, LINKS_UP)
        self.add("nodevitals_nvidia_nvlinks_up", up, gpu, without=self._undriven)
        training = self.changed(1, 0, BOOTED, LINKS_UP)
        for link in range(18 if self.number % 20 == 0 else 0):
            label = f'{gpu}, link="{link}"'
            self.add("nodevitals_nvidia_nvlink_up", training, label, without=self._undriven)
        errors = "nodevitals_nvidia_nvlink_errors_total"
        self.add(errors, self.counter(5), f'{gpu}, kind="replay"', without=self._undriven)

    def _xids(self) -> None:
        """Add the application's Xid of each failed job, and the codes that never appear."""
        code = self._jobs.xid
        failures = self._jobs.failures(self.samples * STEP_SECONDS)
        gpu = f'device="0", uuid="GPU-{self.number}-0"'
        xid = f'{gpu}, xid="{code}", action="{XID_ACTIONS[code]}"'
        for never in RULE_CODES:
            label = f'{gpu}, xid="{never}", action="{XID_ACTIONS[never]}"'
            self.add("nodevitals_nvidia_xid_errors_total", self.flat(0), label)
        if failures:
            first = range(int(failures[0]) // STEP_SECONDS, self.samples)
            counts = self.by_time(lambda at: sum(one <= at for one in failures))
            self.add("nodevitals_nvidia_xid_errors_total", counts, xid, only=first)
            last = self.by_time(lambda at: max((one for one in failures if one <= at), default=0))
            self.add("nodevitals_nvidia_xid_last_timestamp_seconds", last, xid, only=first)

    def _ports(self) -> None:
        port = 'device="mlx5_0", port="1", link_layer="InfiniBand"'
        self.add("nodevitals_rdma_port_up", self.changed(1, 0, BOOTED, LINKS_UP), port)
        for name in ("rate", "expected_rate"):
            self.add(f"nodevitals_rdma_port_{name}_bytes_per_second", self.flat(50e9), port)
        self.add("nodevitals_rdma_port_flaps_total", self.counter(0.1), port)
        errors = "nodevitals_rdma_port_errors_total"
        self.add(errors, self.counter(20), f'{port}, counter="symbol_error"')
        self.add(errors, self.counter(50), f'{port}, counter="packet_seq_err"')
        self.add(errors, self.flat(0), f'{port}, counter="local_link_integrity_errors"')
        bond = 'interface="bond0", kind="bond"'
        self.add("nodevitals_network_up", self.flat(1), bond)
        speed = "nodevitals_network_expected_speed_bytes_per_second"
        self.add(speed, self.flat(25e9), bond)
        member = 'interface="bond0", member="ens1"'
        self.add("nodevitals_network_bond_member_up", self.flat(1), member)

    def _storage(self) -> None:
        """Add a shared file system, slow on all nodes of a job that writes a checkpoint."""
        rng = self.rng
        mount = 'mountpoint="/data", fstype="nfs4", source="filer:/x"'
        for name in ("present", "writable", "readable"):
            self.add(f"nodevitals_mount_{name}", self.flat(1), mount)
        self.add("nodevitals_mount_content_mismatches_total", self.flat(0), mount)
        seconds = self.by_time(
            lambda at: (
                rng.uniform(2, 4) if self._jobs.load(at).checkpoint else rng.uniform(0.02, 0.2)
            )
        )
        seconds[rng.randrange(self.samples)] = 3.0
        self.add("nodevitals_mount_write_seconds", seconds, mount)
        self.add("nodevitals_mount_size_bytes", self.flat(1e15), mount)
        free = [5e14 + rng.gauss(0, 1e9) for _ in range(self.samples)]
        self.add("nodevitals_mount_free_bytes", free, mount)
        target = 'probe="mounts", target="/data"'
        self.add("nodevitals_probe_stuck_seconds", self.flat(0), target)
        self.add("nodevitals_probe_unanswered_seconds", self.flat(0), target)
        self.add("nodevitals_probe_success", self.flat(1), target)

    def _scratch(self) -> None:
        """Add a disk of the node's own, which jobs fill and empty."""
        mount = 'mountpoint="/scratch", fstype="xfs", source="/dev/md0"'
        for name in ("present", "writable", "readable"):
            self.add(f"nodevitals_mount_{name}", self.flat(1), mount)
        self.add("nodevitals_mount_size_bytes", self.flat(3e13), mount)
        free = self.by_time(lambda at: 3e13 * self._jobs.load(at).scratch_free)
        self.add("nodevitals_mount_free_bytes", free, mount)

    def _system(self) -> None:
        rng = self.rng
        busy = self.by_time(lambda at: min(1, max(0, rng.gauss(self._jobs.load(at).cpu, 0.01))))
        self.add("nodevitals_node_cpu_utilization_ratio", busy)
        self.add("nodevitals_node_memory_total_bytes", self.flat(2e12))
        available = self.by_time(
            lambda at: 2e12 * (1 - self._jobs.load(at).memory) + rng.gauss(0, 1e10)
        )
        self.add("nodevitals_node_memory_available_bytes", available)
        self.add("nodevitals_node_clock_synchronized", self.flat(1))
        offsets = [rng.gauss(0, 0.001) for _ in range(self.samples)]
        self.add("nodevitals_node_clock_offset_seconds", offsets)
        errors = 'controller="mc0", kind="uncorrected"'
        self.add("nodevitals_node_memory_errors_total", self.flat(0), errors)
        self.add("nodevitals_node_nvme_live", self.flat(1), 'device="nvme0"')
        self.add("nodevitals_kernel_events_total", self.counter(0.5), 'event="oom_kill"')
        self.add("nodevitals_kernel_events_total", self.flat(0), 'event="io_error"')
