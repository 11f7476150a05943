"""What the agent would expose for each kind of fault in the trace, or why it could not expose any.

The trace names a kind in a few words. Where they leave open what happens on the node, what is
played shows less of it rather than more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from testbed.alerting.faults import FOREVER, STALE_AFTER_SECONDS, Node

# Intervals of the agent's probes: a fault is exposed by the next run.
LOG_SECONDS = 2.0
PROBE_SECONDS = 15.0
NVML_UNKNOWN = "999"
_MODULES = ("nodevitals_accelerator", "nodevitals_nvidia_")
_WITHOUT_NVML = ("nodevitals_nvidia_xid", "nodevitals_nvidia_devices")


class Moment(msgspec.Struct, frozen=True):
    """When a fault begins and ends (seconds); `share` is how much of a probe's interval goes by
    until its next run.
    """

    start: float
    end: float
    share: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start

    @property
    def logged(self) -> float:
        """When the probe of the kernel's log exposes it."""
        return self.start + self.share * LOG_SECONDS

    @property
    def probed(self) -> float:
        """When any other probe exposes it."""
        return self.start + self.share * PROBE_SECONDS


Play = Callable[[Node, Moment], None]


class Kind(msgspec.Struct, frozen=True):
    """`play` makes the fault; None: nothing could show it, and `text` says why. `reboot`: the
    repair ends with a reboot.
    """

    play: Play | None
    text: str
    reboot: bool = True


def double_bit_error(node: Node, moment: Moment) -> None:
    """Xid 48, the counter, and a row that the next reset remaps."""
    node.xid(0, 48, moment.logged)
    node.ecc(0, "uncorrected", moment.probed)
    node.change("nvidia_row_remap_pending", 1, moment.probed, moment.end, **node.gpu(0))


def many_corrected_errors(node: Node, moment: Moment) -> None:
    """A thousand corrected errors in ten minutes."""
    where = {"kind": "corrected", "lifetime": "volatile", "location": "dram"}
    labels = {"vendor": "nvidia", **node.gpu(0), **where}
    for minute in range(10):
        node.count("accelerator_ecc_errors_total", moment.probed + 60 * minute, 100, **labels)


def pcie_link_narrow(node: Node, moment: Moment) -> None:
    """Half of the lanes."""
    node.change("nvidia_pcie_link_width", 8, moment.probed, moment.end, **node.gpu(0))


def gpu_unreadable(node: Node, moment: Moment) -> None:
    """NVML lists the GPU, and answers each query with Unknown Error."""
    start, end = moment.probed, moment.end
    for one in list(node.matching("nodevitals_", uuid=node.gpu(0)["uuid"])):
        if not one.name.startswith(_WITHOUT_NVML):
            one.replace(None, start, end)
    labels = {"vendor": "nvidia", **node.gpu(0), "code": NVML_UNKNOWN}
    node.change("accelerator_error_info", 1, start, end, **labels)
    node.change("accelerators_unreadable", 1, start, end, vendor="nvidia")
    present = node.hardware.gpus - 1
    node.change("accelerators_present", present, start, end, vendor="nvidia")
    node.change("probe_success", 0, start, end, probe="nvidia", target="nvidia")


def driver_hangs(node: Node, moment: Moment) -> None:
    """Each run is ended at its deadline; the last samples end after three intervals."""
    node.change("probe_success", 0, moment.probed, moment.end, probe="nvidia", target="nvidia")
    stale = moment.start + STALE_AFTER_SECONDS
    for one in list(node.matching("nodevitals_")):
        if one.name.startswith(_MODULES) and not one.name.startswith(_WITHOUT_NVML[0]):
            one.replace(None, stale, moment.end)


def xid(node: Node, moment: Moment) -> None:
    """The trace does not name the Xid: 119, the GPU's system processor does not answer."""
    node.xid(0, 119, moment.logged)


def gpu_lost(node: Node, moment: Moment) -> None:
    """Xid 79, then NVML reports it as lost."""
    node.gpu_lost(0, moment.probed, moment.end)


def link_down(node: Node, moment: Moment) -> None:
    """No carrier: the RDMA port and its interface are down."""
    start, end = moment.probed, moment.end
    node.change("rdma_port_interface_up", 0, start, end, **node.port(0), interface="ens0")
    node.change("rdma_port_up", 0, start, end, **node.port(0))
    node.change("rdma_port_rate_bytes_per_second", None, start, end, **node.port(0))
    node.change("rdma_port_gid_usable", 0, start, end, **node.port(0))
    node.count("rdma_port_flaps_total", start, **node.port(0))
    node.change("network_up", 0, start, end, interface="ens0", kind="physical")


def nic_missing(node: Node, moment: Moment) -> None:
    """A known port and its interface are gone; only their absence is exposed."""
    start, end = moment.probed, moment.end
    for one in list(node.matching("nodevitals_rdma_port", **node.port(0))):
        if "expected" not in one.name:
            one.replace(None, start, end)
    node.change("rdma_port_up", 0, start, end, **node.port(0))
    node.change("network_up", 0, start, end, interface="ens0", kind="physical")


def link_slow(node: Node, moment: Moment) -> None:
    """Half of the rate, of the port and of its interface."""
    start, end = moment.probed, moment.end
    node.change("rdma_port_rate_bytes_per_second", 25e9, start, end, **node.port(0))
    labels = {"interface": "ens0", "kind": "physical"}
    node.change("network_speed_bytes_per_second", 12.5e9, start, end, **labels)


def gid_unusable(node: Node, moment: Moment) -> None:
    """The port is up without a routable GID."""
    node.change("rdma_port_gid_usable", 0, moment.probed, moment.end, **node.port(0))


def node_down(node: Node, moment: Moment) -> None:
    """The node is not scraped until it returns."""
    node.down(moment.start, moment.end)
    boot = node.series("nodevitals_node_boot_timestamp_seconds")
    boot.replace(moment.end - 60, moment.start, FOREVER)
    node.restarted(moment.end)


def machine_check(node: Node, moment: Moment) -> None:
    """The kernel logs it and goes on."""
    node.count("kernel_events_total", moment.logged, event="machine_check")


def read_only(node: Node, moment: Moment) -> None:
    """The kernel logs the error that made the file system read-only; writing to it fails."""
    node.count("kernel_events_total", moment.logged, event="filesystem_error")
    for one in list(node.matching("nodevitals_mount_writable", mountpoint="/scratch")):
        one.replace(0, moment.probed, moment.end)


def _unseen(reason: str) -> Kind:
    return Kind(None, reason)


_NO_CAUSE = _unseen("the trace names no cause")
_BMC = _unseen("known to the BMC alone, until GPUs throttle")

KINDS: dict[tuple[str, str], Kind] = {
    ("GPU", "GPU DBE(Double Bit ECC) > Threshold"): Kind(
        double_bit_error, "Xid 48, uncorrected errors, row remap pending"
    ),
    ("GPU", "GPU PCI link width low"): Kind(pcie_link_narrow, "PCIe link width"),
    ("GPU", "GPU device unknow error"): Kind(gpu_unreadable, "NVML answers Unknown Error"),
    ("Parameter Plane Cable", "Link Down"): Kind(
        link_down, "RDMA port and interface down", reboot=False
    ),
    ("GPU", "nvidia-smi Timeout"): Kind(driver_hangs, "probe of the GPUs times out"),
    ("GPU", "GPU xid Error"): Kind(xid, "an Xid, played as 119"),
    ("GPU", "GPU Lost"): Kind(gpu_lost, "Xid 79, NVML answers GPU is lost"),
    ("NIC", "NIC Link Speed low"): Kind(link_slow, "rate of the RDMA port", reboot=False),
    ("NIC", "NIC Lost"): Kind(nic_missing, "a known RDMA port is missing"),
    ("NIC", "Rnic Gid Error"): Kind(gid_unusable, "no usable GID", reboot=False),
    ("System Crash", "Server down"): Kind(node_down, "not scraped", reboot=False),
    ("Operating System", "Kernel Panic"): Kind(node_down, "not scraped", reboot=False),
    ("Motherboard", "Motherboard Failed"): Kind(node_down, "not scraped", reboot=False),
    ("CPU", "Machine Check Exception ( Uncorrectable )"): Kind(
        machine_check, "a message of the kernel"
    ),
    ("File System", "FS Readonly"): Kind(
        read_only, "a message of the kernel; a mount cannot be written to"
    ),
    ("GPU", "GPU SBE(Single Bit ECC) > Threshold"): Kind(many_corrected_errors, "corrected errors"),
    ("Unknown Error", "Unknown Error"): _NO_CAUSE,
    ("Other Failures", "Unknown Error"): _NO_CAUSE,
    ("Stress Test Failure", "Unknown Error"): _unseen(
        "a stress test failed, the trace does not say of what"
    ),
    ("Training Task Troubleshooting", "Suspect Machine Offline"): _unseen(
        "suspected and taken out of service, nothing was found"
    ),
    ("Test", "Temporarily Offline"): _unseen("no fault: taken out of service for a test"),
    ("Fan", "Speed Critical (Sensor)"): _BMC,
    ("Fan", "Redundancy Lost"): _BMC,
    ("Power Supply", "Power Supply Failure detected"): _BMC,
    ("Power Supply", "Redundancy Lost"): _BMC,
    ("Software Tool", "Kubelet Date Absent"): _unseen("data of the kubelet: not the agent's"),
    ("NIC", "NIC PCI link Width low"): _unseen("the agent does not read a NIC's PCIe link"),
    ("GPU", "GPU P2P Bandwidth Low"): _unseen("only a test between GPUs measures it"),
}
"""By class and description."""
