"""Probe `kubernetes`: a kubelet's real protobuf on a Unix socket, an API server over HTTPS."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings, Timing
from nodevitals.probes.kubernetes.messages import Accelerators, OomKill, OomKills
from nodevitals.probes.kubernetes.probe import KubernetesProbe
from nodevitals.probes.kubernetes.settings import KubernetesSettings
from nodevitals.probes.kubernetes.state import KubernetesState
from nodevitals.wire import MAX_STATE_BYTES, decode, encode
from testbed import trees
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.kubelet import (
    Claim,
    Kubelet,
    Pod,
    SilentSocket,
    gpu_pods,
    gpu_uuid,
    job_pod,
    mig_uuid,
)
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.pods import KUBELET_ROLE, PodApi
from testbed.node import ROOT, Node, run, wait_until

INFO = "nodevitals_pod_accelerator_info"
GPUS = Accelerators("nvidia", {str(n): gpu_uuid(n) for n in range(8)})
BOOT = "11111111-2222-4333-8444-555555555555"


class Site:
    """A node with a kubelet and an API server; `run` is one run of the probe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods = gpu_pods()
        self.kubelet = Kubelet(folder, self.pods)
        self.api = PodApi(folder, self.pods)
        self.settings: dict[str, Any] = {"socket": str(self.kubelet.path), **self.api.settings}
        self.timing = Timing(interval_seconds=30.0, timeout_seconds=60.0, stale_after_seconds=90.0)
        self.state = KubernetesState()
        self.readings = Readings()
        trees.write(folder / "proc", {"sys/kernel/random/boot_id": BOOT})

    def run(self, *messages: Any) -> dict[str, tuple[str, ...]]:
        """A run; the state goes through the engine's encoding. Returns by uuid the pod and the
        labels of its series.
        """
        host = Host(procfs=str(self.folder / "proc"))
        probe = KubernetesProbe(host, KubernetesSettings(**self.settings), "", self.timing)
        probe.state = decode(encode(self.state), KubernetesState)
        self.readings = Readings(messages, (), KubernetesProbe.families)
        try:
            probe.run(self.readings)
        finally:
            self.state = probe.state
        return self.series()

    def fail(self, reason: str) -> str:
        """A run that fails for this reason; its message."""
        with pytest.raises(ProbeError) as caught:
            self.run()
        assert caught.value.reason == reason
        return caught.value.message

    def series(self) -> dict[str, tuple[str, ...]]:
        """Pod, job, owner, queue, vendor, device and the site's labels, by uuid, of the last run;
        of a shared accelerator those of one pod.
        """
        found = [one.labels for one in self.readings.samples if one.family == INFO]
        return {one[8]: (one[1], *one[3:8], *one[9:]) for one in found}

    def value(self, family: str, *labels: str) -> float | None:
        """A sample of the last run."""
        wanted = (f"nodevitals_{family}", labels)
        found = {(one.family, one.labels): one.value for one in self.readings.samples}
        return found.get(wanted)

    def increments(self, family: str, *labels: str) -> float:
        """What the last run added to a counter."""
        wanted = (f"nodevitals_{family}", labels)
        rows = self.readings.increments
        return sum(one.value for one in rows if (one.family, one.labels) == wanted)

    def later(self, seconds: float) -> None:
        """Let time pass: everything that is kept was read that much earlier."""
        state = self.state
        state.listed_at -= seconds
        state.cache.read_at -= seconds
        if state.node is not None:
            state.node.read_at -= seconds
        for failure in state.failures.values():
            failure.retry_at -= seconds


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    one = Site(tmp_path)
    with one.kubelet, one.api:
        yield one


def test_eight_gpus_and_forty_pods(site: Site) -> None:
    site.kubelet.allocatable = {"nvidia.com/gpu": [gpu_uuid(n) for n in range(8)]}
    found = site.run(GPUS)
    assert len(found) == 8
    job = ("pretrain-5", "pretrain-1", "user-2", "research", "nvidia", "5")
    assert found[gpu_uuid(5)] == job
    assert site.value("kubernetes_devices_allocatable", "nvidia.com/gpu") == 8
    assert site.value("kubernetes_devices_allocated", "nvidia.com/gpu") == 8
    assert site.value("kubernetes_devices_unresolved", "nvidia.com/gpu") == 0
    assert site.value("kubernetes_pods", "known") == 8
    assert site.value("kubernetes_pods_cached") == 40
    assert site.value("node_schedulable") == 1
    assert site.value("node_condition", "Ready") == 1
    assert site.value("node_condition", "MemoryPressure") == 0
    assert site.value("node_condition", "DiskPressure") is None


def test_api_server_is_asked_for_unknown_pods_only(site: Site) -> None:
    site.run(GPUS)
    asked = site.api.requests.total()
    site.run()
    assert site.api.requests.total() == asked
    site.pods[3] = job_pod(99, {"nvidia.com/gpu": [gpu_uuid(3)]})
    assert site.run()[gpu_uuid(3)][0] == "pretrain-99"
    assert site.api.requests.total() == asked + 1
    site.pods[4].labels["user.id"] = "another"
    site.later(301)
    assert site.run()[gpu_uuid(4)][2] == "another"


def test_churn_leaves_no_series_of_pods_that_are_gone(site: Site) -> None:
    for round_ in range(1, 6):
        site.pods[:8] = [
            job_pod(100 * round_ + n, {"nvidia.com/gpu": [gpu_uuid(n)]}) for n in range(8)
        ]
        found = site.run()
        assert {one[0] for one in found.values()} == {
            f"pretrain-{100 * round_ + n}" for n in range(8)
        }
    site.pods[:8] = []
    assert site.run() == {}
    assert site.value("kubernetes_pods_cached") == 32 + 40


def test_finished_pod_that_the_kubelet_still_lists_has_no_device(site: Site) -> None:
    site.pods[0].phase = "Succeeded"
    site.pods.append(job_pod(50, {"nvidia.com/gpu": [gpu_uuid(0)]}))
    found = [one.labels for one in _infos(site) if one.labels[8] == gpu_uuid(0)]
    assert [one[1] for one in found] == ["pretrain-50"]


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_pod_of_the_same_name_has_its_own_labels(site: Site, phase: str) -> None:
    """As Volcano restarts a job, and as any two users of a namespace may name their pods."""
    site.pods[0].phase = phase
    site.run()
    again = job_pod(0, {"nvidia.com/gpu": [gpu_uuid(0)]})
    again.labels["user.id"] = "another"
    site.pods[0].devices = {}
    site.run()
    site.pods[0] = again
    site.api.fail("garbage")
    with pytest.raises(ProbeError):
        site.run()
    site.api.heal()
    assert site.run()[gpu_uuid(0)][2] == "another"
    asked = site.api.requests.total()
    site.run()
    assert site.api.requests.total() == asked


def test_list_that_is_too_large_to_keep_is_unknown_when_the_kubelet_hangs(site: Site) -> None:
    """Not empty."""
    many = {"example.com/port": [f"port-{number}" for number in range(1000)]}
    site.pods += [Pod(name=f"{number:0250}", devices=many) for number in range(40)]
    assert len(site.run()) == 8
    site.kubelet.stop()
    site.fail("kubelet")
    assert site.value("kubernetes_pods", "unknown") is None


def _infos(site: Site) -> list[Any]:
    site.run()
    return [one for one in site.readings.samples if one.family == INFO]


def test_labels_of_the_site_follow_and_annotations_count(site: Site) -> None:
    site.settings["labels"] = {"tenant": ("tenant.id",), "owner": ("team",)}
    site.pods[0].annotations = {"tenant.id": "t-1", "team": "vision"}
    found = site.run()
    assert found[gpu_uuid(0)][2] == "vision"
    assert found[gpu_uuid(0)][-2:] == ("tenant", "t-1")
    assert found[gpu_uuid(1)][2] == ""
    assert site.value("kubernetes_pods_without_label", "owner") == 7


def test_mig_instance_has_the_uuid_of_its_gpu(site: Site) -> None:
    resource = "nvidia.com/mig-1g.10gb"
    site.pods[:] = [job_pod(n, {resource: [mig_uuid(n)]}) for n in range(7)]
    assert site.run(GPUS) == {}
    assert site.value("kubernetes_devices_unresolved", resource) == 7
    message = msgspec.structs.replace(GPUS, gpus={mig_uuid(n): gpu_uuid(0) for n in range(6)})
    infos = site.run(message)
    assert set(infos) == {gpu_uuid(0)}
    assert sum(one.family == INFO for one in site.readings.samples) == 6
    assert site.value("kubernetes_devices_unresolved", resource) == 1
    assert site.value("kubernetes_devices_allocated", resource) == 7


def test_replicas_of_a_shared_gpu_are_one_series_per_container(site: Site) -> None:
    resource = "nvidia.com/gpu.shared"
    first = [f"{gpu_uuid(0)}::{n}" for n in range(3)]
    site.pods[:] = [job_pod(0, {resource: first}), job_pod(1, {resource: [f"{gpu_uuid(0)}::3"]})]
    site.run(GPUS)
    pods = [one.labels[1] for one in site.readings.samples if one.family == INFO]
    assert pods == ["pretrain-0", "pretrain-1"]
    assert site.value("kubernetes_devices_allocated", resource) == 4


def test_eight_npus(site: Site) -> None:
    npus = Accelerators("ascend", {str(n): f"AA-{n}" for n in range(8)})
    resource = "huawei.com/Ascend910"
    site.pods[:] = [job_pod(n, {resource: [f"Ascend910-{n}"]}) for n in range(8)]
    found = site.run(npus)
    assert found["AA-6"][:1] + found["AA-6"][4:] == ("pretrain-6", "ascend", "6")
    assert len(found) == 8


def test_npus_are_those_that_volcano_chose_and_nothing_before_they_are_known(site: Site) -> None:
    npus = Accelerators("ascend", {str(n): f"AA-{n}" for n in range(8)})
    resource = "huawei.com/Ascend910"
    pod = job_pod(0, {resource: ["Ascend910-0"]}, annotations={"predicate-time": "17"})
    site.pods[:] = [pod]
    assert site.run(npus) == {}
    assert site.value("kubernetes_devices_unresolved", resource) == 1
    pod.annotations |= {"huawei.com/AscendReal": "Ascend910-5", "huawei.com/kltDev": "Ascend910-0"}
    assert set(site.run()) == {"AA-5"}
    # Without the API server the kubelet's choice may be wrong.
    site.api.role.clear()
    site.state = KubernetesState(accelerators=site.state.accelerators)
    site.fail("forbidden")
    assert site.series() == {}
    assert site.value("kubernetes_devices_unresolved", resource) == 1


def test_claims_of_dynamic_allocation(site: Site) -> None:
    text = f"Model: \t X\nGPU UUID: \t {gpu_uuid(2)}\nDevice Minor: \t 2\n"
    trees.write(site.folder / "proc/driver/nvidia/gpus/0000:18:00.0", {"information": text})
    claims = [Claim(device="gpu-2"), Claim(driver="dra.net", device="net-1")]
    site.pods[:] = [job_pod(0, {}, claims=claims), job_pod(1, {}, claims=[Claim(device="gpu-3")])]
    assert set(site.run(GPUS)) == {gpu_uuid(2)}
    assert site.value("kubernetes_devices_allocated", "gpu.nvidia.com") == 2
    assert site.value("kubernetes_devices_unresolved", "gpu.nvidia.com") == 1
    assert site.value("kubernetes_devices_unresolved", "dra.net") is None


def test_rdma_function_is_exposed_by_its_address_and_a_shared_one_is_counted(site: Site) -> None:
    devices = {"nvidia.com/hostdev": ["0000:c1:00.2"], "rdma/hca_shared_devices_a": ["7"]}
    site.pods[:] = [job_pod(0, devices)]
    assert site.run() == {}
    labels = ("train", "pretrain-0", "main", "nvidia.com/hostdev", "0000:c1:00.2")
    assert site.value("pod_pci_device_info", *labels) == 1
    assert site.value("kubernetes_devices_allocated", "rdma/hca_shared_devices_a") == 1


def test_number_of_series_is_bounded_and_exposed(site: Site) -> None:
    site.settings["max_series"] = 3
    assert len(site.run()) == 3
    assert site.value("kubernetes_dropped", "series") == 5
    site.settings["max_pods"] = 8
    site.later(301)
    site.run()
    assert site.value("kubernetes_dropped", "pods") == 32
    assert site.value("kubernetes_pods", "known") == 8


def test_node_without_a_device_has_its_conditions(site: Site) -> None:
    site.pods[:] = site.pods[8:]
    site.api.unschedulable = True
    assert site.run() == {}
    assert site.value("node_schedulable") == 0
    site.api.unschedulable = False
    site.run()
    assert site.value("node_schedulable") == 0
    site.later(60)
    site.run()
    assert site.value("node_schedulable") == 1


def test_without_a_kubelet_the_probe_is_absent(site: Site) -> None:
    site.kubelet.stop()
    with pytest.raises(Absent, match="no socket of a kubelet"):
        site.run()
    site.settings["socket"] = str(site.folder / "token/kubelet.sock")
    with pytest.raises(Absent, match="no socket of a kubelet"):
        site.run()
    site.kubelet.start()


def test_kubelet_that_restarts_takes_nothing_away(site: Site) -> None:
    before = site.run(GPUS)
    site.kubelet.stop()
    message = site.fail("kubelet")
    assert "answered before: is it running? systemctl status kubelet" in message
    assert site.series() == before
    site.later(91)
    site.fail("kubelet")
    assert site.series() == {}
    assert site.value("kubernetes_pods", "known") is None
    site.kubelet.start()
    assert site.run() == before


def test_socket_that_a_dead_kubelet_left_refuses(site: Site) -> None:
    before = site.run(GPUS)
    site.kubelet.stop()
    SilentSocket(site.kubelet.path).close()
    assert "Connection refused: is the kubelet running?" in site.fail("kubelet")
    assert site.series() == before
    site.kubelet.start()
    assert site.increments("kubernetes_requests_total", "list", "unavailable") == 1


@pytest.mark.parametrize("how", ["hang", "silent", "full"])
def test_kubelet_that_hangs_ends_at_the_deadline(site: Site, how: str) -> None:
    before = site.run(GPUS)
    site.timing = Timing(interval_seconds=30.0, timeout_seconds=1.5, stale_after_seconds=90.0)
    if how == "hang":
        site.kubelet.behaviour = "hang"
        message = site.fail("timeout")
    else:
        site.kubelet.stop()
        with contextlib.closing(SilentSocket(site.kubelet.path, full=how == "full")):
            message = site.fail("timeout")
        site.kubelet.start()
    assert "the kubelet hangs" in message
    assert site.series() == before


@pytest.mark.parametrize("behaviour", ["old", "disabled"])
def test_kubelet_without_allocatable_resources_is_no_failure(site: Site, behaviour: str) -> None:
    site.kubelet.stop()
    site.kubelet.behaviour = behaviour
    site.kubelet.allocatable = {"nvidia.com/gpu": [gpu_uuid(0)]}
    site.kubelet.start()
    assert len(site.run()) == 8
    assert site.value("kubernetes_devices_allocatable", "nvidia.com/gpu") is None
    assert site.value("kubernetes_devices_allocated", "nvidia.com/gpu") == 8
    assert site.increments("kubernetes_requests_total", "allocatable", "error") == 1


def test_second_call_that_hangs_does_not_hide_the_first(site: Site) -> None:
    site.kubelet.behaviour = "slow_allocatable"
    site.timing = Timing(interval_seconds=30.0, timeout_seconds=10.0, stale_after_seconds=90.0)
    assert "GetAllocatableResources: DEADLINE_EXCEEDED" in site.fail("timeout")
    assert len(site.series()) == 8


@pytest.mark.parametrize(
    ("behaviour", "reason", "text"),
    [
        ("garbage", "garbage", "not a ListPodResourcesResponse"),
        ("truncated", "garbage", "not a ListPodResourcesResponse"),
        ("limited", "kubelet", "rejected by rate limit"),
    ],
)
def test_answer_that_is_none_is_a_failure(
    site: Site, behaviour: str, reason: str, text: str
) -> None:
    before = site.run()
    site.kubelet.behaviour = behaviour
    assert text in site.fail(reason)
    assert site.series() == before


def test_socket_without_permission_says_what_it_needs(site: Site) -> None:
    before = site.run()
    os.chmod(site.kubelet.path, 0)
    os.chmod(site.folder, 0o755)
    uid = os.geteuid()
    os.seteuid(65532)
    try:
        message = site.fail("no_access")
    finally:
        os.seteuid(uid)
    assert "Permission denied: the agent must run as root" in message
    assert site.series() == before


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (401, "unauthorized", "the token is not accepted"),
        (403, "forbidden", "the agent's role needs list of pods"),
        (404, "api", "404"),
        (500, "api", "500: as the test wants"),
        (503, "api", "503"),
        (301, "api", "301"),
    ],
)
def test_answer_of_the_api_server_that_is_a_failure(
    site: Site, status: int, reason: str, text: str
) -> None:
    """The devices are mapped nevertheless, and what is known stays."""
    site.api.fail(status)
    assert text in site.fail(reason)
    assert site.series()[gpu_uuid(0)][:3] == ("pretrain-0", "", "")
    assert site.value("kubernetes_pods", "unknown") == 8
    site.api.heal()
    before = site.run()
    assert before[gpu_uuid(0)][1] == "pretrain-0"
    site.api.fail(status)
    site.later(301)
    site.fail(reason)
    assert site.series() == before


def test_role_without_one_verb_loses_one_thing(site: Site) -> None:
    site.api.role = {("list", "pods")}
    assert "the agent's role needs get of nodes" in site.fail("forbidden")
    assert site.series()[gpu_uuid(0)][1] == "pretrain-0"
    assert site.value("node_schedulable") is None
    site.api.role = {("get", "nodes")}
    site.state = KubernetesState()
    assert "the agent's role needs list of pods" in site.fail("forbidden")
    assert site.value("node_schedulable") == 1


def test_token_that_was_rotated_is_read_again(site: Site) -> None:
    site.run()
    site.api.rotate("second-token")
    site.later(61)
    site.run()
    site.api.token_file.unlink()
    site.later(301)
    assert site.fail("no_token").endswith("token: No such file or directory: no token")


def test_server_that_is_busy_is_left_alone_for_as_long_as_it_says(site: Site) -> None:
    before = site.run(GPUS)
    site.api.retry_after = "40"
    site.api.fail(429)
    site.later(301)
    asked = site.api.requests.total()
    site.fail("throttled")
    assert site.api.requests.total() == asked + 2
    site.fail("throttled")
    assert site.api.requests.total() == asked + 2
    site.api.heal()
    site.later(41)
    assert site.run() == before


def expired_pages(count: int) -> Callable[[Call], str]:
    """So many next pages of a list have expired."""
    left = iter(range(count))
    return lambda call: "410" if "continue" in call.query and next(left, None) is not None else ""


def test_pages_are_followed_and_an_expired_list_starts_over(site: Site) -> None:
    site.api.page_size = 7
    assert len(site.run()) == 8
    assert site.value("kubernetes_pods_cached") == 40
    site.api.trouble = expired_pages(2)
    site.later(301)
    site.run()
    assert site.value("kubernetes_pods_cached") == 40
    site.api.trouble = expired_pages(3)
    site.later(301)
    assert "410: The provided continue parameter is too old: 3 times" in site.fail("api")


def test_pods_of_other_nodes_are_not_read(site: Site) -> None:
    site.pods.append(Pod(name="elsewhere", node="node-8"))
    site.run()
    assert site.value("kubernetes_pods_cached") == 40


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("hang", "timeout"),
        ("trickle", "timeout"),
        ("huge", "too_large"),
        ("garbage", "garbage"),
        ("other_shape", "garbage"),
        ("cut", "api"),
    ],
)
def test_answer_without_an_end_or_a_shape(site: Site, behaviour: str, reason: str) -> None:
    """What never ends is cut at the deadline; the others are recognized long before it."""
    deadline = 10.0 if reason == "timeout" else 300.0
    site.timing = Timing(
        interval_seconds=300.0, timeout_seconds=deadline, stale_after_seconds=900.0
    )
    site.api.fail(behaviour)
    site.fail(reason)
    assert len(site.series()) == 8


def test_certificate_of_another_authority_or_name_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with PodApi(tmp_path / "other", []) as other:
        site.settings["ca_file"] = str(other.ca_file)
        assert "is ca_file right?" in site.fail("tls")
    site.settings["ca_file"] = str(site.folder / "none.crt")
    assert "no certificates of authorities" in site.fail("no_ca")
    (tmp_path / "name").mkdir()
    with PodApi(tmp_path / "name", site.pods, host="kubernetes.default") as named:
        site.settings |= named.settings
        assert "IP address mismatch" in site.fail("tls")
    assert len(site.series()) == 8


def test_server_that_is_gone_is_named(site: Site) -> None:
    site.settings["api_url"] = "https://127.0.0.1:1"
    assert "API server at https://127.0.0.1:1: GET /api/v1/pods: Connection refused" in site.fail(
        "api"
    )


def test_labels_from_the_kubelet(site: Site) -> None:
    url = site.settings.pop("api_url")
    site.settings |= {"source": "kubelet", "kubelet_url": url}
    assert "the agent's role needs get of nodes/proxy" in site.fail("forbidden")
    site.api.role = set(KUBELET_ROLE)
    assert site.run()[gpu_uuid(0)][1] == "pretrain-0"
    assert site.value("node_schedulable") is None
    site.settings["kubelet_ca_file"] = str(site.folder / "none.crt")
    site.settings["kubelet_verify"] = False
    site.later(301)
    assert site.run()[gpu_uuid(0)][1] == "pretrain-0"


def test_without_a_source_devices_have_pods_and_no_labels(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = site.settings.pop("api_url")
    site.settings["source"] = "auto"
    assert site.run(GPUS)[gpu_uuid(0)] == ("pretrain-0", "", "", "", "nvidia", "0")
    assert site.value("kubernetes_pods_cached") is None
    assert not site.api.requests
    host, _, port = url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    assert site.run()[gpu_uuid(0)][1] == "pretrain-0"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    site.settings["source"] = "api"
    assert "set api_url" in site.fail("no_api")


def test_oom_kill_counts_for_its_pod_also_when_that_is_gone(site: Site) -> None:
    site.run()
    pod = site.pods.pop(0)
    labels = ("train", "pretrain-0", "main", "pretrain-0", "user-0", "research")
    site.run(OomKills([OomKill(pod.uid, pod.container_id)] * 2))
    assert site.value("pod_oom_kills_total", *labels) == 0
    site.run()
    assert site.value("pod_oom_kills_total", *labels) == 2
    site.run(OomKills([OomKill("00000000-0000-4000-8000-00000000dead", "f" * 64)]))
    site.run()
    assert site.increments("kubernetes_oom_kills_unattributed_total", "unknown_pod") == 1


def test_oom_kill_of_a_new_container_reads_the_pods_again(site: Site) -> None:
    site.run()
    pod = site.pods[30]
    pod.last_container_id, pod.container_id = "e" * 64, "f" * 64
    site.run(OomKills([OomKill(pod.uid, "e" * 64)]))
    assert site.value("pod_oom_kills_total", "web", pod.name, "main", "", "", "") == 0


def test_boot_starts_anew(site: Site) -> None:
    site.run(GPUS, OomKills([OomKill(site.pods[0].uid, site.pods[0].container_id)]))
    trees.write(site.folder / "proc", {"sys/kernel/random/boot_id": BOOT.replace("1", "9")})
    site.kubelet.stop()
    with pytest.raises(Absent):
        site.run()
    site.kubelet.start()
    assert site.run()[gpu_uuid(0)][-1] == "0"
    assert site.state.oom.series == []


def test_state_fits_whatever_the_node_has(site: Site) -> None:
    """Thousands of replicas and large annotations; what is too much is counted, not kept."""
    site.pods[:] = [
        job_pod(
            n,
            {"nvidia.com/gpu.shared": [f"{gpu_uuid(n)}::{replica}" for replica in range(5)]},
            annotations={"huawei.com/AscendReal": "Ascend910-1," * 300, "user.id": "x" * 1000},
        )
        for n in range(1500)
    ]
    site.settings |= {"max_pods": 2000, "max_series": 500}
    assert len(site.run(OomKills([OomKill(pod.uid, "") for pod in site.pods[:500]]))) == 500
    assert len(encode(site.state)) < MAX_STATE_BYTES
    assert (site.value("kubernetes_dropped", "pods") or 0) > 500
    assert site.value("kubernetes_dropped", "series") == 1000


def test_agent_maps_devices_of_its_probes_and_kills_of_its_log(site: Site, tmp_path: Path) -> None:
    """MIG instances are known from NVML, the pod of a process from the kernel's log."""
    (tmp_path / "gpus").mkdir()
    machine = Machine(tmp_path / "gpus", "H100", 2).start()
    machine.partition(0, "3g.40gb")
    instance = machine.state[f"{machine.state['0.mig.0']}.uuid"]
    site.pods[:] = [
        job_pod(0, {"nvidia.com/mig-3g.40gb": [instance]}),
        job_pod(1, {"nvidia.com/gpu": [machine.uuid(1)]}),
    ]
    pod = site.pods[0]
    cgroup = f"/kubepods/burstable/pod{pod.uid}/{pod.container_id}"
    kill = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/kubepods,task_memcg={cgroup},task=a"
    with KernelLog(tmp_path) as log:
        probes = {
            "kubernetes": {"interval": "1s", "labels": {"tenant": ["user.id"]}, **site.settings},
            "nvidia": {"interval": "500ms", **machine.settings},
            "kernel_log": {"path": str(log.path), "interval": "200ms"},
        }
        with Node(tmp_path, {"probes": probes}, *machine.flags, **machine.environment) as node:
            first = {"pod": "pretrain-0", "uuid": machine.uuid(0), "device": "0"}
            wait_until(lambda: node.value(INFO, **first, tenant="user-0") == 1)
            wait_until(lambda: node.value(INFO, pod="pretrain-1", device="1") == 1)
            log.write(kill, "Memory cgroup out of memory: Killed process 7 (a)")
            kills = "nodevitals_pod_oom_kills_total"
            wait_until(lambda: node.value(kills, pod="pretrain-0", container="main") == 1)
            events = "nodevitals_kernel_events_total"
            wait_until(lambda: node.value(events, event="oom_kill") == 1)
            site.kubelet.stop()
            success = "nodevitals_probe_success"
            wait_until(lambda: node.value(success, probe="kubernetes") == 0)
            assert node.value(INFO, **first) == 1
            node.kill()
            node.start()
            site.kubelet.start()
            wait_until(lambda: node.value(success, probe="kubernetes") == 1)
            wait_until(lambda: node.value(kills, pod="pretrain-0", container="main") == 1)
            assert node.value(events, event="oom_kill") == 1


def test_without_h2_the_agent_says_what_to_install(site: Site) -> None:
    blocked = site.folder / "blocked"
    trees.write(blocked, {"h2/__init__.py": "raise ImportError('blocked', name='h2')"})
    config = site.folder / "only.yaml"
    config.write_text(json.dumps({"probes": {"kubernetes": site.settings}}))
    path = f"{blocked}:{ROOT / 'exporter'}"
    done = run("probe", "kubernetes", "--raw", f"--config.file={config}", PYTHONPATH=path)
    assert done.returncode == 1
    text = "missing: h2 is not installed: install nodevitals with the extra pods\n"
    assert done.stderr.endswith(text)
    assert "nodevitals_node_schedulable 1\n" in done.stdout
