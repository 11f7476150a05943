"""A healthy fleet with the noise of healthy fleets, as input series for promtool.

Nothing here needs a person: idle links, power caps, application Xids, corrected errors, symbol
errors of PAM4, busy processors, missed scrapes, a rolling upgrade of the agents, nodes that reboot,
counters that restart at 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

STEP_SECONDS = 15
JOB = 'job="nodevitals", cluster="c"'


class QuietFleet:
    """Series of `nodes` nodes over so many hours; the same for the same seed."""

    def __init__(self, nodes: int, hours: float, seed: int = 1) -> None:
        self.samples = int(hours * 3600 / STEP_SECONDS)
        self.series: list[dict[str, str]] = []
        rng = random.Random(seed)
        for number in range(nodes):
            self.series += _QuietNode(number, nodes, self.samples, rng).series


class _QuietNode:
    """The series of one node; the order of the parts decides which noise each part gets."""

    def __init__(self, number: int, nodes: int, samples: int, rng: random.Random) -> None:
        self.series: list[dict[str, str]] = []
        self._number = number
        self._name = f"node-{number:03}"
        self._samples = samples
        self._rng = rng
        # Two scrapes are missed while the agent is upgraded, one node after the other.
        upgrade = samples // 4 + number * samples // (2 * nodes)
        self._missing = {upgrade, upgrade + 1}
        self._missing |= {rng.randrange(samples) for _ in range(samples // 200 + 1)}
        # One in fifty reboots: it is away for two and a half minutes, its counters restart at 0.
        self._boot = rng.randrange(samples - 20) if number % 50 == 7 else None
        if self._boot is not None:
            self._missing |= set(range(self._boot, self._boot + 10))
        self._agent(nodes)
        self._gpus()
        self._ports()
        self._storage()
        self._system()

    def _add(
        self, metric: str, values: Sequence[float], labels: str = "", gaps: bool = True
    ) -> None:
        """Add a series; with `gaps`, missed scrapes have no sample."""
        cells = [
            "_" if gaps and index in self._missing else f"{value:.12g}"
            for index, value in enumerate(values)
        ]
        pairs = f'{JOB}, instance="{self._name}"' + (f", {labels}" if labels else "")
        self.series.append({"series": f"{metric}{{{pairs}}}", "values": _packed(cells)})

    def _flat(self, value: float) -> list[float]:
        return [value] * self._samples

    def _counter(self, per_hour: float) -> list[float]:
        """Return a counter that increases so often, at random."""
        total, found = float(self._rng.randrange(1000)), []
        for index in range(self._samples):
            if index == self._boot:
                total = 0.0
            total += self._rng.random() < per_hour * STEP_SECONDS / 3600
            found.append(total)
        return found

    def _agent(self, nodes: int) -> None:
        up = [float(index not in self._missing) for index in range(self._samples)]
        self._add("up", up, gaps=False)
        leaf, rack = self._number * 10 // nodes, self._number * 20 // nodes
        domains = f'leaf="leaf-{leaf}", rack="rack-{rack}", pool="p"'
        self._add("nodevitals_node_info", self._flat(1), domains)
        for probe in ("nvidia", "rdma", "kernel_log", "node"):
            failures = {self._rng.randrange(self._samples)}
            values = [float(index not in failures) for index in range(self._samples)]
            target = f'probe="{probe}", target="{probe}"'
            self._add("nodevitals_probe_success", values, target)
            self._add("nodevitals_probe_stuck_seconds", self._flat(0), target)

    def _gpus(self) -> None:
        vendor = 'vendor="nvidia"'
        for name in ("expected", "present", "baseline"):
            self._add(f"nodevitals_accelerators_{name}", self._flat(8), vendor)
        version = "550.1" if self._number % 3 else "560.2"
        self._add("nodevitals_nvidia_driver_info", self._flat(1), f'driver_version="{version}"')
        gpu = f'device="0", uuid="GPU-{self._number}-0"'
        self._add("nodevitals_accelerator_up", self._flat(1), f"{vendor}, {gpu}")
        errors = "nodevitals_accelerator_ecc_errors_total"
        rest = 'lifetime="volatile", location="dram"'
        self._add(errors, self._counter(3), f'{vendor}, {gpu}, kind="corrected", {rest}')
        self._add(errors, self._flat(0), f'{vendor}, {gpu}, kind="uncorrected", {rest}')
        slowdown = "nodevitals_nvidia_slowdown_active"
        self._add(slowdown, self._flat(1), f'{gpu}, reason="sw_power_cap"')
        hot = [float(index % 40 < 4) for index in range(self._samples)]
        self._add(slowdown, hot, f'{gpu}, reason="hw_thermal"')
        self._gpu_links(gpu)
        self._add("nodevitals_nvidia_recovery_action", self._flat(1), f'{gpu}, action="none"')
        self._add("nodevitals_nvidia_row_remap_pending", self._flat(0), gpu)
        self._add("nodevitals_nvidia_row_remap_failure", self._flat(0), gpu)
        if self._number % 10 == 0:
            times = [float(index * STEP_SECONDS - 60) for index in range(self._samples)]
            xid = f'{gpu}, xid="31", action="restart_app"'
            self._add("nodevitals_nvidia_xid_last_timestamp_seconds", times, xid)

    def _gpu_links(self, gpu: str) -> None:
        """Add the PCIe link, which is slow while idle, and the NVLinks of one node in twenty."""
        for name, value in (
            ("pcie_link_width", 16),
            ("pcie_link_width_max", 16),
            ("pcie_link_generation", 1),
            ("pcie_link_generation_max", 5),
            ("nvlinks_expected", 18),
            ("nvlinks_up", 18),
        ):
            self._add(f"nodevitals_nvidia_{name}", self._flat(value), gpu)
        for link in range(18 if self._number % 20 == 0 else 0):
            self._add("nodevitals_nvidia_nvlink_up", self._flat(1), f'{gpu}, link="{link}"')
        errors = "nodevitals_nvidia_nvlink_errors_total"
        self._add(errors, self._counter(5), f'{gpu}, kind="replay"')

    def _ports(self) -> None:
        port = 'device="mlx5_0", port="1", link_layer="InfiniBand"'
        self._add("nodevitals_rdma_port_up", self._flat(1), port)
        for name in ("rate", "expected_rate"):
            self._add(f"nodevitals_rdma_port_{name}_bytes_per_second", self._flat(50e9), port)
        self._add("nodevitals_rdma_port_flaps_total", self._counter(0.1), port)
        errors = "nodevitals_rdma_port_errors_total"
        self._add(errors, self._counter(20), f'{port}, counter="symbol_error"')
        self._add(errors, self._counter(50), f'{port}, counter="packet_seq_err"')
        self._add(errors, self._flat(0), f'{port}, counter="local_link_integrity_errors"')
        bond = 'interface="bond0", kind="bond"'
        self._add("nodevitals_network_up", self._flat(1), bond)
        speed = "nodevitals_network_expected_speed_bytes_per_second"
        self._add(speed, self._flat(25e9), bond)
        member = 'interface="bond0", member="ens1"'
        self._add("nodevitals_network_bond_member_up", self._flat(1), member)

    def _storage(self) -> None:
        rng, samples = self._rng, range(self._samples)
        mount = 'mountpoint="/data", fstype="nfs4", source="filer:/x"'
        for name in ("present", "writable", "readable"):
            self._add(f"nodevitals_mount_{name}", self._flat(1), mount)
        self._add("nodevitals_mount_content_mismatches_total", self._flat(0), mount)
        spike = rng.randrange(self._samples)
        times = [3.0 if index == spike else rng.uniform(0.02, 0.2) for index in samples]
        self._add("nodevitals_mount_write_seconds", times, mount)
        self._add("nodevitals_mount_size_bytes", self._flat(1e15), mount)
        free = [5e14 + rng.gauss(0, 1e9) for _ in samples]
        self._add("nodevitals_mount_free_bytes", free, mount)
        target = 'probe="mounts", target="/data"'
        self._add("nodevitals_probe_stuck_seconds", self._flat(0), target)
        self._add("nodevitals_probe_success", self._flat(1), target)

    def _system(self) -> None:
        rng, samples = self._rng, range(self._samples)
        busy = [min(1.0, max(0.0, rng.gauss(0.85, 0.08))) for _ in samples]
        self._add("nodevitals_node_cpu_utilization_ratio", busy)
        self._add("nodevitals_node_memory_total_bytes", self._flat(2e12))
        available = [rng.gauss(1e12, 5e10) for _ in samples]
        self._add("nodevitals_node_memory_available_bytes", available)
        self._add("nodevitals_node_clock_synchronized", self._flat(1))
        offsets = [rng.gauss(0, 0.001) for _ in samples]
        self._add("nodevitals_node_clock_offset_seconds", offsets)
        errors = 'controller="mc0", kind="uncorrected"'
        self._add("nodevitals_node_memory_errors_total", self._flat(0), errors)
        self._add("nodevitals_node_nvme_live", self._flat(1), 'device="nvme0"')
        self._add("nodevitals_kernel_events_total", self._counter(0.5), 'event="oom_kill"')
        self._add("nodevitals_kernel_events_total", self._flat(0), 'event="io_error"')


def _packed(cells: list[str]) -> str:
    """Return the cells with runs as promtool writes them: `1x9` is ten times 1."""
    found: list[str] = []
    start = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index] != cells[start]:
            count = index - start
            if cells[start] == "_":
                found.append(f"_x{count}")
            else:
                found.append(cells[start] if count == 1 else f"{cells[start]}x{count - 1}")
            start = index
    return " ".join(found)
