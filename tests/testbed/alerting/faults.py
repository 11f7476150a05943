"""What happens to a node: which series appear, change and end, as the agent exposes it.

Times are in seconds of the scenario; a fault without `until` lasts.
"""

from __future__ import annotations

import math

from nodevitals.probes.kernel_log.xid import XID_ACTIONS
from testbed.alerting.node import NodeSeries

FOREVER = math.inf
# The samples of a run that hangs end after three intervals.
STALE_AFTER_SECONDS = 45.0
# The agent gives a run 10 s, and begins one every 15 s.
TIMEOUT_SECONDS = 10.0
SECOND_TIMEOUT_SECONDS = 25.0
# The kernel logs a task that is blocked for two minutes, and again every two minutes.
HUNG_TASK_SECONDS = 120.0
_OF_THE_DRIVER = ("nodevitals_accelerator", "nodevitals_nvidia_")
# They do not come from NVML: the PCI bus, the kernel's log, the configuration.
_WITHOUT_DRIVER = (
    "nodevitals_accelerators_expected",
    "nodevitals_nvidia_devices",
    "nodevitals_nvidia_xid_errors_total",
    "nodevitals_nvidia_xid_last_timestamp_seconds",
)


class Node(NodeSeries):
    """A node, and what can happen to it."""

    def change(
        self, name: str, value: float | None, at: float, until: float = FOREVER, /, **labels: str
    ) -> None:
        """Change a series of the agent for some time; None: it is not exposed."""
        self.series(f"nodevitals_{name}", **labels).replace(value, at, until)

    def count(self, name: str, at: float, amount: float = 1, /, **labels: str) -> None:
        """Increase a counter; one that did not exist begins at `amount`."""
        series = self.series(f"nodevitals_{name}", **labels)
        series.replace((series.value(at) or 0) + amount, at, FOREVER)

    # The whole node.

    def down(self, at: float, until: float = FOREVER) -> None:
        """The node, or its agent, cannot be scraped: all its series end, `up` is 0."""
        self.hidden.append((at, until))
        self.series("up").replace(0, at, until)

    def reboot(self, at: float, minutes: float = 5.0) -> None:
        """The node reboots: counters begin at 0, then links train for two minutes."""
        back = at + 60 * minutes
        self.down(at, back)
        self.change("node_boot_timestamp_seconds", back - 60, at)
        self.restarted(back)
        for one in (*self.matching("nodevitals_kernel"), *self.matching("nodevitals_nvidia")):
            if one.name.endswith("_total"):
                one.replace(0, at, FOREVER)
        for family in ("nodevitals_nvidia_nvlink_up", "nodevitals_nvidia_nvlinks_up"):
            for one in self.matching(family):
                one.replace(0, back, back + 120)
        for port in range(self.hardware.ports):
            self.port_down(port, back, back + 60)

    def restarted(self, at: float) -> None:
        """The agent started at this time."""
        self.series("process_start_time_seconds").replace(at, at, FOREVER)

    def agent_restart(self, at: float, gap: float = 15.0) -> None:
        """The agent restarts, and misses the scrapes of `gap` seconds."""
        self.down(at, at + gap)
        self.restarted(at + gap)

    def leaves_discovery(self, at: float) -> None:
        """The target leaves service discovery: its series end, `up` too."""
        for one in self.matching(""):
            one.replace(None, at, FOREVER)

    def appears(self, at: float) -> None:
        """The node exists from then on, and booted a minute before."""
        for one in self.matching(""):
            one.replace(None, 0, at)
        self.series("nodevitals_node_boot_timestamp_seconds").replace(at - 60, at, FOREVER)
        self.restarted(at)

    def scraped_as(self, job: str) -> None:
        """Prometheus scrapes the node under another job's name."""
        for one in self.matching(""):
            one.labels["job"] = job

    def maintenance(self, at: float, until: float) -> None:
        """The node's maintenance file declares planned work until then."""
        self.change("node_maintenance", 1, at, until)
        self.change("node_maintenance_end_timestamp_seconds", until, at, until)

    # Accelerators.

    def xid(self, device: int, code: int, at: float) -> None:
        """The driver logs an Xid; its time is on the node's own clock."""
        labels = {**self.gpu(device), "xid": str(code), "action": XID_ACTIONS[code]}
        self.count("nvidia_xid_errors_total", at, **labels)
        clock = self.series("nodevitals_node_time_seconds").value(at)
        self.change("nvidia_xid_last_timestamp_seconds", clock, at, **labels)

    def gpu_lost(self, device: int, at: float, until: float = FOREVER) -> None:
        """The GPU falls off the bus: Xid 79, and NVML reports it as lost."""
        self.xid(device, 79, at)
        for one in list(self.matching("nodevitals_", uuid=self.gpu(device)["uuid"])):
            if not one.name.startswith(_WITHOUT_DRIVER):
                one.replace(None, at, until)
        self.change("accelerator_up", 0, at, until, vendor="nvidia", **self.gpu(device))
        error = {"vendor": "nvidia", **self.gpu(device), "code": "gpu_is_lost"}
        self.change("accelerator_error_info", 1, at, until, **error)
        present = self.series("nodevitals_accelerators_present", vendor="nvidia")
        present.replace((present.value(at) or 0) - 1, at, until)

    def ecc(self, device: int, kind: str, at: float, amount: int = 1) -> None:
        """The GPU's memory has errors."""
        where = {"kind": kind, "lifetime": "volatile", "location": "dram"}
        labels = {"vendor": "nvidia", **self.gpu(device), **where}
        self.count("accelerator_ecc_errors_total", at, amount, **labels)

    def nvlinks_down(self, device: int, links: int, at: float, until: float = FOREVER) -> None:
        """So many NVLinks of the GPU are inactive."""
        for link in range(links):
            self.change("nvidia_nvlink_up", 0, at, until, **self.gpu(device), link=str(link))
        up = self.hardware.nvlinks - links
        self.change("nvidia_nvlinks_up", up, at, until, **self.gpu(device))

    def driver_away(self, at: float, until: float, mismatch: bool = False) -> None:
        """The NVIDIA driver is unloaded, or its library has another version: no GPU is read."""
        for one in list(self.matching("")):
            if one.name.startswith(_OF_THE_DRIVER) and not one.name.startswith(_WITHOUT_DRIVER):
                one.replace(None, at, until)
        self.change("nvidia_devices", None, at, until, source="nvml")
        if mismatch:
            self.change("nvidia_version_mismatch", 1, at, until)
        else:
            self.change("nvidia_devices", 0, at, until, source="driver")
        self.change("probe_success", 0, at, until, probe="nvidia", target="nvidia")

    def driver_version(self, version: str, at: float) -> None:
        """The driver has another version from then on."""
        for one in list(self.matching("nodevitals_nvidia_driver_info")):
            one.replace(None, at, FOREVER)
        versions = dict.fromkeys(("driver_version", "library_version"), version)
        self.change("nvidia_driver_info", 1, at, **versions, cuda_version="12.4")

    # Network.

    def port_down(self, port: int, at: float, until: float = FOREVER) -> None:
        """A port has no link, and neither has its interface where it has one."""
        labels = self.port(port)
        self.change("rdma_port_up", 0, at, until, **labels)
        self.change("rdma_port_rate_bytes_per_second", None, at, until, **labels)
        self.count("rdma_port_flaps_total", at, **labels)
        if self.hardware.bond:
            name = f"ens{port}"
            self.change("network_up", 0, at, until, interface=name, kind="physical")
            self.change("network_bond_member_up", 0, at, until, interface="bond0", member=name)
            if self.hardware.ports == 1:
                self.change("network_up", 0, at, until, interface="bond0", kind="bond")

    # Storage.

    def mount_hung(self, mountpoint: str, at: float, until: float = FOREVER) -> None:
        """No call into the mount returns until `until`; processes that use it hang. The agent can
        end its own at each deadline, as on NFS.
        """
        target = {"probe": "mounts", "target": mountpoint}
        self.change("probe_success", 0, at + TIMEOUT_SECONDS, until, **target)
        unanswered = self.series("nodevitals_probe_unanswered_seconds", **target)
        second = SECOND_TIMEOUT_SECONDS
        unanswered.replace(second, at + second, until, slope=1)
        gone = at + STALE_AFTER_SECONDS
        if gone < until:
            for one in self.matching("nodevitals_mount_", mountpoint=mountpoint):
                one.replace(None, gone, until)
        end = until if until < FOREVER else at + 3600
        for moment in range(int(at + HUNG_TASK_SECONDS), int(end), int(HUNG_TASK_SECONDS)):
            self.count("kernel_events_total", moment, event="hung_task")

    def mount_slow(self, mountpoint: str, seconds: float, at: float, until: float) -> None:
        """Writing the probe's file takes so long."""
        for one in self.matching("nodevitals_mount_write_seconds", mountpoint=mountpoint):
            one.replace(seconds, at, until)

    def mount_free(self, mountpoint: str, share: float, at: float, until: float = FOREVER) -> None:
        """So much of the file system is free."""
        for one in self.matching("nodevitals_mount_free_bytes", mountpoint=mountpoint):
            one.replace(share * 1e15, at, until)
