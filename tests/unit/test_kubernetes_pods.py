"""Pods as the API server returns them: which labels are chosen, what is kept, and for how long."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.kubernetes.pods import KnownPod, choose, known_pod, parse_node, parse_pods
from nodevitals.probes.kubernetes.settings import DEFAULT_NAMES, KubernetesSettings
from nodevitals.probes.kubernetes.state import GONE_SECONDS, MAX_BYTES, MAX_READS, PodCache
from nodevitals.wire import decode, encode
from testbed.kubelet import Pod
from testbed.kubernetes_api.pods import pod_object

NAMES = {"owner": ("user.id", "owner"), "tenant": ("tenant.id",)}


def test_first_name_that_the_pod_has_is_used_labels_before_annotations() -> None:
    assert choose({"owner": "b"}, {"user.id": "a"}, NAMES) == {"owner": "a"}
    assert choose({"user.id": "l"}, {"user.id": "a"}, NAMES) == {"owner": "l"}
    assert choose({"user.id": ""}, {"owner": "b", "tenant.id": "t"}, NAMES) == {
        "owner": "b",
        "tenant": "t",
    }
    assert choose({}, {}, NAMES) == {}


def test_large_annotation_is_cut_and_has_one_line() -> None:
    [value] = choose({}, {"user.id": "a\nb " + "x" * 300_000}, NAMES).values()
    assert value.startswith("a b x")
    assert len(value) <= 128


@pytest.mark.parametrize(
    ("labels", "job_name"),
    [
        ({"volcano.sh/job-name": "v", "job-name": "j"}, "v"),
        ({"training.kubeflow.org/job-name": "k", "batch.kubernetes.io/job-name": "b"}, "k"),
        ({"batch.kubernetes.io/job-name": "b"}, "b"),
    ],
)
def test_job_of_each_scheduler_has_its_name(labels: dict[str, str], job_name: str) -> None:
    assert choose(labels, {}, DEFAULT_NAMES)["job_name"] == job_name


def test_configured_label_replaces_its_defaults_only() -> None:
    settings = KubernetesSettings(labels={"owner": ("team",), "tenant": ("tenant.id",)})
    assert settings.names["owner"] == ("team",)
    assert settings.names["job_name"] == DEFAULT_NAMES["job_name"]
    assert settings.site_labels == ("tenant",)
    assert list(settings.problems()) == []


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"labels": {"pod": ("x",)}}, "labels.pod"),
        ({"labels": {"instance": ("x",)}}, "labels.instance"),
        ({"labels": {"Tenant": ("x",)}}, "labels.Tenant"),
        ({"labels": {"owner": ("x",) * 33}}, "labels.owner"),
        ({"labels": {f"label{n}": ("x",) for n in range(17)}}, "labels"),
        ({"socket": "kubelet.sock"}, "socket"),
        ({"api_url": "http://10.0.0.1"}, "api_url"),
        ({"api_url": "https://user:password@10.0.0.1"}, "api_url"),
        ({"kubelet_url": "10.0.0.1:10250"}, "kubelet_url"),
    ],
)
def test_setting_that_cannot_work_is_a_problem(settings: dict[str, Any], path: str) -> None:
    assert [one.path for one in KubernetesSettings(**settings).problems()] == [path]


def test_containers_have_their_names_also_by_the_id_of_the_last_run() -> None:
    pod = Pod(name="a", container_id="c" * 64, last_container_id="d" * 64, phase="Failed")
    page = parse_pods(json.dumps({"items": [pod_object(pod)]}).encode())
    found = known_pod((page.items or [])[0], NAMES)
    assert found.containers == {"c" * 64: "main", "d" * 64: "main"}
    assert found.ended


def test_static_pod_is_found_by_the_uid_that_the_kubelet_uses() -> None:
    pod = Pod(name="etcd", annotations={"kubernetes.io/config.hash": "ab" * 16})
    page = parse_pods(json.dumps({"items": [pod_object(pod)]}).encode())
    cache = PodCache(pods=[known_pod((page.items or [])[0], NAMES)])
    assert set(cache.by_uid()) == {pod.uid, "ab" * 16}


def test_condition_that_is_unknown_is_missing() -> None:
    kinds = {"Ready": "True", "DiskPressure": "False", "PIDPressure": "Unknown"}
    conditions = [{"type": kind, "status": one} for kind, one in kinds.items()]
    node = parse_node(json.dumps({"spec": {}, "status": {"conditions": conditions}}).encode())
    assert node.schedulable
    assert node.conditions == {"Ready": True, "DiskPressure": False}


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for parse in (parse_pods, parse_node):
        with contextlib.suppress(ValueError):
            parse(data)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"items": 7}', '{"items": [{}]}', "[" * 9999]
)
def test_json_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of pods"):
        parse_pods(text.encode())


def known(name: str, **more: Any) -> KnownPod:
    """A pod as it is kept."""
    return KnownPod("train", name, f"uid-{name}", "", {}, {}, **more)


def test_pod_that_is_gone_is_kept_for_a_while() -> None:
    cache = PodCache()
    cache.update([known("a"), known("b")], set(), NAMES, 1000.0, 10)
    cache.update([known("b")], set(), NAMES, 1100.0, 10)
    assert set(cache.by_uid()) == {"uid-a", "uid-b"}
    assert cache.wanted(["train/a"]) == {"train/a"}
    cache.update([known("b")], set(), NAMES, 1100.0 + GONE_SECONDS, 10)
    assert set(cache.by_uid()) == {"uid-b"}


def test_pod_of_the_same_name_is_the_one_that_is_there() -> None:
    cache = PodCache()
    cache.update([known("a")], set(), NAMES, 1000.0, 10)
    again = KnownPod("train", "a", "uid-new", "", {}, {})
    cache.update([again], set(), NAMES, 1001.0, 10)
    assert cache.by_key()["train/a"].uid == "uid-new"


def test_of_pods_of_the_same_name_that_are_gone_the_last_one_counts() -> None:
    cache = PodCache()
    for number, uid in enumerate(("uid-1", "uid-2", "uid-3")):
        pod = KnownPod("train", "a", uid, "", {}, {})
        cache.update([pod], set(), NAMES, 1000.0 + number, 10)
    cache.update([], set(), NAMES, 1003.0, 10)
    assert cache.by_key()["train/a"].uid == "uid-3"


def test_list_of_an_older_state_brings_no_replaced_pod_back() -> None:
    """With resourceVersion=0 a server may answer with less than another one did before."""
    cache = PodCache()
    for number, uid in enumerate(("uid-1", "uid-2", "uid-1", "uid-1")):
        pod = KnownPod("train", "a", uid, "", {}, {})
        cache.update([pod], {"train/a"}, NAMES, 1000.0 + number, 10)
    assert cache.by_key()["train/a"].uid == "uid-2"
    assert cache.wanted(["train/a"]) == {"train/a"}
    pod = KnownPod("train", "a", "uid-2", "", {}, {})
    cache.update([pod], {"train/a"}, NAMES, 1004.0, 10)
    assert cache.wanted(["train/a"]) == set()


def test_pod_that_no_list_has_is_looked_up_a_few_times() -> None:
    cache = PodCache()
    for _ in range(MAX_READS):
        assert cache.wanted(["train/deleted"]) == {"train/deleted"}
        cache.update([], {"train/deleted"}, NAMES, 1000.0, 10)
    assert cache.wanted(["train/deleted"]) == set()
    assert cache.wanted(["train/new"]) == {"train/new"}


def test_pod_whose_npus_are_not_annotated_yet_is_looked_up_again() -> None:
    cache = PodCache()
    cache.update([known("a", npus=())], {"train/a"}, NAMES, 1000.0, 10)
    assert cache.wanted(["train/a"]) == {"train/a"}
    cache.update([known("a", npus=("Ascend910-1",))], {"train/a"}, NAMES, 1000.0, 10)
    assert cache.wanted(["train/a"]) == set()


def test_cache_is_old_after_a_while_a_step_of_the_clock_or_a_change_of_the_settings() -> None:
    cache = PodCache()
    cache.update([], set(), NAMES, 1000.0, 10)
    assert cache.is_current(NAMES, 1299.0, 300.0)
    assert not cache.is_current(NAMES, 1300.0, 300.0)
    assert not cache.is_current(NAMES, 900.0, 300.0)
    assert not cache.is_current({"owner": ("team",)}, 1001.0, 300.0)


def test_cache_is_bounded_and_pods_with_devices_come_first() -> None:
    cache = PodCache()
    pods = [known(f"web-{n}") for n in range(20)] + [known("job")]
    cache.update(pods, {"train/job"}, NAMES, 1000.0, 5)
    assert len(cache.pods) == 5
    assert cache.dropped == 16
    assert "train/job" in cache.by_key()
    large = [
        known(f"p{n}", npus=("x" * 100,) * 50) for n in range(500)
    ]  # such as no pod has, but an annotation may
    cache.update(large, set(), NAMES, 1000.0, 2000)
    assert len(encode(cache)) < MAX_BYTES + 10_000
    assert decode(encode(cache), PodCache) == cache
    assert cache.dropped + len(cache.pods) >= 500
    assert msgspec.to_builtins(cache)["dropped"] > 0
