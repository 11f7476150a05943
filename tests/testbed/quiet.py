"""A healthy fleet with the noise that healthy fleets have, as input series for promtool.

Nothing here needs anybody: idle links, power caps, application Xids, corrected errors, symbol
errors of PAM4, busy processors, scrapes that were missed, a rolling upgrade of the agents, nodes
that reboot, counters that start anew.
"""

from __future__ import annotations

import random
from typing import Any

STEP_SECONDS = 15
JOB = 'job="nodevitals", cluster="c"'


class Quiet:
    """Series of `nodes` nodes over so many hours; the same for the same seed."""

    def __init__(self, nodes: int, hours: float, seed: int = 1) -> None:
        self.samples = int(hours * 3600 / STEP_SECONDS)
        self.series: list[dict[str, str]] = []
        self._random = random.Random(seed)
        self._wave = self.samples // 4
        """When the rolling upgrade begins."""
        for number in range(nodes):
            self._node(number, nodes)

    def _node(self, number: int, nodes: int) -> None:
        rng, name = self._random, f"node-{number:03}"
        # Two scrapes are lost while the agent is exchanged, one node after the other.
        upgrade = self._wave + number * self.samples // (2 * nodes)
        missing = {upgrade, upgrade + 1}
        missing |= {rng.randrange(self.samples) for _ in range(self.samples // 200 + 1)}
        # One in fifty reboots: away for two and a half minutes, its counters start at 0.
        boot = rng.randrange(self.samples - 20) if number % 50 == 7 else None
        if boot is not None:
            missing |= set(range(boot, boot + 10))

        def add(metric: str, values: list[float], labels: str = "", absent: bool = True) -> None:
            cells = [
                "_" if absent and index in missing else f"{value:.12g}"
                for index, value in enumerate(values)
            ]
            pairs = f'{JOB}, instance="{name}"' + (f", {labels}" if labels else "")
            self.series.append({"series": f"{metric}{{{pairs}}}", "values": _packed(cells)})

        def flat(value: float) -> list[float]:
            return [value] * self.samples

        def counted(an_hour: float) -> list[float]:
            total, found = float(rng.randrange(1000)), []
            for index in range(self.samples):
                if index == boot:
                    total = 0.0
                total += rng.random() < an_hour * STEP_SECONDS / 3600
                found.append(total)
            return found

        add("up", [float(i not in missing) for i in range(self.samples)], absent=False)
        leaf, rack = number * 10 // nodes, number * 20 // nodes
        add("nodevitals_node_info", flat(1), f'leaf="leaf-{leaf}", rack="rack-{rack}", pool="p"')
        for probe in ("nvidia", "rdma", "kernel_log", "node"):
            blips = {rng.randrange(self.samples)}
            values = [float(i not in blips) for i in range(self.samples)]
            add("nodevitals_probe_success", values, f'probe="{probe}", target="{probe}"')
            add("nodevitals_probe_stuck_seconds", flat(0), f'probe="{probe}", target="{probe}"')
        self._cards(number, add, flat, counted)
        self._ports(add, flat, counted)
        self._storage(add, flat)
        busy = [min(1.0, max(0.0, rng.gauss(0.85, 0.08))) for _ in range(self.samples)]
        add("nodevitals_node_cpu_utilization_ratio", busy)
        add("nodevitals_node_memory_total_bytes", flat(2e12))
        add("nodevitals_node_memory_available_bytes", [rng.gauss(1e12, 5e10) for _ in busy])
        add("nodevitals_node_clock_synchronized", flat(1))
        add("nodevitals_node_clock_offset_seconds", [rng.gauss(0, 0.001) for _ in busy])
        add("nodevitals_node_memory_errors_total", flat(0), 'controller="mc0", kind="uncorrected"')
        add("nodevitals_node_nvme_live", flat(1), 'device="nvme0"')
        add("nodevitals_kernel_events_total", counted(0.5), 'event="oom_kill"')
        add("nodevitals_kernel_events_total", flat(0), 'event="io_error"')

    def _cards(self, number: int, add: Any, flat: Any, counted: Any) -> None:
        vendor = 'vendor="nvidia"'
        add("nodevitals_accelerators_expected", flat(8), vendor)
        add("nodevitals_accelerators_present", flat(8), vendor)
        add("nodevitals_accelerators_baseline", flat(8), vendor)
        version = "550.1" if number % 3 else "560.2"
        add("nodevitals_nvidia_driver_info", flat(1), f'driver_version="{version}"')
        for device in range(1):
            card = f'device="{device}", uuid="GPU-{number}-{device}"'
            add("nodevitals_accelerator_up", flat(1), f"{vendor}, {card}")
            errors = "nodevitals_accelerator_ecc_errors_total"
            rest = 'lifetime="volatile", location="dram"'
            add(errors, counted(3), f'{vendor}, {card}, kind="corrected", {rest}')
            add(errors, flat(0), f'{vendor}, {card}, kind="uncorrected", {rest}')
            capped = 'reason="sw_power_cap"'
            add("nodevitals_nvidia_slowdown_active", flat(1), f"{card}, {capped}")
            hot = [float(index % 40 < 12) for index in range(self.samples)]
            add("nodevitals_nvidia_slowdown_active", hot, f'{card}, reason="hw_thermal"')
            add("nodevitals_nvidia_pcie_link_width", flat(16), card)
            add("nodevitals_nvidia_pcie_link_width_max", flat(16), card)
            add("nodevitals_nvidia_pcie_link_generation", flat(1), card)
            add("nodevitals_nvidia_pcie_link_generation_max", flat(5), card)
            add("nodevitals_nvidia_nvlinks_expected", flat(18), card)
            for link in range(18 if device == 0 and number % 20 == 0 else 0):
                add("nodevitals_nvidia_nvlink_up", flat(1), f'{card}, link="{link}"')
            add("nodevitals_nvidia_nvlink_errors_total", counted(5), f'{card}, kind="replay"')
            add("nodevitals_nvidia_recovery_action", flat(1), f'{card}, action="none"')
            add("nodevitals_nvidia_row_remap_pending", flat(0), card)
            add("nodevitals_nvidia_row_remap_failure", flat(0), card)
            if number % 10 == 0:
                xid = f'{card}, xid="31", action="restart_app"'
                times = [float(index * STEP_SECONDS - 60) for index in range(self.samples)]
                add("nodevitals_nvidia_xid_last_timestamp_seconds", times, xid)

    def _ports(self, add: Any, flat: Any, counted: Any) -> None:
        for device in range(1):
            port = f'device="mlx5_{device}", port="1", link_layer="InfiniBand"'
            add("nodevitals_rdma_port_up", flat(1), port)
            add("nodevitals_rdma_port_rate_bytes_per_second", flat(50e9), port)
            add("nodevitals_rdma_port_expected_rate_bytes_per_second", flat(50e9), port)
            add("nodevitals_rdma_port_flaps_total", counted(0.1), port)
            errors = "nodevitals_rdma_port_errors_total"
            add(errors, counted(20), f'{port}, counter="symbol_error"')
            add(errors, counted(50), f'{port}, counter="packet_seq_err"')
            add(errors, flat(0), f'{port}, counter="local_link_integrity_errors"')
        bond = 'interface="bond0", kind="bond"'
        add("nodevitals_network_up", flat(1), bond)
        add("nodevitals_network_expected_speed_bytes_per_second", flat(25e9), bond)
        add("nodevitals_network_bond_member_up", flat(1), 'interface="bond0", member="ens1"')

    def _storage(self, add: Any, flat: Any) -> None:
        rng = self._random
        mount = 'mountpoint="/data", fstype="nfs4", source="filer:/x"'
        for name in ("present", "writable", "readable"):
            add(f"nodevitals_mount_{name}", flat(1), mount)
        add("nodevitals_mount_content_mismatches_total", flat(0), mount)
        spike = rng.randrange(self.samples)
        times = [3.0 if index == spike else rng.uniform(0.02, 0.2) for index in range(self.samples)]
        add("nodevitals_mount_write_seconds", times, mount)
        add("nodevitals_mount_size_bytes", flat(1e15), mount)
        add("nodevitals_mount_free_bytes", [5e14 + rng.gauss(0, 1e9) for _ in times], mount)
        target = 'probe="mounts", target="/data"'
        add("nodevitals_probe_stuck_seconds", flat(0), target)
        add("nodevitals_probe_success", flat(1), target)


def _packed(cells: list[str]) -> str:
    """Runs of equal cells as promtool writes them: `1x9` is ten times 1."""
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
