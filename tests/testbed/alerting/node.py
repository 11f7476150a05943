"""The series of one healthy node, as its agent exposes them; faults change them (`faults`).

Of each kind that rules read it has one, or as many as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from nodevitals.probes.kernel_log.xid import RULE_CODES, XID_ACTIONS
from testbed.alerting.series import Series

DAY_SECONDS = 86400.0
UP_SINCE = -3 * DAY_SECONDS


class Hardware(msgspec.Struct, frozen=True):
    """What a node has, as little as a scenario needs: promtool's time grows with each series.

    `domains` are the labels of nodevitals_node_info.
    """

    domains: dict[str, str] = {}
    gpus: int = 0
    npus: int = 0
    ports: int = 1
    switches: tuple[str, ...] = ()
    """The switch of each port; without it, the agent does not know them."""
    bond: bool = False
    driver: str = "550.1"
    nvlinks: int = 2
    mounts: tuple[tuple[str, str, str], ...] = ()
    """Mount point, file system type and source of each."""


class NodeSeries:
    """Series of one node, by name and labels."""

    def __init__(self, cluster: str, name: str, hardware: Hardware) -> None:
        self.name = name
        self.cluster = cluster
        self.hardware = hardware
        self.job = "nodevitals"
        self.hidden: list[tuple[float, float]] = []
        """Times in which the node cannot be scraped: `up` is 0 and there are no other series."""
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        self._agent()
        self._system()
        for device in range(hardware.gpus):
            self._gpu(device)
        for device in range(hardware.npus):
            self._npu(device)
        for port in range(hardware.ports):
            self._port(port)
        for mount in hardware.mounts:
            self._mount(*mount)

    def series(self, name: str, /, **labels: str) -> Series:
        """Return one series; a new one has no samples yet."""
        key = name, tuple(sorted(labels.items()))
        if key not in self._series:
            own = {"job": self.job, "cluster": self.cluster, "instance": self.name}
            self._series[key] = Series(name, **own, **labels)
        return self._series[key]

    def matching(self, prefix: str, **labels: str) -> Iterator[Series]:
        """Yield the series whose name begins so and that have these labels."""
        for one in self._series.values():
            if one.name.startswith(prefix) and labels.items() <= one.labels.items():
                yield one

    def documents(self, end: float) -> Iterator[dict[str, str]]:
        """Yield the series as promtool's input."""
        for one in self._series.values():
            yield one.document(end, () if one.name == "up" else self.hidden)

    def gpu(self, device: int) -> dict[str, str]:
        """Return the labels of a GPU."""
        return {"device": str(device), "uuid": f"GPU-{self.cluster}-{self.name}-{device}"}

    def port(self, port: int) -> dict[str, str]:
        """Return the labels of an RDMA port."""
        layer = "Ethernet" if self.hardware.bond else "InfiniBand"
        return {"device": f"mlx5_{port}", "port": "1", "link_layer": layer}

    def npu(self, device: int) -> dict[str, str]:
        """Return the labels of an NPU."""
        return {"device": str(device), "uuid": f"NPU-{self.cluster}-{self.name}-{device}"}

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set the value that a series has from the beginning."""
        self.series(f"nodevitals_{name}", **labels).set(value)

    def _agent(self) -> None:
        self.series("up").set(1)
        self.series("process_start_time_seconds").set(UP_SINCE + 60)
        self.set("build_info", 1, version="1")
        self.set("node_info", 1, **self.hardware.domains)
        self.set("config_last_reload_successful", 1)
        for probe in ("kernel_log", "node", *(["nvidia"] if self.hardware.gpus else [])):
            self._probe(probe, probe)

    def _probe(self, probe: str, target: str) -> None:
        self.set("probe_success", 1, probe=probe, target=target)
        self.set("probe_stuck_seconds", 0, probe=probe, target=target)
        if probe == "mounts":  # no rule reads it of another probe
            self.set("probe_unanswered_seconds", 0, probe=probe, target=target)

    def _system(self) -> None:
        self.set("node_boot_timestamp_seconds", UP_SINCE)
        self.series("nodevitals_node_time_seconds").set(0, slope=1)
        self.set("node_maintenance", 0)
        self.set("node_cpu_utilization_ratio", 0.4)
        self.set("node_memory_total_bytes", 2e12)
        self.set("node_memory_available_bytes", 1.5e12)
        self.set("node_clock_synchronized", 1)
        self.set("node_clock_offset_seconds", 0.001)
        self.set("node_memory_errors_total", 0, controller="mc0", kind="uncorrected")
        self.set("node_nvme_live", 1, device="nvme0")
        for event in ("oom_kill", "hung_task", "lockup", "kernel_bug"):
            self.set("kernel_events_total", 0, event=event)

    def _gpu(self, device: int) -> None:
        gpu, vendor = self.gpu(device), "nvidia"
        if not device:
            self.set("accelerators_present", self.hardware.gpus, vendor=vendor)
            self.set("accelerators_baseline", self.hardware.gpus, vendor=vendor)
            for source in ("pci", "driver", "nvml"):
                self.set("nvidia_devices", self.hardware.gpus, source=source)
            versions = dict.fromkeys(("driver_version", "library_version"), self.hardware.driver)
            self.set("nvidia_driver_info", 1, **versions, cuda_version="12.4")
        self.set("accelerator_up", 1, vendor=vendor, **gpu)
        for kind in ("corrected", "uncorrected"):
            labels = {"kind": kind, "lifetime": "volatile", "location": "dram"}
            self.set("accelerator_ecc_errors_total", 0, vendor=vendor, **gpu, **labels)
        for name, value in (
            ("pcie_link_width", 16),
            ("pcie_link_width_max", 16),
            ("pcie_link_generation", 5),
            ("pcie_link_generation_max", 5),
            ("nvlinks_expected", self.hardware.nvlinks),
            ("nvlinks_unreadable", 0),
            ("nvlinks_up", self.hardware.nvlinks),
            ("row_remap_pending", 0),
            ("row_remap_failure", 0),
        ):
            self.set(f"nvidia_{name}", value, **gpu)
        self.set("nvidia_recovery_action", 1, **gpu, vendor_action="none", action="none")
        self.set("nvidia_slowdown_active", 0, **gpu, reason="hw_thermal")
        self.set("accelerator_utilization_ratio", 0.95, vendor=vendor, **gpu)
        for link in range(self.hardware.nvlinks):
            self.set("nvidia_nvlink_up", 1, **gpu, link=str(link))
        self.set("nvidia_nvlink_errors_total", 0, **gpu, kind="replay")
        # The agent starts these at 0, so that the first of them is an increase.
        for code in RULE_CODES:
            labels = {"xid": str(code), "action": XID_ACTIONS[code]}
            self.set("nvidia_xid_errors_total", 0, **gpu, **labels)

    def _npu(self, device: int) -> None:
        npu = self.npu(device)
        self.set("accelerators_present", self.hardware.npus, vendor="ascend")
        self.set("accelerator_up", 1, vendor="ascend", **npu)
        self.set("ascend_health_level", 0, **npu)
        self.set("ascend_link_up", 1, **npu)
        self.set("ascend_network_reachable", 1, **npu)

    def _port(self, port: int) -> None:
        labels = self.port(port)
        self.set("rdma_port_up", 1, **labels)
        for name in ("rate", "expected_rate"):
            self.set(f"rdma_port_{name}_bytes_per_second", 50e9, **labels)
        self.set("rdma_port_flaps_total", 0, **labels)
        self.set("rdma_port_errors_total", 0, **labels, counter="symbol_error")
        if self.hardware.switches:
            switch = self.hardware.switches[port]
            self.set("port_switch_info", 1, device=labels["device"], port="1", switch=switch)
        if self.hardware.bond:
            self._interface(port)

    def _interface(self, port: int) -> None:
        self.set("network_up", 1, interface=f"ens{port}", kind="physical")
        speed = "network_expected_speed_bytes_per_second"
        self.set(speed, 25e9, interface=f"ens{port}", kind="physical")
        self.set("network_up", 1, interface="bond0", kind="bond")
        self.set(speed, 50e9, interface="bond0", kind="bond")
        self.set("network_bond_member_up", 1, interface="bond0", member=f"ens{port}")
        if self.hardware.switches:
            switch = self.hardware.switches[port]
            self.set("port_switch_info", 1, device=f"ens{port}", port="", switch=switch)
            self.set("rdma_port_gid_usable", 1, **self.port(port))

    def _mount(self, mountpoint: str, fstype: str, source: str) -> None:
        labels = {"mountpoint": mountpoint, "fstype": fstype, "source": source}
        for name in ("present", "writable", "readable", "as_expected"):
            self.set(f"mount_{name}", 1, **labels)
        self.set("mount_content_mismatches_total", 0, **labels)
        self.set("mount_write_seconds", 0.05, **labels)
        self.set("mount_read_seconds", 0.02, **labels)
        self.set("mount_size_bytes", 1e15, **labels)
        self.set("mount_free_bytes", 5e14, **labels)
        self._probe("mounts", mountpoint)
