"""The texts of notifications: the leading alert, its place, what to do; in both languages."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.annotated import annotated
from testbed.messages import gpu, incident, killed_containers, lost_gpu, owners_jobs
from testbed.node import ROOT
from testbed.rendered import CHATS, NODE_GROUP, RUNBOOKS, alert, message, messages
from testbed.shipped import filled_in, in_chinese


def port(status: str = "firing") -> dict[str, Any]:
    """Return the alert on a port of n1."""
    labels = {"cluster": "c", "instance": "n1", "device": "mlx5_0", "fault": "rdma_port_down"}
    labels["alertname"] = "RdmaPortDown"
    summary = "RDMA port mlx5_0/1 down or missing on n1"
    return alert(status, summary, port="1", action="drain", **labels)


def mount(status: str = "resolved") -> dict[str, Any]:
    """Return the alert on a mount of n1."""
    labels = {"cluster": "c", "instance": "n1", "mountpoint": "/data", "source": "filer:/x"}
    return alert(status, "/data hung on n1", action="investigate", **labels)


def test_english_notification_has_every_field(tmp_path: Path) -> None:
    assert message(tmp_path, "nodevitals.subject", [port(), mount()]) == [
        "[FIRING] c: RDMA port mlx5_0/1 down or missing on n1"
    ]
    lines = message(tmp_path, "nodevitals.text", [mount(), port()])
    assert lines[:3] == [
        "CRITICAL: RDMA port mlx5_0/1 down or missing on n1",
        "  Action:  repair it",
        "  Impact:  jobs fail",
    ]
    for line in (
        "  Where:   c n1, device mlx5_0",
        "  Fault began by: 2026-11-21 01:58:00 UTC (for: 2m)",
        "  Firing since:   2026-11-21 02:00:00 UTC",
        f"  Runbook: {RUNBOOKS}/MountHung.md",
        "RESOLVED: /data hung on n1",
        "  Where:   c n1, /data, filer:/x",
        "  Fault began by: 2026-11-21 02:00:00 UTC",
        "  Firing since:   2026-11-21 02:00:00 UTC, until 02:30:00",
        "  Lasted:  30m0s",
        "1 resolved, 1 still firing.",
        "Alertmanager: http://alertmanager.example",
    ):
        assert line in lines
    assert sum(line.startswith("  Action:") for line in lines) == 1  # a resolved alert needs none


def test_chinese_notification_has_every_field(tmp_path: Path) -> None:
    assert message(tmp_path, "nodevitals.zh.subject", [port(), mount()], {"instance": "n1"}) == [
        "[告警] c n1：mlx5_0/1 RDMA 端口断开"
    ]
    lines = message(tmp_path, "nodevitals.zh.text", [mount(), port()])
    assert lines[:3] == [
        "【严重】n1：mlx5_0/1 RDMA 端口断开",
        "  处置：排空节点",
        "  影响：经过该链路的多机多卡作业会失败或变慢",
    ]
    for line in (
        "  位置：c n1，设备 mlx5_0",
        f"  手册：{RUNBOOKS}/zh/MountHung.md",
        "【已恢复】n1：/data 存储挂死",
        "  故障开始：不晚于 2026-11-21 01:58:00 UTC (for: 2m)",
        "  触发时间：2026-11-21 02:00:00 UTC",
        "  触发时间：2026-11-21 02:00:00 UTC，恢复时间：02:30:00",
        "已恢复 1 条，仍有 1 条未恢复。",
    ):
        assert line in lines


def test_the_root_cause_leads_whatever_the_order(tmp_path: Path) -> None:
    alerts = lost_gpu(tmp_path)
    for found in (alerts, alerts[::-1], alerts[8:] + alerts[:8]):
        english = message(tmp_path, "nodevitals.subject", found, NODE_GROUP)
        assert english == ["[FIRING] atlas gpu-node-1: GPU 0 lost (Xid 79), 21 more alerts"]
        chinese = message(tmp_path, "nodevitals.zh.subject", found, NODE_GROUP)
        assert chinese == ["[告警] atlas gpu-node-1：GPU 0 掉卡（Xid 79），另有 21 条告警"]
        first = {
            "nodevitals.text": "CRITICAL: GPU 0 lost on gpu-node-1",
            "nodevitals.zh.text": "【严重】gpu-node-1：GPU 0 掉卡",
            "nodevitals.chat": "GPU 0 lost on gpu-node-1",
            "nodevitals.zh.chat": "gpu-node-1：GPU 0 掉卡",
        }
        texts = messages(tmp_path, tuple(first), found, NODE_GROUP)
        assert {name: lines[0] for name, lines in texts.items()} == first


def test_severity_leads_before_the_cause_and_what_fires_before_what_is_resolved(
    tmp_path: Path,
) -> None:
    group = [
        alert(summary="warning", severity="warning", fault="node_down"),
        alert("resolved", summary="resolved", fault="node_down"),
        alert(summary="context", severity="info", fault="node_down"),
        alert(summary="neighbour", fault="nvlink_down"),
        alert(summary="unknown", severity="page", fault="other"),
        alert(summary="cause", fault="node_down"),
    ]
    for order in itertools.islice(itertools.permutations(group), 0, 720, 97):
        lines = message(tmp_path, "nodevitals.text", list(order))
        found = [line.partition(": ")[2] for line in lines if re.match(r"[A-Z]+: ", line)]
        assert found == ["cause", "neighbour", "warning", "context", "unknown", "resolved"]


def test_all_templates_have_the_same_order_of_causes() -> None:
    templates = (ROOT / "alertmanager/templates").glob("*.tmpl")
    orders = re.findall(r"\$cause := (.*?) }}", "".join(file.read_text() for file in templates))
    assert len(orders) == 6
    assert len(set(orders)) == 1


@pytest.mark.parametrize(
    ("clusters", "english", "chinese"),
    [
        (["atlas", "atlas"], "atlas: ", "atlas："),
        (["zeus", "atlas"], "atlas and other clusters: ", "atlas 等多个集群："),
        (["", ""], "unnamed cluster: ", "未命名集群："),
        (["", "atlas"], "atlas: ", "atlas："),
    ],
)
def test_every_subject_has_the_cluster(
    tmp_path: Path, clusters: list[str], english: str, chinese: str
) -> None:
    found = [alert(cluster=name) if name else alert() for name in clusters]
    assert message(tmp_path, "nodevitals.subject", found)[0].startswith(f"[FIRING] {english}")
    assert message(tmp_path, "nodevitals.zh.subject", found)[0].startswith(f"[告警] {chinese}")


INCIDENTS = [
    ("network", "leaf", "leaf-3", "leaf leaf-3: network", "Leaf 交换机 leaf-3：多节点网络故障"),
    ("network", "switch", "sw-1", "switch sw-1: network", "交换机 sw-1：多节点网络故障"),
    ("storage", "source", "nas:/x", "filer nas:/x: storage", "存储 nas:/x：多节点存储故障"),
    ("driver", "driver_version", "550", "driver 550: driver", "驱动版本 550：多节点驱动异常"),
    ("node", "rack", "r1", "rack r1: node", "机柜 r1：多节点宕机或失联"),
    (
        "clock_unsynchronized",
        "pool",
        "p",
        "pool p: clock unsynchronized",
        "资源池 p：多节点时钟未同步",
    ),
    ("network", "cluster", "atlas", "whole cluster: network", "整个集群：多节点网络故障"),
]


@pytest.mark.parametrize(("kind", "domain", "name", "english", "chinese"), INCIDENTS)
def test_title_of_an_incident_is_the_same_when_it_is_resolved(
    tmp_path: Path, kind: str, domain: str, name: str, english: str, chinese: str
) -> None:
    one = incident(tmp_path, kind, domain, name, "64 of 80 nodes of it: faults (n1, n2, n3, …)")
    later = {**one, "status": "resolved", "annotations": {"summary": "3 of 80 nodes of it: x (n1)"}}
    for found, mark, zh_mark in ((one, "[FIRING]", "[告警]"), (later, "[RESOLVED]", "[已恢复]")):
        assert message(tmp_path, "nodevitals.subject", [found]) == [
            f"{mark} atlas: {english} incident"
        ]
        assert message(tmp_path, "nodevitals.zh.subject", [found]) == [
            f"{zh_mark} atlas：{chinese}"
        ]
    assert message(tmp_path, "nodevitals.text", [one])[0].startswith("CRITICAL: 64 of 80 nodes of")
    counts = "80 个节点中有 64 个受影响（n1、n2、n3 等）"
    lines = message(tmp_path, "nodevitals.zh.text", [one])
    assert lines[0] == f"【严重】{chinese}，{counts}"
    assert lines[1].startswith("  处置：先")
    assert message(tmp_path, "nodevitals.zh.chat", [one])[0] == f"{chinese}，{counts}"
    # Without an instance, no part is empty.
    assert not [line for line in lines if re.search(r"[：，、]$|：，|（）|  $", line)]


def test_many_alerts_are_one_line_each_and_their_number_is_limited(tmp_path: Path) -> None:
    for number, listed in ((3, 3), (5, 5), (22, 22), (30, 30), (300, 30)):
        found = [alert(summary=f"s{index}") for index in range(number)]
        texts = messages(tmp_path, ("nodevitals.text", "nodevitals.zh.text", *CHATS), found)
        for template in ("nodevitals.text", "nodevitals.zh.text"):
            lines = texts[template]
            assert sum(line.startswith(("CRITICAL", "【严重】")) for line in lines) == listed
            in_full = sum(line.startswith(("  Action", "  处置")) for line in lines)
            assert in_full == (min(number, 3) if number <= 5 else 1)
        assert ("另有 270 条" in lines) == (number == 300)
        for template in CHATS:
            assert len(texts[template]) <= 4


def test_every_fault_reads_well_in_chinese(tmp_path: Path) -> None:
    text = (ROOT / "alertmanager/templates/nodevitals.zh.tmpl").read_text()
    faults = re.findall(r'eq \. "(\w+)" }}', text.partition('define "nodevitals.zh.fault"')[2])
    assert len(faults) > 60
    alerts = [
        alert(fault=fault, alertname=fault, instance="n1", component="accelerator", severity="info")
        for fault in faults
    ]
    for start in range(0, len(alerts), 3):
        lines = message(tmp_path, "nodevitals.zh.text", alerts[start : start + 3])
        assert not [line for line in lines if re.search("：$|：，", line)]
        assert not [line for line in lines for fault in faults[start : start + 3] if fault in line]


def test_a_sites_own_alert_is_shown_in_its_own_words(tmp_path: Path) -> None:
    labels = {"alertname": "ScratchFull", "fault": "scratch_nearly_full_soon", "instance": "n1"}
    notes = {
        "summary": "临时盘快满了",
        "description": "新作业无法写入。",
        "action": "清理 /scratch",
    }
    own = {**alert(**labels, severity="warning", component="node"), "annotations": notes}
    assert message(tmp_path, "nodevitals.zh.title", [own])[0].endswith("：临时盘快满了")
    lines = message(tmp_path, "nodevitals.zh.text", [own])
    assert lines[:3] == [
        "【警告】n1：临时盘快满了",
        "  处置：清理 /scratch",
        "  影响：新作业无法写入。",
    ]
    assert "英文" not in "".join(lines)
    assert message(tmp_path, "nodevitals.zh.chat", [own]) == [
        "n1：临时盘快满了",
        "影响：新作业无法写入。",
        "处置：清理 /scratch",
    ]
    own["annotations"] = {}
    assert "  影响：未说明" in message(tmp_path, "nodevitals.zh.text", [own])
    for template in ("nodevitals.title", "nodevitals.zh.title", "nodevitals.chat"):
        assert "scratch_nearly_full_soon" in message(tmp_path, template, [own])[0]


def test_chinese_texts_link_to_pages_that_exist(tmp_path: Path) -> None:
    for fault in ("accelerator_lost", "nvidia_xid", "mount_hung", "rdma_port_down"):
        lines = message(tmp_path, "nodevitals.zh.text", [annotated(tmp_path, fault)])
        [page] = [line for line in lines if line.startswith("  手册：")]
        assert (ROOT / "rules" / page.partition("/rules/")[2]).is_file()


@pytest.mark.parametrize(
    ("prefix", "title", "node", "began", "words"),
    [
        (
            "nodevitals.owner",
            "[atlas] Job at risk, save your work: vision/",
            "Node: ",
            "Fault began by: ",
            ("Save what you can", "expect a restart", "checkpoint"),
        ),
        (
            "nodevitals.zh.owner",
            "[atlas] 作业可能失败，请保存进度：vision/",
            "节点：",
            "故障开始：不晚于 ",
            ("保存", "重启作业", "检查点"),
        ),
    ],
)
def test_owner_gets_one_mail_without_words_of_hardware(
    tmp_path: Path, prefix: str, title: str, node: str, began: str, words: tuple[str, ...]
) -> None:
    alerts = owners_jobs(tmp_path)
    group = {"cluster": "atlas", "owner": "alice"}
    [subject] = message(tmp_path, f"{prefix}.subject", alerts, group)
    assert subject.startswith(title)
    lines = message(tmp_path, f"{prefix}.text", alerts, group)
    jobs = [line for line in lines if line.startswith("  - ")]
    assert jobs == ["  - vision/trainer-0", "  - vision/trainer-1", "  - vision/eval-7f9c"]
    assert lines.count(f"      {node}atlas gpu-node-1") == 3
    assert lines.count(f"      {began}2026-11-21 02:00 UTC") == 3
    texts = "\n".join(
        [subject, *lines, *(x for one in alerts for x in one["annotations"].values())]
    )
    assert not re.search(r"GPU|NPU|Xid|ECC|uuid|device|driver|显存|卡[^住]|驱动", texts)
    for word in words:
        assert word in texts


def test_owner_is_notified_of_containers_without_memory(tmp_path: Path) -> None:
    alerts = killed_containers(tmp_path)
    [subject] = message(tmp_path, "nodevitals.owner.subject", alerts)
    assert subject == "[atlas] Killed, out of memory: vision/trainer, …"
    lines = message(tmp_path, "nodevitals.owner.text", alerts)
    jobs = [line for line in lines if line.startswith("  - ")]
    assert jobs == [f"  - vision/{job}" for job in ("trainer", "trainer", "eval", "shell-0")]
    assert lines.count("      Container: main") == 3
    text = "\n".join(lines)
    for words in ("limits.memory", "batch size", "data loader", "checkpoint"):
        assert words in text
    chinese = message(tmp_path, "nodevitals.zh.owner.text", alerts)
    assert chinese.count("      容器：main") == 3
    assert "limits.memory" in "\n".join(chinese)
    assert "faulty node" not in text


def test_a_mail_of_both_kinds_has_both_texts(tmp_path: Path) -> None:
    """A site may group its owners' alerts in another way."""
    alerts = [*killed_containers(tmp_path), *owners_jobs(tmp_path)]
    [subject] = message(tmp_path, "nodevitals.owner.subject", alerts)
    assert "Job at risk" in subject
    lines = message(tmp_path, "nodevitals.owner.text", alerts)
    assert sum(line.startswith("  - ") for line in lines) == 3 + 4
    assert "      Container: loader" in lines
    assert "      Node: atlas gpu-node-1" in lines


def test_owner_of_many_jobs_gets_a_short_mail(tmp_path: Path) -> None:
    one = annotated(tmp_path, "job_impact", namespace="ns", owner="alice", **gpu(1))
    alerts = [{**one, "labels": {**one["labels"], "pod": f"p{number}"}} for number in range(45)]
    lines = message(tmp_path, "nodevitals.owner.text", alerts)
    assert sum(line.startswith("  - ") for line in lines) == 20
    assert "  and 25 more" in lines


def test_every_receiver_is_english_as_shipped_and_chinese_where_chosen(tmp_path: Path) -> None:
    """The names of templates, in the settings that stand in comments; each has a Chinese form."""
    for name in ("alertmanager.yaml", "minimal.yaml"):
        config = filled_in(name)
        assert any("slack_configs" in receiver for receiver in config["receivers"])
        texts = str(config["receivers"])
        assert ".zh." not in texts
        chinese = set(re.findall(r'"(nodevitals\.zh\.[\w.]+)"', in_chinese(texts)))
        chinese.discard("nodevitals.zh.line")  # of one alert
        assert {f"nodevitals.zh.{text}" for text in ("subject", "text", "chat")} <= chinese
        for template, lines in messages(tmp_path, tuple(sorted(chinese)), [port()]).items():
            code = template.endswith((".thread", ".severity"))
            assert code or re.search("[一-鿿]", "".join(lines))
