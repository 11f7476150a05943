"""Whom a fault concerns, and what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals_hub.notify.owner_deliveries import Made, made_of, owner_text
from nodevitals_hub.notify.owners import Notice, notices, owner_channel, owner_channels, owner_query
from nodevitals_hub.notify.texts.rendering import Room
from nodevitals_hub.records import Alert
from nodevitals_hub.settings.response import Language, NotifySettings, OwnersSettings
from testbed.node import ROOT
from testbed.pack import promtool

ZONE = ZoneInfo("Asia/Shanghai")
TEMPLATE = "".join(
    (ROOT / f"alertmanager/templates/nodevitals.{name}.tmpl").read_text()
    for name in ("owner", "zh.owner")
)


class Series(NamedTuple):
    """A series of nodevitals:job_device."""

    labels: dict[str, str]


def on(node: str, pod: str, owner: str, uuid: str = "GPU-1", **labels: str) -> Series:
    """Return a pod on a device."""
    known = {"cluster": "atlas", "instance": node, "uuid": uuid, "namespace": "vision"}
    return Series({**known, "pod": pod, "owner": owner, **labels})


def alert(status: Literal["firing", "resolved"] = "firing", **labels: str) -> Alert:
    """Return a critical alert for a node."""
    known = {"cluster": "atlas", "instance": "gpu-1", "severity": "critical", "scope": "node"}
    kept = {name: value for name, value in {**known, **labels}.items() if value}
    return Alert(status=status, fingerprint="1", labels=kept, starts_at="2026-11-02T04:00:00Z")


def impact(
    pod: str = "trainer-0",
    owner: str = "ann",
    status: Literal["firing", "resolved"] = "firing",
    **labels: str,
) -> Alert:
    """Return an alert of JobOwnerImpact."""
    known = {"alertname": "JobOwnerImpact", "severity": "info", "component": "job"}
    known |= {"fault": "job_impact", "namespace": "vision", "pod": pod, "owner": owner}
    return alert(status, **{**known, "scope": "device", "uuid": "GPU-1", **labels})


def told(
    alerts: Sequence[Alert], series: Sequence[Series] = (), incident: str = ""
) -> dict[str, list[str]]:
    """Return the jobs that each owner is told of."""
    found = notices(alerts, series, lambda _: incident)
    return {one.owner: [job.name for job in one.jobs] for one in found}


def test_alerts_of_jobs_name_their_owner() -> None:
    alerts = [impact(), impact("trainer-1"), impact("eval-0", "bob")]
    assert told(alerts) == {
        "ann": ["vision/trainer-0", "vision/trainer-1"],
        "bob": ["vision/eval-0"],
    }
    assert told([impact(status="resolved")]) == {}


def test_a_faulty_node_concerns_all_jobs_on_it_and_a_device_those_that_use_it() -> None:
    series = [
        on("gpu-1", "a", "ann", "GPU-1"),
        on("gpu-1", "b", "bob", "GPU-2"),
        on("gpu-2", "c", "cid", "GPU-3"),
        on("gpu-1", "d", "dan", "GPU-4", cluster="other"),
    ]
    assert told([alert()], series) == {"ann": ["vision/a"], "bob": ["vision/b"]}
    assert told([alert(scope="device", uuid="GPU-2")], series) == {"bob": ["vision/b"]}


def test_a_job_of_several_devices_is_named_once() -> None:
    series = [on("gpu-1", "a", "ann", f"GPU-{number}") for number in range(8)]
    assert told([alert(), alert(fault="other")], series) == {"ann": ["vision/a"]}
    assert told([alert(), impact("a")], series) == {"ann": ["vision/a"]}


@pytest.mark.parametrize(
    "labels",
    [
        {"severity": "warning"},
        {"scope": "fleet"},
        {"component": "job"},
        {"drill": "true"},
        {"instance": ""},
        {"status": "resolved"},
    ],
)
def test_other_alerts_concern_no_owner(labels: dict[str, str]) -> None:
    status: Literal["firing", "resolved"] = "resolved" if "status" in labels else "firing"
    labels = {name: value for name, value in labels.items() if name != "status"}
    one = alert(status, **labels)
    assert told([one], [on("gpu-1", "a", "ann"), on("", "b", "bob")]) == {}
    assert owner_query([one]) == ""


def test_a_drill_tells_no_owner() -> None:
    assert told([impact(drill="true")]) == {}


def test_each_job_is_named_once_per_incident() -> None:
    [first] = notices([impact("a")], [], lambda _: "20261102-120000-abcdef")
    keys = {job.key for job in first.jobs}
    later = [impact("a", device="3"), impact("b")]
    [second] = notices(later, [], lambda _: "20261102-120000-abcdef")
    left = second.without(keys)
    assert left is not None
    assert [job.name for job in left.jobs] == ["vision/b"]
    assert first.without(keys) is None
    [other] = notices([impact("a")], [], lambda _: "20261105-120000-fedcba")
    assert other.without(keys) == other


def test_without_an_incident_each_job_is_named_once_a_day() -> None:
    def keys(stamp: str, owner: str = "ann", fault: str = "job_impact") -> set[str]:
        labels = impact(owner=owner, fault=fault).labels
        one = Alert(status="firing", fingerprint="1", labels=labels, starts_at=stamp)
        return {job.key for notice in notices([one], [], lambda _: "") for job in notice.jobs}

    first = keys("2026-11-02T04:00:00Z")
    assert keys("2026-11-02T16:30:00.5Z") == first
    assert keys("2026-11-03T04:00:00Z") != first
    assert keys("2026-11-02T04:00:00Z", owner="bob") != first
    assert keys("2026-11-02T04:00:00Z", fault="pod_oom_kill") != first


def test_channels_of_owners() -> None:
    known = OwnersSettings(channels={"ann": "vision-mail"}, channel="mail")
    assert owner_channels(impact(owner="ann"), known) == {"ann": "vision-mail"}
    assert owner_channels(impact(owner="bob"), known) == {"bob": "mail"}
    assert owner_channels(alert(), known) == {}
    assert owner_channels(impact(owner="bob"), OwnersSettings()) == {}
    assert owner_channel("", known) == ""


def test_each_owner_gets_one_delivery_of_the_jobs_that_are_new() -> None:
    channels = {"mail": {"url_file": "/m"}, "vision": {"url_file": "/v", "language": "zh"}}
    owners = {"channels": {"ann": "vision", "cid": "gone"}, "channel": "mail"}
    known = msgspec.convert({"channels": channels, "owners": owners}, NotifySettings)
    alerts = [impact("a"), impact("b"), impact("c", "bob"), impact("d", "cid")]

    def made(*chosen: Alert, named: Sequence[str] = ()) -> Made:
        found = notices(chosen, [], lambda _: "20261102-120000-abcdef")
        return made_of(found, named, known, "atlas", lambda *_: Room(2000), 1000.0)

    first = made(*alerts)
    assert [(one.owner, one.channel) for one in first.deliveries] == [
        ("ann", "vision"),
        ("bob", "mail"),
    ]
    assert "请保存进度：vision/a, …" in first.deliveries[0].title
    assert "save your work: vision/c" in first.deliveries[1].title
    assert len(set(first.keys)) == 3
    assert made(*alerts, named=first.keys) == Made()
    later = made(*alerts, impact("e"), named=first.keys)
    [delivery] = later.deliveries
    assert "  - vision/e\n" in delivery.text
    assert "vision/a" not in delivery.text
    assert made(*alerts) == first, "repeated after a kill, it is the same delivery"
    assert delivery.id not in {one.id for one in first.deliveries}
    found = notices(alerts, [], lambda _: "")
    assert made_of(found, (), NotifySettings(), "atlas", lambda *_: Room(2000), 1.0) == Made()


def evaluated(folder: Path, query: str, series: Sequence[tuple[str, str]], result: int) -> None:
    """Check how many series promtool finds at 20 minutes."""
    rules = {"groups": [{"name": "g", "rules": [{"record": "found", "expr": query}]}]}
    (folder / "rules.yaml").write_text(json.dumps(rules))
    expected = [{"labels": "{}", "value": result}] if result else []
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [
            {"expr": "count(found)", "eval_time": "20m", "exp_samples": expected},
        ],
    }
    file = folder / "test.yaml"
    file.write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [test]}))
    status, output = promtool("test", "rules", str(file))
    assert status == 0, output


def series(pod: str, node: str = "gpu-1", uuid: str = "GPU-1") -> str:
    """Return a series as promtool reads it."""
    labels = {"instance": node, "uuid": uuid, "pod": pod, "owner": "ann", "vendor": pod}
    return f"nodevitals:job_device{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}"


def test_query_finds_jobs_of_now_and_of_the_last_minutes(tmp_path: Path) -> None:
    known = [
        (series("now"), "1x20"),
        (series("ended"), "1x12 stale"),
        (series("long-ago"), "1x5 stale"),
        (series("elsewhere", "gpu-11"), "1x20"),
        (series("device", "gpu-9", "GPU-7"), "1x20"),
    ]
    alerts = [alert(), alert(scope="device", uuid="GPU-7", instance="gpu-9")]
    evaluated(tmp_path, owner_query(alerts), known, 3)


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a.b", "a|.*", "a b#&~-", "(a", "a{1}", "节点", ".*", "\\Qa\\E", "$1^"]
)
def test_names_in_the_query_are_literal(tmp_path: Path, name: str) -> None:
    known = [(series("its", name), "1x20"), (series("other", "acb"), "1x20")]
    evaluated(tmp_path, owner_query([alert(instance=name)]), known, 1)


def test_query_is_bounded() -> None:
    many = [alert(instance=f"gpu-{number:08}" * 5) for number in range(5000)]
    assert 1000 < len(owner_query(many)) < 60_500
    assert owner_query([alert(instance="a\nb")]) == ""


def text(
    *alerts: Alert, language: Language = "both", size: int = 20_000, cluster: str = ""
) -> tuple[str, str]:
    """Return the message of alerts that concern one owner."""
    [notice] = notices(alerts, [], lambda _: "")
    return owner_text(notice, cluster, language, size, ZONE)


def test_an_owner_reads_what_to_do() -> None:
    title, body = text(impact(), impact("trainer-1"), language="en")
    assert title == "[atlas] Job at risk, save your work: vision/trainer-0, …"
    lines = body.splitlines()
    assert lines[1:4] == [
        "  - vision/trainer-0",
        "      Node: atlas gpu-1",
        "      Fault began by: 2026-11-02 12:00 CST",
    ]
    assert "  1. Save what you can now." in body
    chinese = text(impact(), language="zh")
    assert chinese[0] == "[atlas] 作业可能失败，请保存进度：vision/trainer-0"
    assert "      节点：atlas gpu-1\n      故障开始：不晚于 2026-11-02 12:00 CST\n" in chinese[1]
    both = text(impact())
    assert both[0] == (
        "[atlas] 作业可能失败，请保存进度 / Job at risk, save your work: vision/trainer-0"
    )
    assert both[1].index("您需要做什么") < both[1].index("What to do")


def test_containers_without_memory_have_their_own_text() -> None:
    killed = impact("", fault="pod_oom_kill", job_name="train", container="main", instance="")
    title, body = text(killed, language="en")
    assert title == "[atlas] Killed, out of memory: vision/train"
    assert "  - vision/train\n      Container: main\n      Killed by this time: " in body
    assert "limits.memory" in body


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("fault", ["job_impact", "pod_oom_kill"])
def test_words_are_those_of_the_template_and_have_no_hardware(
    language: Language, fault: str
) -> None:
    title, body = text(impact(fault=fault, instance=""), language=language)
    template = re.sub(r"\s+", "", TEMPLATE)
    for line in (title.partition("] ")[2].partition("：")[0].partition(":")[0], *body.splitlines()):
        if not re.match(r"\s+(-|Node|节点)", line):
            words = re.sub(r"\s+|[\d-]{10} [\d:]{5} CST", "", line)
            assert words in template, line
    assert not re.search(r"GPU|NPU|Xid|ECC|RDMA|PCIe", title + body)


def test_many_jobs_are_counted() -> None:
    jobs = [impact(f"trainer-{number}") for number in range(30)]
    _, body = text(*jobs, language="en")
    assert body.count("  - vision/") == 19
    assert "  and 11 more\n" in body
    title, body = text(*jobs, size=2048)
    assert len(f"{title}\n{body}".encode()) <= 2048
    assert "There is no mail when the repair is done." in body
    shown = body.count("  - vision/") // 2
    assert f"and {30 - shown} more" in body


def test_names_of_users_are_data() -> None:
    hostile = '</at><at user_id="all">@all\nTo: x'
    title, body = text(impact(hostile, hostile, cluster=hostile, namespace=hostile))
    assert not re.search(r"[<>@]", title + body)
    assert "\nTo: x" not in body
    assert "\n" not in title


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=30),
    st.sampled_from(["en", "zh", "both"]),
    st.integers(500, 4000),
)
def test_no_text_is_over_its_size(pods: list[str], language: Language, size: int) -> None:
    title, body = text(*(impact(pod) for pod in pods), language=language, size=size)
    assert len(f"{title}\n{body}".encode()) <= size


def test_notice_is_told_in_order() -> None:
    found = notices([impact("a", "zoe"), impact("b", "ann")], [], lambda _: "")
    assert [one.owner for one in found] == ["ann", "zoe"]
    assert all(isinstance(one, Notice) and one.kind == "at_risk" for one in found)
