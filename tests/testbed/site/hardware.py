"""Families of a node's chassis, disks, modules, services, scripts and profile: the pages lack them.

All of it is healthy; `hardware_faults` breaks some.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.site.series import Series, Value, grows, waves

GIB = 2.0**30
PORTS = tuple(f"mlx5_{number}" for number in range(4))
UNITS = ("containerd.service", "kubelet.service", "nvidia-fabricmanager.service", "sshd.service")
SCRIPTS = ("check_license", "check_scratch", "check_secure_boot")
# What a profile wants of a node, and what is found.
FACTS = {
    "accelerator.count": "8",
    "accelerator.driver": "580.95.05",
    "cpu.governor": "performance",
    "kernel.release": "6.8.0-71-generic",
    "nvidia.persistence": "on",
    "rdma.firmware": "28.43.1014",
}
# Labels and the value, by the name of the family without its prefix.
Sample = tuple[str, dict[str, str], Value]


def hardware(own: dict[str, str], start: float) -> list[Series]:
    """Return the series of a healthy node; `own` are the labels of all of its series."""
    parts = (_chassis, _power_and_fans, _disks, _arrays, _modules, _services, _scripts, _profile)
    return [
        Series(f"nodevitals_{name}", own | labels, value)
        for part in parts
        for name, labels, value in part(start)
    ]


def _chassis(start: float) -> Iterator[Sample]:
    yield "bmc_up", {}, 1.0
    yield "bmc_info", {"firmware": "1.74", "manufacturer": "10876"}, 1.0
    yield "bmc_power_watts", {}, waves(6400, 0.05, 0.1)
    yield "bmc_inlet_temperature_celsius", {}, waves(24, 0.02, 0.2)
    yield "bmc_battery_state", {"sensor": "CMOS Battery", "state": "ok"}, 1.0
    for sensor, celsius in (("Inlet Temp", 24), ("CPU1 Temp", 58), ("CPU2 Temp", 61)):
        yield "bmc_temperature_celsius", {"sensor": sensor}, waves(celsius, 0.04, celsius / 90)
        yield "bmc_temperature_state", {"sensor": sensor, "state": "ok"}, 1.0
    yield "bmc_event_log_entries", {}, 214.0
    yield "bmc_event_log_used_ratio", {}, 0.21
    yield "bmc_event_log_overflow", {}, 0.0
    for kind in ("power_supply", "bus", "fan"):
        yield "bmc_events_total", {"type": kind, "severity": "critical"}, 0.0


def _power_and_fans(start: float) -> Iterator[Sample]:
    for number in range(1, 5):
        yield "bmc_power_supply_state", {"sensor": f"PS{number} Status", "state": "ok"}, 1.0
    for number in range(1, 7):
        fan = {"sensor": f"Fan{number}"}
        yield "bmc_fan_state", fan | {"state": "ok"}, 1.0
        yield "bmc_fan_speed_rpm", fan, waves(8600 + 60 * number, 0.02, number / 6)
        yield "bmc_fan_duty_ratio", fan, 0.45
    for sensor, kind in (("PS Redundancy", "power"), ("Fan Redundancy", "fan")):
        yield "bmc_redundancy", {"sensor": sensor, "kind": kind, "state": "full"}, 1.0


def _disks(start: float) -> Iterator[Sample]:
    yield "disks_present", {}, 4.0
    yield "disks_expected", {}, 4.0
    boot = {"device": "sda"}
    named = {"model": "EXAMPLE SATA 480G", "serial": "SDA7", "firmware": "X2", "transport": "ata"}
    yield "disk_info", boot | named, 1.0
    yield "disk_smart_passed", boot, 1.0
    yield "disk_sectors", boot | {"kind": "reallocated"}, 2.0
    yield "disk_temperature_celsius", boot, waves(33, 0.04, 0.4)
    for number, (used, years) in enumerate(((0.11, 2), (0.12, 2), (0.31, 1))):
        disk, block = {"device": f"nvme{number}"}, {"device": f"nvme{number}n1"}
        named = {"model": "EXAMPLE 3.84TB", "serial": f"S{number}EX", "firmware": "GDC56"}
        yield "disk_info", disk | named | {"transport": "pcie"}, 1.0
        yield "disk_used_ratio", disk, used
        yield "disk_power_on_seconds_total", disk, grows(1.0, start - years * 365 * 86400)
        yield "disk_spare_ratio", disk, 1.0
        yield "disk_spare_threshold_ratio", disk, 0.1
        yield "disk_media_errors_total", disk, 0.0
        yield "disk_temperature_celsius", disk, waves(39 + 2 * number, 0.04, number / 3)
        yield "disk_temperature_limit_celsius", disk, 77.0
        for warning in ("spare_low", "temperature", "read_only"):
            yield "disk_critical_warning", disk | {"warning": warning}, 0.0
        yield "disk_size_bytes", block, 3.84e12
        yield "disk_requests_in_flight", block, 1.0
        yield "disk_busy_seconds_total", block, grows(0.1 + 0.1 * number, start)
        for operation, rate in (("read", 900.0), ("write", 400.0)):
            done = block | {"operation": operation}
            yield "disk_operations_total", done, grows(rate, start)
            yield "disk_operation_seconds_total", done, grows(rate * 2e-4, start)
            yield "disk_transferred_bytes_total", done, grows(rate * 1e5, start)


def _arrays(start: float) -> Iterator[Sample]:
    array = {"device": "md0"}
    yield "disk_array_info", array | {"level": "raid1"}, 1.0
    yield "disk_array_members", array, 2.0
    yield "disk_array_degraded", array, 0.0
    yield "disk_array_state", array | {"state": "active"}, 1.0
    yield "disk_array_sync_action", array | {"action": "idle"}, 1.0
    for member in ("nvme0n1p3", "nvme1n1p3"):
        yield "disk_array_member_state", array | {"member": member, "state": "in_sync"}, 1.0
    for device, name, kind in (("dm-0", "vg0-scratch", "lvm"), ("dm-1", "mpatha", "multipath")):
        mapping = {"device": device}
        yield "disk_mapping_info", mapping | {"name": name, "kind": kind}, 1.0
        yield "disk_mapping_suspended", mapping, 0.0
    yield "disk_multipath_paths", mapping, 4.0
    yield "disk_multipath_paths_running", mapping, 4.0


def _modules(start: float) -> Iterator[Sample]:
    """As optical modules of RDMA ports, which have been up since the agent started."""
    for number, device in enumerate(PORTS):
        named = {"device": device, "port": "1"}
        link = named | {"link_layer": "InfiniBand"}
        yield "rdma_port_down_seconds_total", link, 0.0
        yield "rdma_port_longest_down_seconds", link, 0.0
        port = named | {"interface": ""}
        module = {"kind": "OSFP", "manufacturer": "Example Optics", "part_number": "EO-NDR-SR4"}
        yield (
            "transceiver_info",
            port | module | {"serial": f"EO{number}7", "medium": "optical"},
            1.0,
        )
        yield "transceiver_readable", port, 1.0
        yield "transceiver_link_up", port, 1.0
        yield "transceiver_receive_low_watts", port, 1.5e-4
        yield "transceiver_transmit_low_watts", port, 2e-4
        yield "transceiver_temperature_celsius", port, waves(48 + number, 0.03, number / 4)
        yield "transceiver_temperature_high_celsius", port, 75.0
        yield "transceiver_voltage_volts", port, 3.29
        yield "transceiver_corrected_blocks_total", port, grows(30 + 10 * number, start)
        yield "transceiver_uncorrected_blocks_total", port, 0.0
        for lane in ("1", "2", "3", "4"):
            on_lane = port | {"lane": lane}
            light = waves(9e-4, 0.02, number / 4)
            yield "transceiver_receive_watts", on_lane, light
            yield "transceiver_transmit_watts", on_lane, 1.1e-3
            yield "transceiver_bias_amperes", on_lane, 7.1e-3


def _services(start: float) -> Iterator[Sample]:
    yield "services_failed_units", {}, 0.0
    for unit in UNITS:
        named = {"unit": unit}
        for name in ("active", "enabled", "expected"):
            yield f"services_unit_{name}", named, 1.0
        yield "services_unit_restarts_total", named, 0.0
        yield "services_unit_state", named | {"state": "active"}, 1.0
    yield "node_threads", {}, waves(9200, 0.02, 0.4)
    yield "node_threads_maximum", {}, 4194304.0
    yield "node_zombie_processes", {}, 3.0
    for wait in ("nfs", "lustre", "nvidia", "block"):
        yield "node_hung_processes", {"wait": wait}, 0.0
    root = {"mountpoint": "/", "fstype": "ext4", "source": "/dev/md0"}
    yield "node_filesystem_read_only", root, 0.0


def _scripts(start: float) -> Iterator[Sample]:
    for script in SCRIPTS:
        for status in ("ok", "warning", "critical", "unknown"):
            yield "scripts_status", {"script": script, "status": status}, float(status == "ok")
        for reason in ("timeout", "status"):
            yield "scripts_failures_total", {"script": script, "reason": reason}, 0.0


def _profile(start: float) -> Iterator[Sample]:
    yield "profile_info", {"name": "gpu-node"}, 1.0
    for state, number in (("conforming", len(FACTS)), ("differing", 0), ("unknown", 0)):
        yield "profile_checks", {"state": state}, float(number)
    for check, wanted in FACTS.items():
        yield "profile_conforms", {"check": check}, 1.0
        yield "profile_check_info", {"check": check, "wanted": wanted, "found": wanted}, 1.0
