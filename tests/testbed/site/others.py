"""What Kubernetes, Slurm and other exporters say of the fleet: pods, their containers, jobs without
pods, and Alertmanager.

Names and labels are those of kube-state-metrics 2, cAdvisor, dcgm-exporter 3, npu-exporter 6,
node_exporter and Alertmanager 0.25; an exporter that runs as a pod has its own labels `pod` and
`namespace`, so that those of the measured pod are `exported_…`.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.site.fleet import CLUSTER, SiteNode
from testbed.site.names import name_of
from testbed.site.series import Series, Value, ValueAt, grows, waves

_GIB = 2**30
_HOUR = 3600.0
_RESOURCES = {"nvidia": "nvidia_com_gpu", "ascend": "huawei_com_Ascend910"}


class Pod(NamedTuple):
    """A pod on accelerators of one node. `use` is how much they work."""

    node: int
    devices: range
    namespace: str
    name: str
    job: str
    owner: str
    queue: str
    use: float


_EIGHT = range(8)
PODS = (
    *(
        Pod(node, _EIGHT, "llm", f"pretrain-worker-{node}", "pretrain", "alice", "research", 0.85)
        for node in range(4)
    ),
    *(
        Pod(node, _EIGHT, "vision", f"finetune-{node - 4}", "finetune", "bob", "product", 0.75)
        for node in (4, 5)
    ),
    *(
        Pod(6, range(gpu, gpu + 1), "serving", f"chat-{gpu}", "chat", "carol", "online", 0.4)
        for gpu in range(4)
    ),
    Pod(7, _EIGHT, "notebooks", "dave-notebook-0", "dave-notebook", "dave", "research", 0.0),
    *(
        Pod(node, _EIGHT, "speech", f"asr-{node - 12}", "asr", "erin", "product", 0.8)
        for node in (12, 13)
    ),
)

# Nodes without a kubelet, one with a user's processes besides: what the probe `jobs` exposes.
JOBS_OF_SLURM = (
    Pod(8, _EIGHT, "slurm", "4711", "finetune-13b", "frank", "gpu", 0.0),
    Pod(9, range(4), "slurm", "4711", "finetune-13b", "frank", "gpu", 0.0),
    Pod(9, range(4, 5), "user", "grace", "", "grace", "", 0.0),
)
SLURM_NODES = {job.node for job in JOBS_OF_SLURM}


def monitoring(nodes: list[SiteNode], now: float) -> list[Series]:
    """Return the series of Alertmanager, and of node_exporter on the nodes that live."""
    found = _alertmanager(now)
    for node in nodes:
        if node.name != "npu-03" or node.series[0].at(now):
            host = {"job": "node-exporter", "instance": f"{node.name}:9100"}
            found += [_at("up", 1.0, **host), _at("node_load1", 3.0, **host)]
    return found


def cluster(nodes: list[SiteNode], now: float) -> list[Series]:
    """Return the series of Kubernetes, of its pods and of their devices."""
    found = [one for pod in PODS for one in _pod(pod, nodes[pod.node], now)]
    found += [one for job in JOBS_OF_SLURM for one in _accelerators(job, nodes[job.node], "")]
    for node in nodes:
        if node.number not in SLURM_NODES:
            found += [*_kubernetes_node(node, now), *_probe_kubernetes(node)]
    found += [one for node in nodes if node.vendor == "nvidia" for one in _dcgm(node)]
    return found + _jobs(now)


def _at(name: str, value: Value, **labels: str) -> Series:
    return Series(name, {"cluster": CLUSTER, **labels}, value)


def _users(node: SiteNode) -> dict[str, Pod]:
    """Return the pod of each device that has one."""
    return {str(device): pod for pod in PODS if pod.node == node.number for device in pod.devices}


def _uuids(node: SiteNode) -> dict[str, str]:
    return {
        one.labels["device"]: one.labels["uuid"] for one in node.find("nodevitals_accelerator_up")
    }


def _work(pod: Pod, node: SiteNode, container: str) -> dict[str, str]:
    """Return the labels of a unit of work as the agent has them."""
    labels = {"job": "nodevitals", "instance": node.name, "namespace": pod.namespace}
    labels |= {"pod": pod.name, "container": container, "job_name": pod.job}
    return labels | {"owner": pod.owner, "queue": pod.queue}


def _accelerators(pod: Pod, node: SiteNode, container: str) -> list[Series]:
    uuids, work = _uuids(node), _work(pod, node, container)
    return [
        _at("nodevitals_pod_accelerator_info", 1.0, **work, vendor=node.vendor, device=str(device),
            uuid=uuids[str(device)])
        for device in pod.devices
    ]  # fmt: skip


def _probe_kubernetes(node: SiteNode) -> list[Series]:
    """Return what the agent exposes of its node: gpu-10 is cordoned."""
    own = {"job": "nodevitals", "instance": node.name}
    resource = {"resource": _RESOURCES[node.vendor].replace("_com_", ".com/")}
    conditions = {"Ready": 1.0, "MemoryPressure": 0.0, "DiskPressure": 0.0, "PIDPressure": 0.0}
    return [
        _at("nodevitals_node_schedulable", float(node.name != "gpu-10"), **own),
        *(
            _at("nodevitals_node_condition", holds, **own, condition=condition)
            for condition, holds in conditions.items()
        ),
        _at("nodevitals_kubernetes_devices_allocatable", 8.0, **own, **resource),
        _at("nodevitals_kubernetes_devices_allocated", float(len(_users(node))), **own, **resource),
    ]


def _pod(pod: Pod, node: SiteNode, now: float) -> list[Series]:
    uuids = _uuids(node)
    found = _accelerators(pod, node, "main")
    kills = grows(1 / 300, now - _HOUR) if pod.name == "asr-0" else 0.0
    found.append(_at("nodevitals_pod_oom_kills_total", kills, **_work(pod, node, "main")))
    if node.vendor == "ascend":
        found += _npu_exporter(pod, node, uuids)
    return found + _kube_state(pod, node, now) + _cadvisor(pod, node, now)


def _kube_state(pod: Pod, node: SiteNode, now: float) -> list[Series]:
    state = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
    who = {**state, "namespace": pod.namespace, "pod": pod.name, "uid": f"uid-{pod.name}"}
    resource = {"resource": _RESOURCES[node.vendor], "unit": "integer", "container": "main"}
    count = float(len(pod.devices))
    return [
        _at("kube_pod_info", 1.0, **who, node=node.name, host_ip=f"10.0.0.{node.number + 1}",
            created_by_kind="Job", created_by_name=pod.job),
        _at("kube_pod_labels", 1.0, **who, label_owner=pod.owner, label_queue=pod.queue,
            label_job_name=pod.job),
        _at("kube_pod_owner", 1.0, **who, owner_kind="Job", owner_name=pod.job,
            owner_is_controller="true"),
        _at("kube_pod_start_time", now - 10 * _HOUR, **who),
        _at("kube_pod_status_phase", 1.0, **who, phase="Running"),
        _at("kube_pod_status_phase", 0.0, **who, phase="Failed"),
        _at("kube_pod_container_resource_requests", count, **who, **resource, node=node.name),
        _at("kube_pod_container_resource_limits", count, **who, **resource, node=node.name),
        _at("kube_pod_container_resource_limits", 900.0 * _GIB, **who, container="main",
            resource="memory", unit="byte", node=node.name),
        _at("kube_pod_container_resource_limits", 96.0, **who, container="main",
            resource="cpu", unit="core", node=node.name),
        _at("kube_pod_container_status_restarts_total", 2.0 * (pod.node == 5), **who,
            container="main"),
    ]  # fmt: skip


def _cadvisor(pod: Pod, node: SiteNode, now: float) -> list[Series]:
    kubelet = {"job": "kubelet", "metrics_path": "/metrics/cadvisor", "node": node.name}
    kubelet |= {"instance": f"{node.name}:10250", "namespace": pod.namespace, "pod": pod.name}
    main = {**kubelet, "container": "main", "id": f"/kubepods/{pod.name}", "image": "trainer:1"}
    start, use = now - 10 * _HOUR, 0.1 + pod.use
    return [
        _at("container_cpu_usage_seconds_total", grows(60 * use, start), **main, cpu="total"),
        _at("container_cpu_cfs_periods_total", grows(10, start), **main),
        _at("container_cpu_cfs_throttled_periods_total", grows(0.3, start), **main),
        _at("container_memory_working_set_bytes", waves(400 * use * _GIB, 0.03, 0.3), **main),
        _at("container_spec_memory_limit_bytes", 900.0 * _GIB, **main),
        *(
            _at(f"container_network_{way}_bytes_total", grows(2e8 * use, start), **kubelet,
                interface="eth0")
            for way in ("receive", "transmit")
        ),
        *(
            _at(f"container_fs_{way}_bytes_total", grows(5e7 * use, start), **main,
                device="/dev/nvme0n1")
            for way in ("reads", "writes")
        ),
    ]  # fmt: skip


def _kubernetes_node(node: SiteNode, now: float) -> list[Series]:
    state = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080", "node": node.name}
    resource = {"resource": _RESOURCES[node.vendor], "unit": "integer"}
    ready = {"condition": "Ready"}
    # gpu-10 is in planned work; npu-03 is down.
    alive = float(node.name != "npu-03" or bool(node.series[0].at(now)))
    return [
        _at("kube_node_info", 1.0, **state, kubelet_version="v1.31.4"),
        _at("kube_node_spec_unschedulable", float(node.name == "gpu-10"), **state),
        _at("kube_node_status_condition", alive, **state, **ready, status="true"),
        _at("kube_node_status_condition", 0.0, **state, **ready, status="false"),
        _at("kube_node_status_condition", 1 - alive, **state, **ready, status="unknown"),
        _at("kube_node_status_allocatable", 8.0, **state, **resource),
        _at("kube_node_status_capacity", 8.0, **state, **resource),
    ]


def _dcgm(node: SiteNode) -> list[Series]:
    users, found = _users(node), []
    for device, uuid in _uuids(node).items():
        pod = users.get(device)
        use = pod.use if pod else 0.0
        labels = {"job": "dcgm-exporter", "instance": f"{node.name}:9400", "Hostname": node.name}
        labels |= {"gpu": device, "UUID": uuid, "device": f"nvidia{device}"}
        labels |= {"modelName": "NVIDIA H100 80GB HBM3", "namespace": "gpu", "pod": "dcgm-x"}
        if pod:
            labels |= {"exported_namespace": pod.namespace, "exported_pod": pod.name}
            labels |= {"exported_container": "main"}
        phase = int(device) / 8
        values: dict[str, Value] = {
            "DCGM_FI_DEV_GPU_TEMP": waves(40 + 25 * use, 0.04, phase),
            "DCGM_FI_DEV_GPU_UTIL": waves(100 * use, 0.1, phase),
            "DCGM_FI_DEV_FB_USED": waves(2000 + 60000 * use, 0.01, phase),
            "DCGM_FI_DEV_FB_FREE": waves(79000 - 60000 * use, 0.01, phase),
            "DCGM_FI_DEV_POWER_USAGE": waves(120 + 480 * use, 0.05, phase),
            "DCGM_FI_DEV_XID_ERRORS": 0.0,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": waves(use, 0.1, phase),
            "DCGM_FI_PROF_SM_ACTIVE": waves(0.8 * use, 0.1, phase),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": waves(0.5 * use, 0.1, phase),
            "DCGM_FI_PROF_DRAM_ACTIVE": waves(0.4 * use, 0.1, phase),
        }
        found += [_at(name, value, **labels) for name, value in values.items()]
    target = {"job": "dcgm-exporter", "instance": f"{node.name}:9400"}
    return [*found, _at("up", 1.0, **target, namespace="gpu", pod="dcgm-x")]


def _npu_exporter(pod: Pod, node: SiteNode, uuids: dict[str, str]) -> list[Series]:
    found = []
    for number in pod.devices:
        device = str(number)
        labels = {"job": "npu-exporter", "instance": f"{node.name}:8082", "id": device}
        labels |= {"vdie_id": uuids[device], "model_name": "910B3", "namespace": pod.namespace}
        labels |= {"pod_name": pod.name, "container_name": "main"}
        values: dict[str, Value] = {
            "npu_chip_info_utilization": waves(100 * pod.use, 0.1, number / 8),
            "npu_chip_info_temperature": waves(55, 0.04, number / 8),
            "npu_chip_info_power": waves(320, 0.05, number / 8),
            "npu_chip_info_hbm_used_memory": waves(50000, 0.01, number / 8),
            "npu_chip_info_hbm_total_memory": 65536.0,
            "npu_chip_info_health_status": 1.0,
        }
        found += [_at(name, value, **labels) for name, value in values.items()]
        container = f"{pod.namespace}_{pod.name}_main"
        found.append(_at("npu_container_info", 1.0, **labels, containerName=container))
    return found


def _jobs(now: float) -> list[Series]:
    """Return pods that ended some minutes ago, each a job of its own; those on gpu-01 failed."""
    state = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080", "namespace": "llm"}
    found = []
    for number in range(6):
        failed, ended = number % 2, now - (8 + 6 * number) * 60
        job = state | {"job_name": f"eval-{number}"}
        pod = state | {"pod": f"eval-{number}-x", "uid": f"uid-eval-{number}"}
        request = {"container": "main", "node": name_of(failed), "unit": "integer"}
        phases = {
            "Running": _until(ended, 1.0, 0.0),
            "Failed": _until(ended, 0.0, float(failed)),
            "Succeeded": _until(ended, 0.0, float(not failed)),
        }
        found += [
            *(_at("kube_pod_status_phase", at, **pod, phase=phase) for phase, at in phases.items()),
            _at("kube_pod_info", 1.0, **pod, node=name_of(failed), host_ip="10.0.0.9"),
            _at("kube_pod_container_resource_requests", 1.0, **pod, **request,
                resource="nvidia_com_gpu"),
            _at("kube_job_status_active", phases["Running"], **job),
            _at("kube_job_status_succeeded", phases["Succeeded"], **job),
            _at("kube_job_status_failed", phases["Failed"], **job),
            _at("kube_job_complete", phases["Succeeded"], **job, condition="true"),
            _at("kube_job_failed", phases["Failed"], **job, condition="true"),
            _at("kube_job_status_start_time", ended - 1800, **job),
        ]  # fmt: skip
    return found


def _until(end: float, before: float, after: float) -> ValueAt:
    return lambda moment: before if moment < end else after


def _alertmanager(now: float) -> list[Series]:
    own = {"job": "alertmanager", "instance": "alertmanager:9093"}
    start, found = now - 48 * _HOUR, [_at("up", 1.0, **own)]
    for integration, rate in (("webhook", 0.02), ("email", 0.01)):
        one = {**own, "integration": integration}
        found += [
            _at("alertmanager_notifications_total", grows(rate, start), **one),
            _at("alertmanager_notifications_failed_total", grows(rate / 50, start), **one),
            _at("alertmanager_notification_latency_seconds_sum", grows(rate * 0.3, start), **one),
            _at("alertmanager_notification_latency_seconds_count", grows(rate, start), **one),
            *(
                _at("alertmanager_notification_latency_seconds_bucket", grows(rate * share, start),
                    **one, le=le)
                for le, share in (("1", 0.95), ("5", 1.0), ("+Inf", 1.0))
            ),
        ]  # fmt: skip
    return [
        *found,
        _at("alertmanager_config_last_reload_successful", 1.0, **own),
        _at("alertmanager_cluster_members", 1.0, **own),
        _at("alertmanager_alerts", 6.0, **own, state="active"),
        _at("alertmanager_alerts", 2.0, **own, state="suppressed"),
        _at("alertmanager_silences", 1.0, **own, state="active"),
    ]
