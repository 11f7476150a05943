"""Storms of notifications at robots: within their limits, and none is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.http_server import Response
from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send
from testbed.robots import KEY, SECRET, TOKEN, Robots, Sent

NOTIFICATIONS = 200
URLS = {
    "dingtalk": f"dingtalk://{SECRET}@{TOKEN}/",
    "dingtalk-markdown": f"dingtalk://{SECRET}@{TOKEN}/?format=markdown",
    "wecom": f"wecombot://{KEY}/",
    "wecom-markdown": f"wecombot://{KEY}/?format=markdown",
    "feishu": f"feishu://{SECRET}@{TOKEN}/",
    "lark": f"lark://{SECRET}@{TOKEN}/",
}
NOTES = {
    "summary_zh": 'GPU 掉卡，"nvidia-smi" 中已不可见',
    "description_zh": "使用该卡的作业已失败或即将失败，可用卡数减少。" * 20,
    "action_zh": "隔离节点，然后重启：\\ kubectl drain --ignore-daemonsets",
    "runbook_url": "https://runbooks.example.org/zh/AcceleratorLost.md",
    "dashboard_url": "https://grafana.example.org/d/node?var-node=gpu&var-cluster=test",
}
_BRACKETS = str.maketrans("［］", "[]")


def chinese(number: int) -> dict[str, Any]:
    """A message whose texts have letters of three bytes, quotes, backslashes and links."""
    body = message(number)
    body["alerts"][0]["annotations"] |= NOTES
    return body


def hub_at(folder: Path, robots: Robots, far: FarSide, language: str) -> HubProcess:
    """A hub with one channel per robot."""
    hub = hub_with_channels(folder, far, URLS, per_minute=20, language=language)
    settings = yaml.safe_load(hub.config.read_text())
    for one in settings["notify"]["channels"].values():
        one["per_minute"] = 20
    hub.config.write_text(yaml.safe_dump({**settings, "external_url": "https://hub.example.org"}))
    for name, url in URLS.items():
        (folder / f"{name}-url").write_text(url)
    hub.environment = robots.environment()
    return hub


def channel_of(sent: Sent) -> str:
    """The channel that sent a request."""
    name = {
        "oapi.dingtalk.com": "dingtalk",
        "qyapi.weixin.qq.com": "wecom",
        "open.feishu.cn": "feishu",
        "open.larksuite.com": "lark",
    }[sent.host]
    return f"{name}-markdown" if "markdown" in sent.body else name


def text_of(sent: Sent) -> str:
    """Title and text, line by line."""
    body = sent.body
    if "content" in body:
        post = body["content"]["post"]["zh_cn"]
        lines = ["".join(part["text"] for part in line) for line in post["content"]]
        return "\n".join([post["title"], *lines])
    [field] = [body[kind] for kind in ("text", "markdown") if kind in body]
    text = str(field.get("content") or field["text"])
    return text.translate(_BRACKETS).replace("  \n", "\n")  # of markdown


def counted(hub: HubProcess, outcome: str) -> dict[str, float]:
    """Notifications with an outcome, by channel."""
    text = requests.get(f"http://127.0.0.1:{hub.port}/metrics", timeout=60).text
    name = "nodevitals_hub_notifications_total"
    found = re.findall(rf'{name}{{channel="(\S+)",outcome="{outcome}"}} (\S+)', text)
    return {channel: float(number) for channel, number in found}


def test_a_storm_in_chinese_is_sent_within_the_limits_of_each_robot(tmp_path: Path) -> None:
    """20 messages of a minute, bytes of a request: each notification is named once in a message
    that the robot took, and only those are counted. One is refused, with HTTP 200.
    """
    with Robots(tmp_path) as robots, FarSide() as far:
        hub = hub_at(tmp_path, robots, far, "zh")
        refusal = {"code": 9499, "msg": "Bad Request", "errcode": 9499}
        robots.answers = [Response(200, json.dumps(refusal).encode())]
        robots.hold.clear()
        with hub:
            for number in range(NOTIFICATIONS):
                assert send(hub, chinese(number)).ok
            robots.hold.set()
            all_of_them = dict.fromkeys(URLS, float(NOTIFICATIONS))
            wait_until(lambda: counted(hub, "sent") == all_of_them, 60, "all of them")
            assert sum(counted(hub, "failed").values()) == 1
    first, *taken = robots.sent
    assert [sent.problem for sent in taken] == [""] * len(taken)
    named: dict[str, list[int]] = {name: [] for name in URLS}
    for sent in taken:
        title, *lines = text_of(sent).splitlines()
        assert "test" in title
        several = re.match(r"(?:#+ )?\[([0-9]+) 条通知\]", title)
        found = [
            int(one)
            for line in ([title] if several is None else lines)
            for one in re.findall(r"\[告警 1\] test gpu-([0-9]+)", line)
        ]
        assert len(found) == (1 if several is None else int(several[1]))
        named[channel_of(sent)] += found
    for name, numbers in named.items():
        assert sorted(numbers) == list(range(NOTIFICATIONS)), (name, channel_of(first))
        assert len([sent for sent in robots.sent if channel_of(sent) == name]) <= 20


@pytest.mark.parametrize("language", ["zh", "en", "both"])
def test_a_notification_of_200_alerts_counts_those_that_do_not_fit(
    tmp_path: Path, language: str
) -> None:
    """And has the link to its incident all the same."""
    body = chinese(0)
    [alert] = body["alerts"]
    body["alerts"] = [
        {
            **alert,
            "fingerprint": f"{number:016x}",
            "labels": {**alert["labels"], "alertname": f"Alert{number}"},
            "annotations": {**alert["annotations"], "summary": f"fault {number} of the test"},
        }
        for number in range(NOTIFICATIONS)
    ]
    with (
        Robots(tmp_path) as robots,
        FarSide() as far,
        hub_at(tmp_path, robots, far, language) as hub,
    ):
        assert send(hub, body).ok
        one_each = dict.fromkeys(URLS, 1.0)
        wait_until(lambda: counted(hub, "sent") == one_each, 30, "the notification")
    assert sorted(channel_of(sent) for sent in robots.sent) == sorted(URLS)
    for sent in robots.sent:
        assert sent.problem == ""
        text = text_of(sent)
        assert re.search(r"https://hub\.example\.org/incidents/\S+&s=[0-9a-f]{32}$", text)
        for head, more in (
            (r"^CRITICAL: ", r"^and ([0-9]+) more alerts$"),
            (r"^【严重】", r"^另有 ([0-9]+) 条告警$"),
        ):
            shown = len(re.findall(head, text, re.MULTILINE))
            left = [int(one) for one in re.findall(more, text, re.MULTILINE)]
            assert not shown or shown + sum(left) == NOTIFICATIONS, channel_of(sent)
