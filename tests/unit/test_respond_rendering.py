"""Titles and texts of notifications."""

from __future__ import annotations

import re
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals_hub.notify.channels import robots
from nodevitals_hub.notify.channels.channels import Channel
from nodevitals_hub.notify.texts import words_zh
from nodevitals_hub.notify.texts.rendering import Text, digest, fitted, fitting, render
from nodevitals_hub.plain_text import clean, cut_bytes, link, moment
from nodevitals_hub.records import Alert
from nodevitals_hub.settings.response import ChannelSettings, Language
from testbed.node import ROOT

SHANGHAI = ZoneInfo("Asia/Shanghai")
HUB, INCIDENT = "https://hub.example.org", "20261102-120000-abcdef"
RUNBOOK = "https://example.org/rules/runbooks/AcceleratorLost.md"
TEMPLATE = (ROOT / "alertmanager/templates/nodevitals.zh.tmpl").read_text()
HOSTILE = (
    '<at user_id="all">x</at>',
    "<!channel>",
    "@all @所有人",
    "[Runbook](https://evil.example)",
    "a\nCRITICAL: b",
    "a\u202eb\u2028c\x00d\ud7ff",
    "<script>alert(1)</script>",
)


def lost(number: int = 1, status: Literal["firing", "resolved"] = "firing", **labels: str) -> Alert:
    """Return the alert for a lost GPU."""
    node, device = labels.get("instance", f"gpu-{number}"), labels.get("device", "2")
    return Alert(
        status=status,
        fingerprint=f"{number:016x}",
        labels={
            "alertname": "AcceleratorLost",
            "cluster": "atlas",
            "severity": "critical",
            "component": "accelerator",
            "fault": "accelerator_lost",
            "action": "replace",
            "vendor": "nvidia",
            "instance": node,
            "device": device,
            **labels,
        },
        annotations={
            "summary": f"GPU {device} lost on {node}",
            "description": "Jobs that use it fail.",
            "action": f"Drain the node: kubectl drain {node}",
            "runbook_url": RUNBOOK,
            "dashboard_url": "https://grafana.example.org/d/node",
        },
        starts_at="2026-11-02T04:00:00.123456789Z",
        ends_at="2026-11-02T05:30:10Z" if status == "resolved" else "0001-01-01T00:00:00Z",
        generator_url="https://prometheus.example.org/graph",
    )


def rendered(*alerts: Alert, language: Language = "en", size: int = 20_000, **more: Any) -> Text:
    """Return the notification of alerts."""
    known = {"cluster": "hub-cluster", "external_url": HUB, "incident": INCIDENT, **more}
    return render(alerts, language=language, max_bytes=size, zone=SHANGHAI, **known)


def test_one_alert_says_what_where_and_what_to_do() -> None:
    found = rendered(lost())
    assert found.title == "[FIRING 1] atlas: GPU 2 lost on gpu-1"
    assert found.body.splitlines() == [
        "CRITICAL: GPU 2 lost on gpu-1",
        "  Fault began by: 2026-11-02 11:58:00 CST (for: 2m)",
        "  Firing since: 2026-11-02 12:00:00 CST",
        "  Impact: Jobs that use it fail.",
        "  Action: Drain the node: kubectl drain gpu-1",
        f"  Runbook: {RUNBOOK}",
        "  Dashboard: https://grafana.example.org/d/node",
        "  Graph: https://prometheus.example.org/graph",
        f"Incident, to acknowledge: {HUB}/incidents/{INCIDENT}",
    ]


@pytest.mark.parametrize(("language", "word"), [("en", "acknowledge"), ("zh", "确认")])
def test_what_has_ended_is_not_to_be_acknowledged(language: Language, word: str) -> None:
    """Its incident is named all the same."""
    *_, ended = rendered(lost(status="resolved"), language=language).body.splitlines()
    assert word not in ended
    assert ended.endswith(f"{HUB}/incidents/{INCIDENT}")
    both = rendered(lost(status="resolved"), lost(2), language=language)
    assert word in both.body.splitlines()[-1]


def test_chinese_text_has_the_words_of_the_templates() -> None:
    found = rendered(lost(), language="zh")
    assert found.title == "[告警 1] atlas gpu-1：GPU 2 掉卡"
    assert found.body.splitlines() == [
        "【严重】gpu-1：GPU 2 掉卡",
        "  故障开始：不晚于 2026-11-02 11:58:00 CST (for: 2m)",
        "  触发时间：2026-11-02 12:00:00 CST",
        "  影响：使用该卡的作业已失败或即将失败，可用卡数减少",
        "  处置：更换硬件",
        "  手册：https://example.org/rules/runbooks/zh/AcceleratorLost.md",
        "  仪表盘：https://grafana.example.org/d/node",
        "  图表：https://prometheus.example.org/graph",
        "  英文步骤：Drain the node: kubectl drain gpu-1",
        "  英文摘要：GPU 2 lost on gpu-1",
        f"事件（可在此确认）：{HUB}/incidents/{INCIDENT}",
    ]


def test_both_languages_have_chinese_first_and_one_link() -> None:
    found = rendered(lost(), language="both")
    assert found.title == (
        "[告警 1] atlas gpu-1：GPU 2 掉卡 / [FIRING 1] atlas: GPU 2 lost on gpu-1"
    )
    assert found.body.index("【严重】") < found.body.index("CRITICAL: ")
    assert found.body.count(INCIDENT) == 1


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Test this node: "), ("zh", "检测此节点：")]
)
def test_an_alert_on_a_link_has_the_link_to_a_check_of_its_node(
    language: Language, words: str
) -> None:
    more: dict[str, Any] = {"component": "rdma", "alertname": "RdmaPortDown"}
    down = lost(instance="gpu-1:98", **more)
    *_, last = rendered(down, language=language).body.splitlines()
    assert last == f"{words}{HUB}/checks/for?nodes=gpu-1%3A98&alert=RdmaPortDown"
    for other in (
        rendered(lost(), language=language),
        rendered(down, language=language, external_url=""),
        rendered(lost(status="resolved", **more), language=language),
        rendered(lost(drill="true", **more), language=language),
        rendered(lost(instance="", **more), language=language),
    ):
        assert "/checks/for" not in other.body


def test_the_end_is_named_with_its_time() -> None:
    found = rendered(lost(1, "resolved"), lost(2, "resolved", alertname="Other"), lost(3))
    assert found.title == "[FIRING 1, RESOLVED 2] atlas: GPU 2 lost on gpu-3"
    assert "RESOLVED: GPU 2 lost on gpu-1\n  Fault began by: 2026-11-02 11:58:00 CST" in found.body
    assert "  Firing since: 2026-11-02 12:00:00 CST, until 13:30:10, lasted 1:30:10" in found.body
    assert (
        rendered(lost(1, "resolved"), language="zh").title == "[已恢复 1] atlas gpu-1：GPU 2 掉卡"
    )


def test_a_hundred_nodes_with_one_fault_are_one_line() -> None:
    found = rendered(*(lost(number) for number in range(1, 101)))
    assert found.title == "[FIRING 100] atlas: GPU 2 lost on 100 nodes"
    assert found.body.splitlines()[0] == (
        "CRITICAL: GPU 2 lost on 100 nodes: gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7, gpu-8"
        " and 92 more"
    )
    assert "Action (gpu-1): Drain the node" in found.body
    assert found.body.count("CRITICAL") == 1
    chinese = rendered(*(lost(number) for number in range(1, 101)), language="zh")
    assert chinese.title == "[告警 100] atlas：GPU 2 掉卡，100 个节点"
    assert chinese.body.startswith("【严重】GPU 2 掉卡，100 个节点：gpu-1、gpu-2、")
    assert " 等\n" in chinese.body


def test_different_devices_are_counted() -> None:
    some = [lost(number, instance="gpu-1", device=str(number)) for number in range(3)]
    assert rendered(*some).body.startswith(
        "CRITICAL: AcceleratorLost on gpu-1, 3 alerts: GPU 0 lost, GPU 1 lost, GPU 2 lost\n"
    )
    assert rendered(*some, language="zh").body.startswith(
        "【严重】gpu-1：掉卡，3 条告警：GPU 0、GPU 1、GPU 2\n"
    )
    found = rendered(*some, lost(9))
    assert found.title == "[FIRING 4] atlas: AcceleratorLost on 2 nodes, 4 alerts"


def test_the_most_severe_and_its_cause_come_first() -> None:
    info = lost(1, alertname="Info", fault="oom_kill", severity="info")
    slow = lost(2, alertname="Slow", fault="nvlink_down")
    down = lost(3, alertname="NodeDown", fault="node_down")
    over = lost(4, "resolved", alertname="Over", fault="node_down")
    found = rendered(info, over, slow, down)
    order = re.findall(r"^[A-Z]+: GPU 2 lost on (gpu-\d)", found.body, re.MULTILINE)
    assert order == ["gpu-3", "gpu-2", "gpu-1", "gpu-4"]
    assert found.title.endswith("GPU 2 lost on gpu-3")


def test_title_has_the_cluster_always() -> None:
    unnamed = msgspec.structs.replace(lost(), labels={"alertname": "X", "severity": "info"})
    assert rendered(unnamed).title.startswith("[FIRING 1] hub-cluster: ")
    assert rendered(unnamed, cluster="").title.startswith("[FIRING 1] unnamed cluster: ")
    assert "未命名集群" in rendered(unnamed, cluster="", language="zh").title
    two = rendered(lost(1, cluster="borea"), lost(2))
    assert two.title.startswith("[FIRING 2] atlas and other clusters: ")


def test_drills_are_marked_and_do_not_hide_what_is_real() -> None:
    drill = lost(1, drill="true")
    assert rendered(drill).title == "[DRILL] [FIRING 1] atlas: GPU 2 lost on gpu-1"
    assert rendered(drill, language="zh").title.startswith("[演练] [告警 1] atlas gpu-1：")
    assert rendered(drill).body.startswith("DRILL, CRITICAL: ")
    mixed = rendered(drill, lost(2, severity="warning"))
    assert mixed.title == "[FIRING 2] atlas: GPU 2 lost on gpu-2"
    assert "\nDRILL, CRITICAL: GPU 2 lost on gpu-1" in mixed.body


def test_fleet_incident_says_what_is_common() -> None:
    labels = {"alertname": "FleetIncident", "kind": "network", "severity": "critical"}
    labels |= {"domain": "leaf", "domain_name": "leaf-3", "component": "fleet", "cluster": "atlas"}
    notes = {"summary": "20 of 32 nodes of leaf leaf-3 have a network fault (gpu-1, gpu-2, …)"}
    alert = Alert(status="firing", fingerprint="1", labels=labels, annotations=notes)
    found = rendered(alert, language="zh")
    assert found.title == "[告警 1] atlas：Leaf 交换机 leaf-3：多节点网络故障"
    assert "处置：先检查该交换机的状态、供电和上联，不要逐台处理节点；如属计划内维护" in found.body


def test_a_sites_own_rule_has_its_own_chinese_words() -> None:
    notes = {
        "summary": "FooBar broken on gpu-1",
        "summary_zh": "FooBar 损坏",
        "action_zh": "重启 FooBar",
    }
    labels = {"alertname": "Foo", "severity": "warning", "instance": "gpu-1", "fault": "foo"}
    alert = Alert(status="firing", fingerprint="1", labels=labels, annotations=notes)
    found = rendered(alert, language="zh")
    assert found.body.startswith("【警告】gpu-1：FooBar 损坏\n")
    assert "处置：重启 FooBar\n" in found.body
    assert "影响" not in found.body
    assert "英文摘要：FooBar broken on gpu-1" in found.body


def test_a_sites_own_texts_without_a_language_are_shown_as_they_are() -> None:
    notes = {"summary": "FooBar 损坏", "description": "作业变慢。", "action": "重启 FooBar"}
    labels = {"alertname": "Foo", "severity": "critical", "instance": "gpu-1", "fault": "foo"}
    alert = Alert(status="firing", fingerprint="1", labels=labels, annotations=notes)
    assert rendered(alert, language="zh").body.splitlines()[:3] == [
        "【严重】gpu-1：FooBar 损坏",
        "  影响：作业变慢。",
        "  处置：重启 FooBar",
    ]
    assert "英文" not in rendered(alert, language="zh").body


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("language", ["en", "zh", "both"])
def test_labels_and_annotations_are_data(text: str, language: Language) -> None:
    one = lost()
    labels = {**dict.fromkeys(one.labels, text), "fault": "accelerator_lost"}
    notes = dict.fromkeys(one.annotations, text)
    hostile = msgspec.structs.replace(one, labels=labels, annotations=notes, generator_url=text)
    found = rendered(hostile, lost(2), language=language)
    whole = "\n".join(found)
    assert not re.search(r"[<>@`\x00-\x09\x0b-\x1f\u202a-\u202e\u2028\u2029]|\]\(", whole)
    assert "\nCRITICAL: b" not in whole
    assert "\n" not in found.title


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("https://grafana.example.org/d/x?var=a&b=c#d", True),
        ("http://[2001:db8::1]:3000/", True),
        ("javascript:alert(1)", False),
        ("https://a.example/<script>", False),
        ("https://a.example/ x", False),
        ("https://user:pw@a.example/", False),
        ("https://a.example/[x](y)", False),
        ("https://a.example/" + "x" * 400, False),
        ("", False),
    ],
)
def test_links_are_of_http_and_whole(text: str, good: bool) -> None:
    assert link(text) == (text if good else "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-02T04:00:00Z", "2026-11-02 12:00:00"),
        ("2026-11-02T04:00:00.1Z", "2026-11-02 12:00:00"),
        ("2026-11-02T04:00:00.123456789+02:00", "2026-11-02 10:00:00"),
        ("0001-01-01T00:00:00Z", ""),
        ("9999-12-31T23:59:59Z", ""),
        ("2026-13-02T04:00:00Z", ""),
        ("yesterday", ""),
        ("", ""),
    ],
)
def test_stamps_are_local_or_left_out(text: str, expected: str) -> None:
    found = moment(text, SHANGHAI)
    assert (f"{found:%Y-%m-%d %H:%M:%S}" if found else "") == expected


words = st.text(max_size=60)
alerts = st.builds(
    Alert,
    status=st.sampled_from(["firing", "resolved"]),
    fingerprint=st.just("1"),
    labels=st.dictionaries(
        st.sampled_from(["alertname", "instance", "severity", "fault", "device", "cluster"]), words
    ),
    annotations=st.dictionaries(st.sampled_from(["summary", "description", "action"]), words),
    starts_at=words,
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(alerts, min_size=1, max_size=12),
    st.sampled_from(["en", "zh", "both"]),
    st.integers(500, 3000),
)
def test_no_text_is_over_its_size(some: list[Alert], language: Language, size: int) -> None:
    found = rendered(*some, language=language, size=size)
    assert len(f"{found.title}\n{found.body}".encode()) <= size
    assert found.title
    assert found.body
    assert INCIDENT in found.body, "the rest is read there"


URLS = (
    "dingtalk://SECRET@TOKEN/13800000000",
    "dingtalk://SECRET@TOKEN/?format=markdown",
    "feishu://SECRET@TOKEN/",
    "wecombot://KEY/",
    "wecombot://KEY/?format=markdown",
    "https://prod-01.westeurope.logic.azure.com/workflows/x",
)
LONG = {
    "letters of three bytes": "严重" * 300,
    "letters of two bytes": "Щ" * 600,
    "letters of four bytes": "🔥" * 300,
    "quotes and backslashes": '"\\' * 300,
    "links": "https://example.org/a " * 13,
    "lines": "a",
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("number", [1, 40, 300])
def test_no_request_is_longer_than_its_robot_takes(
    tmp_path: Path, url: str, kind: str, number: int
) -> None:
    """Whatever the letters, of which some have several bytes more as JSON; and nothing of a text
    is cut behind its back.
    """
    (tmp_path / "url").write_text(url)
    (tmp_path / "url").chmod(0o600)
    room = Channel("ops", ChannelSettings(url_file=str(tmp_path / "url"))).room
    some = [
        msgspec.structs.replace(one, annotations={**one.annotations, "description": LONG[kind]})
        for one in (lost(place, alertname=f"Alert{place}") for place in range(number))
    ]

    def made(size: int) -> Text:
        return rendered(*some, language="en", size=size)

    found = fitted(made, lambda text: text, room)
    assert room.excess(found) <= 0
    shown = len(re.findall(r"^CRITICAL: ", found.body, re.MULTILINE))
    left = re.findall(r"^and ([0-9]+) more alert", found.body, re.MULTILINE)
    assert shown + sum(map(int, left)) == number
    assert found.body.endswith(INCIDENT)
    robot = robots.parse_robot(url)
    if robot is not None:
        sent = robots.request_of(robot, *found, now=1.8e9).content
        assert len(sent) <= 20_000
        assert INCIDENT in sent.decode()
    notices = [found] * 100

    def digested(size: int) -> Text:
        named = max(1, fitting(notices, "atlas", "en", size))
        return found if named == 1 else digest(notices[:named], "atlas", "en", size)

    several = fitted(digested, lambda text: text, room)
    assert room.excess(several) <= 0
    if match := re.match(r"\[([0-9]+) NOTIFICATIONS\]", several.title):
        assert several.body.count(found.title) == int(match[1])


@pytest.mark.parametrize("language", ["en", "zh", "both"])
def test_what_does_not_fit_is_counted(language: Language) -> None:
    some = [lost(number, alertname=f"Alert{number}") for number in range(1, 301)]
    found = rendered(*some, language=language, size=4000)
    assert len(f"{found.title}\n{found.body}".encode()) <= 4000
    if language != "zh":
        shown = len(re.findall(r"^CRITICAL", found.body, re.MULTILINE))
        assert f"and {300 - shown} more alerts" in found.body
        assert shown > 5
    if language != "en":
        shown = len(re.findall(r"^【严重】", found.body, re.MULTILINE))
        assert f"另有 {300 - shown} 条告警" in found.body


def test_cut_leaves_whole_characters() -> None:
    assert cut_bytes("严重严重", 8) == "严…"
    assert cut_bytes("严重", 6) == "严重"
    assert cut_bytes("严重", 2) == ""
    assert clean("x" * 500, 300) == "x" * 299 + "…"


def test_digest_has_all_titles_and_the_bodies_that_fit() -> None:
    texts = [rendered(lost(number)) for number in range(1, 31)]
    found = digest(texts, "atlas", "both", 6000)
    assert found.title == "[30 条通知] atlas / [30 NOTIFICATIONS] atlas"
    assert [f"{number}. {text.title}" in found.body for number, text in enumerate(texts, 1)] == (
        [True] * 30
    )
    assert texts[0].body in found.body
    assert texts[29].body not in found.body
    assert len("\n".join(found).encode()) <= 6000
    assert digest([rendered(lost(drill="true"))] * 2, "atlas", "en", 700).title.startswith(
        "[DRILL]"
    )
    mixed = [rendered(lost(drill="true")), rendered(lost())]
    assert not digest(mixed, "atlas", "en", 700).title.startswith("[DRILL]")


@pytest.mark.parametrize("language", ["en", "zh", "both"])
@pytest.mark.parametrize("size", [500, 700, 2048, 20_000])
def test_a_digest_has_only_as_many_as_it_names(language: Language, size: int) -> None:
    """The others are in the next one."""
    texts = [rendered(lost(number), language=language) for number in range(1, 101)]
    named = fitting(texts, "atlas", language, size)
    assert 1 <= named <= 100
    found = digest(texts[:named], "atlas", language, size)
    assert len("\n".join(found).encode()) <= size
    lines = found.body.splitlines()
    assert all(f"{number}. {text.title}" in lines for number, text in enumerate(texts[:named], 1))
    assert f"{named} " in found.title
    if named < 100:
        longer = digest(texts[: named + 1], "atlas", language, size)
        assert len("\n".join(longer).encode()) > size


def test_time_zone_is_that_of_the_settings() -> None:
    found = render([lost()], "a", "en", "", "", 900, timezone(timedelta(hours=-5)))
    assert "Firing since: 2026-11-01 23:00:00 UTC-05:00" in found.body
    assert "Incident" not in found.body


def test_only_what_fills_up_is_said_to() -> None:
    """Not a file system that became read-only, whose name begins alike."""
    full = [one for one in words_zh.FAULTS if words_zh.impact(one, "", "").startswith("写满后")]
    assert full == ["filesystem_space_low", "filesystem_filling", "inodes_low"]
