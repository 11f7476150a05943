"""OOM kills of pods: the kernel's line, and whose counter it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probe import Readings
from nodevitals.probes.kernel_log.lines import parse_oom_kill
from nodevitals.probes.kubernetes.families import LIMIT, UNKNOWN_POD
from nodevitals.probes.kubernetes.messages import MAX_KILLS, OomKill, OomKills, send_oom_kills
from nodevitals.probes.kubernetes.oom import MAX_SERIES, MAX_WAITING, WAIT_SECONDS, OomKillCounts
from nodevitals.probes.kubernetes.pods import KnownPod
from nodevitals.wire import decode

UID = "968a06fb-9ab9-4819-8caf-0392ddff3d9b"
CONTAINER = "0f32894de86edf3d3832702af794874ef8d400b4969acdea4976b12040756e0d"
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + UID.replace("-", "_")
FIELDS = "nodemask=(null),cpuset=x,mems_allowed=0-1"
SYSTEMD = f"{SLICE}.slice/cri-containerd-{CONTAINER}.scope"
OTHER = "/kubepods/burstable/pod11111111-9ab9-4819-8caf-0392ddff3d9b"

OWN = "/user.slice/user-1000.slice/user@1000.service"


def line(cgroup: str, limit: str = "oom_memcg=/kubepods.slice", task: str = "python") -> str:
    """The kernel's line about a process of this cgroup."""
    start = f"oom-kill:constraint=CONSTRAINT_MEMCG,{FIELDS},{limit}"
    return f"{start},task_memcg={cgroup},task={task},pid=39079,uid=107"


@pytest.mark.parametrize(
    ("text", "uid", "container"),
    [
        (line(SYSTEMD), UID, CONTAINER),
        (line(f"/kubepods/burstable/pod{UID}/{CONTAINER}"), UID, CONTAINER),
        (line(f"/kubepods/pod{UID}/{CONTAINER}"), UID, CONTAINER),
        (line(f"/kubelet/kubepods/besteffort/pod{UID}/crio-{CONTAINER}"), UID, CONTAINER),
        (line(f"{SYSTEMD}/init.scope", limit="global_oom"), UID, CONTAINER),
        (line(f"{SLICE}.slice"), UID, ""),
        # The kubelet has a root of its own, such as in kind.
        (
            line(
                f"/system.slice/docker-{CONTAINER}.scope/kubelet.slice/kubelet-kubepods.slice"
                f"/kubelet-kubepods-pod{UID.replace('-', '_')}.slice"
                f"/cri-containerd-{CONTAINER}.scope"
            ),
            UID,
            CONTAINER,
        ),
        # systemd in the container.
        (
            line(
                f"{SYSTEMD}/system.slice/a.service", f"oom_memcg={SYSTEMD}/system.slice/a.service"
            ),
            UID,
            CONTAINER,
        ),
        # A static pod's uid is a hash.
        (line(f"/kubepods/burstable/pod{'a1' * 16}/{CONTAINER}"), "a1" * 16, CONTAINER),
        # The process may name itself as it likes.
        (line(SYSTEMD, task=f"task_memcg={OTHER}"[:15]), UID, CONTAINER),
        # Linux 4.18.
        (
            f"Task in /kubepods/pod{UID}/{CONTAINER} killed as a result of limit of /kubepods",
            UID,
            CONTAINER,
        ),
    ],
)
def test_pod_and_container_are_read(text: str, uid: str, container: str) -> None:
    assert parse_oom_kill(text) == OomKill(uid, container)


@pytest.mark.parametrize(
    "text",
    [
        line("/system.slice/sshd.service"),
        line(f"/user.slice/pod{UID}/{CONTAINER}"),
        line("/kubepods/burstable/podnot-a-uid/x"),
        f"Memory cgroup out of memory: Killed process 1 (task_memcg={SYSTEMD})",
        f"trainer: oom-kill:,task_memcg={SYSTEMD},",
        "",
        # Cgroups that a user has created, below the user's own service.
        line(f"{OWN}/kubepods/burstable/pod{UID}/{CONTAINER}"),
        line(f"{OWN}/x", limit=f"oom_memcg={OWN}/x,task_memcg=/kubepods/pod{UID}"),
        line(f"{OWN}/x", limit=f"oom_memcg={OWN}/x,task_memcg={SYSTEMD}").replace("=x", "=/"),
        line(f"{OWN}/x", limit=f"oom_memcg={OWN},global_oom,task_memcg={SYSTEMD}"),
    ],
)
def test_other_messages_are_none(text: str) -> None:
    assert parse_oom_kill(text) is None


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_none(text: str) -> None:
    parse_oom_kill(text)
    parse_oom_kill(line(text))


def test_flood_of_kills_fits_into_a_message_and_hides_no_other_container() -> None:
    readings = Readings()
    send_oom_kills(readings, [OomKill("other", ""), *[OomKill(UID, CONTAINER)] * 5000])
    [message] = readings.messages
    kills = decode(message.body, OomKills).kills
    assert kills == [OomKill("other", ""), OomKill(UID, CONTAINER, 5000)]
    send_oom_kills(readings, [])
    assert len(readings.messages) == 1
    send_oom_kills(readings, [OomKill(UID, str(number), 2) for number in range(MAX_KILLS + 3)])
    assert decode(readings.messages[1].body, OomKills).omitted == 6


def test_no_kill_is_lost_where_more_wait_than_there_is_room_for() -> None:
    """Those of one container wait together; the others are counted."""
    counts = OomKillCounts()
    for _ in range(20):
        counts.receive(OomKills([OomKill(UID, CONTAINER, 100)]), 0.0)
    counts.receive(OomKills([OomKill(UID, str(n)) for n in range(MAX_WAITING)], omitted=7), 0.0)
    assert len(counts.waiting) == MAX_WAITING
    assert attribute(counts)[LIMIT] == 2007
    assert LIMIT not in attribute(counts)


POD = KnownPod("train", "job-0", UID, "", {"owner": "ann"}, {CONTAINER: "main"})
LABELS = ("train", "job-0", "main")


def labels_of(pod: KnownPod, container: str) -> tuple[str, ...]:
    """As the probe has them, shorter."""
    return (pod.namespace, pod.name, container)


def attribute(counts: OomKillCounts, *pods: KnownPod, now: float = 0.0) -> dict[str, int]:
    """Find the series of what waits; of the kills without one those that there are."""
    found = counts.attribute({pod.uid: pod for pod in pods}, labels_of, now, readable=True)
    return {reason: count for reason, count in found.items() if count}


def test_series_starts_at_0_and_counts_with_the_next_run() -> None:
    counts = OomKillCounts()
    counts.receive(OomKills([OomKill(UID, CONTAINER)] * 3), 0.0)
    assert attribute(counts, POD) == {}
    assert counts.report(0.0) == [(LABELS, 0)]
    assert counts.report(30.0) == [(LABELS, 3)]
    counts.receive(OomKills([OomKill(UID, CONTAINER)]), 60.0)
    attribute(counts, POD)
    assert counts.report(60.0) == [(LABELS, 3)]
    assert counts.report(90.0) == [(LABELS, 4)]
    assert counts.report(90.0 + 86400.0) == []


def test_pod_of_the_same_name_and_another_owner_has_its_own_series() -> None:
    """Else the owner of the pod before is notified."""
    counts = OomKillCounts()
    for owner in ("ann", "bob"):
        pod = KnownPod("train", "job-0", UID, "", {"owner": owner}, {CONTAINER: "main"})
        counts.receive(OomKills([OomKill(UID, CONTAINER)]), 0.0)
        counts.attribute({UID: pod}, owner_of, 0.0, readable=True)
        counts.report(0.0)
    assert counts.report(30.0) == [((*LABELS, "ann"), 1), ((*LABELS, "bob"), 1)]


def owner_of(pod: KnownPod, container: str) -> tuple[str, ...]:
    """With the owner."""
    return (*labels_of(pod, container), pod.labels["owner"])


def test_kill_waits_for_its_pod() -> None:
    counts = OomKillCounts()
    counts.receive(OomKills([OomKill(UID, CONTAINER)]), 0.0)
    assert counts.wants_reading({})
    assert attribute(counts) == {}
    counts.was_read()
    assert attribute(counts, POD) == {}
    assert counts.report(0.0) == [(LABELS, 0)]


def test_pod_that_no_list_has_is_counted_as_unknown() -> None:
    counts = OomKillCounts()
    counts.receive(OomKills([OomKill(UID, CONTAINER)] * 2), 0.0)
    counts.was_read()
    assert attribute(counts) == {}
    counts.was_read()
    assert attribute(counts) == {UNKNOWN_POD: 2}
    assert not counts.wants_reading({})
    counts.receive(OomKills([OomKill(UID, CONTAINER)]), 0.0)
    assert attribute(counts, now=WAIT_SECONDS - 1) == {}
    assert attribute(counts, now=WAIT_SECONDS) == {UNKNOWN_POD: 1}


def test_container_that_has_ended_since_has_no_name() -> None:
    counts = OomKillCounts()
    counts.receive(OomKills([OomKill(UID, "f" * 64)]), 0.0)
    assert counts.wants_reading({UID: POD})
    assert attribute(counts, POD) == {}
    assert counts.report(0.0) == []
    counts.was_read()
    attribute(counts, POD)
    assert counts.report(0.0) == [(("train", "job-0", ""), 0)]


def test_number_of_series_is_bounded() -> None:
    counts = OomKillCounts()
    pods = [KnownPod("train", f"job-{n}", f"uid-{n}", "", {}, {}) for n in range(MAX_SERIES + 5)]
    counts.receive(OomKills([OomKill(pod.uid, "") for pod in pods]), 0.0)
    assert attribute(counts, *pods) == {LIMIT: 5}
    assert len(counts.report(0.0)) == MAX_SERIES
