"""What is broken in the fleet: each fault changes series of one node from a time on."""

from __future__ import annotations

from testbed.site.fleet import SiteNode
from testbed.site.series import Series, Value, grows, waves

MINUTE = 60.0


def break_some(nodes: list[SiteNode], now: float) -> None:
    """Break devices, ports, mounts, agents and nodes, in place."""
    at = {node.name: node for node in nodes}
    _accelerators(at, now)
    _ports_and_mounts(at, now)
    _fabric(at, nodes, now)
    _npus(at["npu-01"], now)
    _whole_nodes(at, now)
    _errors(at, now)


def change(
    node: SiteNode, since: float, value: Value | None, family: str, **labels: str
) -> list[Series]:
    """Give the series of a family another value from a time on; None ends them."""
    found = node.find(family, **labels)
    assert found, f"{node.name} has no {family} {labels}"
    for one in found:
        before = one.value

        def at(moment: float, before: Value = before) -> float | None:
            if moment < since:
                return before(moment) if callable(before) else before
            return value(moment) if callable(value) else value

        one.value = at
    return found


def add(node: SiteNode, since: float, value: Value, family: str, **labels: str) -> None:
    """Add a series that begins at a time."""
    own = node.series[0].labels

    def at(moment: float) -> float | None:
        if moment < since:
            return None
        return value(moment) if callable(value) else value

    node.series.append(Series(family, own | labels, at))


def _uuid(node: SiteNode, device: str) -> dict[str, str]:
    labels = node.find("nodevitals_accelerator_up", device=device)[0].labels
    return {"device": device, "uuid": labels["uuid"]}


def _xid(node: SiteNode, device: str, since: float, xid: str, action: str) -> None:
    labels = _uuid(node, device) | {"xid": xid, "action": action}
    node.series[:] = [
        one
        for one in node.series
        if not (
            one.name == "nodevitals_nvidia_xid_errors_total"
            and labels.items() <= one.labels.items()
        )
    ]
    own = node.series[0].labels
    node.series.append(
        Series("nodevitals_nvidia_xid_errors_total", own | labels, lambda now: float(now >= since))
    )
    add(node, since, since, "nodevitals_nvidia_xid_last_timestamp_seconds", **labels)


def _accelerators(at: dict[str, SiteNode], now: float) -> None:
    # Long enough for graphs with a point each ten minutes of values recorded each five.
    node, since = at["gpu-01"], now - 25 * MINUTE
    lost = _uuid(node, "3")["uuid"]
    for one in list(node.series):
        if one.labels.get("uuid") == lost:
            value = 0.0 if one.name == "nodevitals_accelerator_up" else None
            change(node, since, value, one.name, **one.labels)
    change(node, since, 7.0, "nodevitals_accelerators_present")
    change(node, since, 7.0, "nodevitals_nvidia_devices")
    _xid(node, "3", since, "79", "reboot_node")

    node, since = at["gpu-02"], now - 25 * MINUTE
    _xid(node, "1", since, "31", "restart_app")
    grown = grows(1 / 600, since)
    change(
        node, since, grown, "nodevitals_accelerator_ecc_errors_total",
        device="5", kind="corrected", lifetime="volatile",
    )  # fmt: skip
    since = now - 8 * MINUTE
    for lifetime in ("volatile", "aggregate"):
        for one in node.find(
            "nodevitals_accelerator_ecc_errors_total",
            device="5", kind="uncorrected", lifetime=lifetime,
        )[:1]:  # fmt: skip
            change(node, since, 2.0, one.name, **one.labels)
    change(node, since, 1.0, "nodevitals_nvidia_row_remap_pending", device="5")

    node, since = at["gpu-04"], now - 30 * MINUTE
    change(node, since, 0.0, "nodevitals_nvidia_nvlink_up", device="2", link="5")
    links = node.find("nodevitals_nvidia_nvlinks_up", device="2")[0].at(0.0)
    change(node, since, (links or 1.0) - 1, "nodevitals_nvidia_nvlinks_up", device="2")

    node, since = at["gpu-05"], now - 59 * MINUTE
    change(node, since, 1.0, "nodevitals_nvidia_slowdown_active", device="6", reason="hw_thermal")
    change(
        node, since, waves(91, 0.01, 0.2), "nodevitals_accelerator_temperature_celsius", device="6"
    )


def _ports_and_mounts(at: dict[str, SiteNode], now: float) -> None:
    node, since = at["gpu-06"], now - 20 * MINUTE
    for family, value in (("up", 0.0), ("state_id", 1.0), ("physical_state_id", 3.0)):
        change(node, since, value, f"nodevitals_rdma_port_{family}", device="mlx5_1")
    change(node, since, 3.0, "nodevitals_rdma_port_flaps_total", device="mlx5_1")
    node, since = at["gpu-07"], now - 40 * MINUTE
    slow = "nodevitals_rdma_port_rate_bytes_per_second"
    change(node, since, 12.5e9, slow, device="mlx5_2")

    data = {"mountpoint": "/mnt/data"}
    hung = at["gpu-08"]
    hung_since = now - 7 * MINUTE
    target = {"probe": "mounts", "target": "/mnt/data"}
    for family in ("stuck", "unanswered"):
        change(
            hung,
            hung_since,
            lambda moment: moment - hung_since,
            f"nodevitals_probe_{family}_seconds",
            **target,
        )
    change(hung, hung_since, 0.0, "nodevitals_probe_success", **target)
    for one in list(hung.series):
        if one.name.startswith("nodevitals_mount_") and data.items() <= one.labels.items():
            change(hung, hung_since, None, one.name, **one.labels)
    scratch = {"mountpoint": "/mnt/scratch"}
    change(at["gpu-09"], now - 8 * MINUTE, 0.0, "nodevitals_mount_present", **scratch)
    change(at["gpu-10"], now - 38 * MINUTE, 0.0, "nodevitals_mount_writable", **scratch)
    change(at["gpu-11"], now - 7 * MINUTE, 0.0, "nodevitals_mount_readable", **data)
    change(
        at["gpu-10"],
        now - 15 * MINUTE,
        1.0,
        "nodevitals_mount_read_only",
        mountpoint="/mnt/scratch",
    )
    for family in ("read", "write"):
        slower = waves(2.4, 0.2, 0.1)
        change(
            at["gpu-11"], now - 50 * MINUTE, slower, f"nodevitals_mount_{family}_seconds", **data
        )
    change(at["gpu-11"], now - 50 * MINUTE, 0.0, "nodevitals_node_clock_synchronized")


def _fabric(at: dict[str, SiteNode], nodes: list[SiteNode], now: float) -> None:
    family = "nodevitals_fabric_bandwidth_bytes_per_second"
    for node in nodes:
        for one in node.find(family):
            if "gpu-03" in (one.labels["source"], one.labels["peer"]):
                change(node, now - 45 * MINUTE, waves(21e9, 0.02, 0.4), family, **one.labels)
    for name, reason in (("gpu-00", "accelerator_in_use"), ("gpu-02", "link_busy")):
        change(
            at[name], 0.0, lambda moment: float((moment - now + 7200) // 600),
            "nodevitals_fabric_skipped_total", reason=reason,
        )  # fmt: skip
    node, since = at["gpu-08"], now - 35 * MINUTE
    failed = {"outcome": "failed", "reason": "timeout"}
    change(node, since, 2.0, "nodevitals_fabric_runs_total", **failed)
    pair = node.find(family, peer="gpu-09")[0].labels
    change(node, since, None, family, peer="gpu-09")
    labels = {name: pair[name] for name in ("tool", "operation", "source", "peer", "device")}
    labels |= {"message_bytes": "65536", "reason": "timeout"}
    add(node, since, 1.0, "nodevitals_fabric_failure", **labels)
    collective = {"tool": "nccl", "operation": "all_gather"}
    change(
        at["gpu-00"], now - 15 * MINUTE, 0.0, "nodevitals_fabric_collective_success", **collective
    )
    change(
        at["gpu-00"], now - 15 * MINUTE, None,
        "nodevitals_fabric_bus_bandwidth_bytes_per_second", operation="all_gather",
    )  # fmt: skip


def _npus(node: SiteNode, now: float) -> None:
    since = now - 10 * MINUTE
    change(node, since, 0.0, "nodevitals_ascend_link_up", device="6")
    change(node, since, 0.0, "nodevitals_accelerator_healthy", device="2")
    change(node, since, 3.0, "nodevitals_ascend_health_level", device="2")
    code = {"code": "80E01801", "level": "restart_business", "action": "reset_device"}
    add(node, since, 1.0, "nodevitals_ascend_fault_code", **_uuid(node, "2"), **code)


def _whole_nodes(at: dict[str, SiteNode], now: float) -> None:
    for name, minutes in (("npu-03", 16), ("npu-02", 22)):
        node, since = at[name], now - minutes * MINUTE
        change(node, since, 0.0, "up")
        for one in list(node.series):
            if one.name.startswith(("nodevitals_", "process_")):
                change(node, since, None, one.name, **one.labels)
    node, since = at["gpu-10"], now - 70 * MINUTE
    change(node, since, 1.0, "nodevitals_node_maintenance")
    add(node, since, now + 7200, "nodevitals_node_maintenance_end_timestamp_seconds")
    add(node, since, 1.0, "nodevitals_node_maintenance_info", reason="new power supplies")
    since = now - 16 * MINUTE
    for node in at.values():
        for one in (
            node.find("nodevitals_peer_reachable", peer="npu-03") if node.name != "npu-02" else ()
        ):
            change(node, since, 0.0, one.name, **one.labels)
            labels = {name: one.labels[name] for name in ("peer", "port", "protocol")}
            add(node, since, 1.0, "nodevitals_peer_failure", reason="timeout", **labels)
    node = at["npu-00"]
    failed = {"probe": "node", "target": "node"}
    change(node, now - 28 * MINUTE, 0.0, "nodevitals_probe_success", **failed)
    last = now - 28 * MINUTE
    change(node, last, last, "nodevitals_probe_last_success_timestamp_seconds", **failed)


def _errors(at: dict[str, SiteNode], now: float) -> None:
    """Count errors that a link or a device survives, ten in a minute."""
    grown = grows(1 / 6, now - 40 * MINUTE)
    for name, family, labels in (
        ("gpu-02", "nodevitals_nvidia_pcie_replays_total", {"device": "5"}),
        ("gpu-04", "nodevitals_nvidia_nvlink_errors_total", {"device": "2", "kind": "replay"}),
        ("gpu-07", "nodevitals_rdma_port_errors_total", {"counter": "symbol_error"}),
        ("gpu-08", "nodevitals_kernel_events_total", {"event": "nfs_timeout"}),
        ("gpu-11", "nodevitals_node_memory_errors_total", {"kind": "corrected"}),
        ("npu-01", "nodevitals_ascend_network_errors_total", {"counter": "roce_rx_err_pkt_num"}),
    ):
        first = at[name].find(family, **labels)[0]
        change(at[name], now - 40 * MINUTE, grown, family, **first.labels)
