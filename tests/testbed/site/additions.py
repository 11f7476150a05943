"""Families that the agents behind the pages do not expose: other hardware, settings, or tools."""

from __future__ import annotations

import zlib

from testbed.site.hardware import hardware
from testbed.site.names import GPU_NODES, NODES_PER_LEAF, name_of
from testbed.site.series import Series, Value, from_page, waves

_GIB = 2.0**30
_COLLECTIVES = {"all_reduce": 370e9, "all_gather": 340e9}
_LATENCIES = {"minimum": 1.9e-6, "median": 2.1e-6, "mean": 2.2e-6, "p99": 3.4e-6, "maximum": 9e-6}


def additions(number: int, own: dict[str, str], series: list[Series], start: float) -> list[Series]:
    """Return more series of a node; `own` are the labels of all of its series."""
    found = _peers(number, own)
    if number >= GPU_NODES:
        return found
    found.append(Series("nodevitals_node_cpu_utilization_ratio", own, waves(0.4, 0.1, 0.0)))
    bond = own | {"interface": "bond0"}
    found += [
        Series("nodevitals_network_bond_member_up", bond | {"member": member}, 1.0)
        for member in ("eno1", "eno2")
    ]
    found += _probes(own, start) + _fabric(number, own, series) + hardware(own, start)
    for one in series:
        if one.name == "nodevitals_accelerator_up":
            found += _gpu(number, own, one.labels["device"], one.labels["uuid"])
        if one.name == "nodevitals_network_up":
            found += _speeds(own, one.labels)
    # One node has other versions than the rest.
    if number == 9:
        for one in series:
            for label, text in (("driver_version", "570.86.15"), ("version", "0.0.9")):
                if label in one.labels and one.name != "nodevitals_rdma_device_info":
                    one.labels[label] = text
    return found


def _probes(own: dict[str, str], start: float) -> list[Series]:
    targets = [("mounts", "/mnt/data"), ("mounts", "/mnt/scratch"), ("fabric", "fabric")]
    values = {"success": 1.0, "stuck_seconds": 0.0, "unanswered_seconds": 0.0}
    values |= {"interval_seconds": 15.0, "duration_seconds": 0.01}
    values |= {"last_success_timestamp_seconds": 1.0}
    return [
        from_page(
            f"nodevitals_probe_{family}", own | {"probe": probe, "target": target}, value, start, 0
        )
        for probe, target in targets
        for family, value in values.items()
    ]


def _fabric(number: int, own: dict[str, str], series: list[Series]) -> list[Series]:
    found = []
    for one in series:
        if one.name != "nodevitals_fabric_bandwidth_bytes_per_second":
            continue
        latency = one.labels | {"operation": "write_lat", "message_bytes": "2"}
        phase = zlib.crc32(latency["peer"].encode()) / 2**32
        found += [
            Series(
                "nodevitals_fabric_latency_seconds",
                latency | {"statistic": statistic},
                waves(seconds, 0.03, phase),
            )
            for statistic, seconds in _LATENCIES.items()
        ]
    expected = {"tool": "perftest", "operation": "write_bw", "device": "mlx5_0"}
    found.append(
        Series(
            "nodevitals_fabric_bandwidth_expected_bytes_per_second",
            own | expected | {"message_bytes": "65536"},
            45e9,
        )
    )
    if number:
        return found
    for operation, bandwidth in _COLLECTIVES.items():
        labels = own | {"tool": "nccl", "operation": operation}
        sizes = labels | {"ranks": "32", "message_bytes": "1073741824"}
        found += [
            Series("nodevitals_fabric_collective_success", labels, 1.0),
            Series(
                "nodevitals_fabric_bus_bandwidth_bytes_per_second",
                sizes,
                waves(bandwidth, 0.02, 0.0),
            ),
        ]
    return found


def _gpu(number: int, own: dict[str, str], device: str, uuid: str) -> list[Series]:
    gpu = own | {"device": device, "uuid": uuid}
    leaf = number // NODES_PER_LEAF
    clique = {"cluster_uuid": f"c0ffee00-0000-4000-8000-00000000000{leaf}", "clique": "1"}
    found = [
        Series("nodevitals_nvidia_fabric_info", gpu | clique, 1.0),
        Series("nodevitals_nvidia_fabric_healthy", gpu, 1.0),
        Series("nodevitals_nvidia_memory_clock_hertz", gpu, 2.619e9),
        Series("nodevitals_nvidia_memory_utilization_ratio", gpu, waves(0.4, 0.1, 0.5)),
        Series("nodevitals_nvidia_performance_state", gpu, 0.0),
    ]
    found += [
        Series(
            "nodevitals_nvidia_activity_ratio",
            gpu | {"unit": unit},
            waves(share if number < 7 else 0.01, 0.1, int(device) / 8),
        )
        for unit, share in (("graphics", 0.9), ("sm", 0.8), ("tensor", 0.45), ("dram", 0.4))
    ]
    # One node's first GPU is divided.
    if number == 8 and device == "0":
        for instance in ("1", "2", "3"):
            mig = gpu | {"gpu_instance": instance}
            profile = {"compute_instance": "0", "profile": "1g.10gb"}
            profile["mig_uuid"] = f"MIG-{uuid[4:]}-{instance}"
            values: dict[str, tuple[dict[str, str], Value]] = {
                "info": (mig | profile, 1.0),
                "memory_total_bytes": (mig, 10 * _GIB),
                "memory_used_bytes": (mig, waves(4 * _GIB, 0.1, int(instance) / 4)),
                "processes": (mig | {"compute_instance": "0"}, 1.0),
                "ecc_errors_total": (mig, 0.0),
            }
            found += [
                Series(f"nodevitals_nvidia_mig_{family}", labels, value)
                for family, (labels, value) in values.items()
            ]
    return found


def _speeds(own: dict[str, str], labels: dict[str, str]) -> list[Series]:
    interface = own | {name: labels[name] for name in ("interface", "kind")}
    return [
        Series(f"nodevitals_network_{family}", interface, value)
        for family, value in (
            ("speed_bytes_per_second", 25e9),
            ("expected_speed_bytes_per_second", 25e9),
            ("full_duplex", 1.0),
        )
    ]


def _peers(number: int, own: dict[str, str]) -> list[Series]:
    """Return the connections to the next nodes of the ring."""
    found = [
        Series("nodevitals_peers_listed", own, 3.0),
        Series("nodevitals_peer_round_seconds", own, 60.0),
    ]
    for step in (1, 2, 6):
        peer = own | {"peer": name_of((number + step) % 16), "port": "22", "protocol": "tcp"}
        found += [
            Series("nodevitals_peer_reachable", peer, 1.0),
            Series("nodevitals_peer_round_trip_seconds", peer, waves(8e-5, 0.2, step / 6)),
        ]
    return found
