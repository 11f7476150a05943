"""The texts of notifications, by the shipped configurations in a real Alertmanager: mails, pages
and chat messages as they arrive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.annotated import annotated
from testbed.messages import (
    ENDED,
    find_mail,
    find_page,
    gpu,
    lost_gpu,
    markdown,
    messages,
    owners_jobs,
    post,
    shown,
)
from testbed.node import ROOT, wait_until
from testbed.shipped import FilledIn, filled_in, start_as_shipped


def test_messages_of_the_documentation_are_what_the_templates_render(tmp_path: Path) -> None:
    assert shown() == markdown(messages(tmp_path)), "python -m tests.bench messages"


@pytest.mark.parametrize("name", ["alertmanager.yaml", "minimal.yaml"])
def test_nothing_is_sent_until_a_receiver_is_filled_in(tmp_path: Path, name: str) -> None:
    text = (ROOT / "alertmanager" / name).read_text()
    assert "127.0.0.1" not in text
    assert "localhost" not in text
    config = yaml.safe_load(text)
    assert [list(receiver) for receiver in config["receivers"]] == [["name"]] * len(
        config["receivers"]
    )
    ready = {receiver["name"]: list(receiver) for receiver in filled_in(name)["receivers"]}
    assert all(len(keys) > 1 for receiver, keys in ready.items() if receiver != "null")
    with start_as_shipped(tmp_path, name) as manager:
        post(manager, [annotated(tmp_path, "mount_hung", instance="n1", mountpoint="/data")])
        wait_until(lambda: manager.value("alertmanager_alerts", state="active") == 1)
        assert manager.value("alertmanager_notifications_total") == 0
        assert manager.value("alertmanager_notifications_failed_total") == 0


def test_minimal_configuration_has_the_inhibitions_of_the_full_one() -> None:
    full, minimal = filled_in("alertmanager.yaml"), filled_in("minimal.yaml")
    assert len(minimal["inhibit_rules"]) > 10
    assert minimal["inhibit_rules"] == full["inhibit_rules"]


def test_minimal_configuration_sends_pages_tickets_and_pings(tmp_path: Path) -> None:
    watchdog = {"alertname": "Watchdog", "severity": "none", "cluster": "atlas"}
    with FilledIn(tmp_path, "minimal.yaml") as manager:
        post(manager, [{"labels": watchdog, "annotations": {}}])
        post(manager, [annotated(tmp_path, "mount_hung", instance="n1", mountpoint="/data")])
        post(manager, [annotated(tmp_path, "pcie_degraded", 8, **gpu(5))])
        # Context, and what an inhibition mutes.
        post(manager, owners_jobs(tmp_path))
        post(manager, [annotated(tmp_path, "exporter_down", instance="n2")])
        post(manager, [annotated(tmp_path, "config_reload_failed", instance="n2")])
        page = find_mail(manager, "Subject: [FIRING] atlas n1: /data hung")
        assert page.splitlines()[3] == "CRITICAL: /data hung on n1"
        find_mail(manager, "[FIRING] atlas gpu-node-1: PCIe link of GPU 5 reduced to 8 lanes")
        find_mail(manager, "[FIRING] atlas n2: nodevitals cannot be scraped")
        wait_until(
            lambda: (
                {"operators", "operators-webhook", "dead-mans-switch-webhook"}
                == {one.path for one in manager.inbox.messages}
            )
        )
        find_mail(manager, "atlas n2")
        assert len(manager.inbox.mails) == 3
        assert {mail["To"] for mail in manager.inbox.mails} == {"operators@example.com"}


@pytest.mark.parametrize("name", ["alertmanager.yaml", "minimal.yaml"])
def test_every_shipped_receiver_sends_with_chinese_names(tmp_path: Path, name: str) -> None:
    """Each `nodevitals.` replaced by `nodevitals.zh.`, as the comment in the file says."""
    with FilledIn(tmp_path, name, chinese=True) as manager:
        post(manager, lost_gpu(tmp_path))
        post(manager, owners_jobs(tmp_path))
        post(manager, [annotated(tmp_path, "pcie_degraded", 8, **gpu(5))])
        mail = find_mail(manager, "] atlas gpu-node-1：GPU 0 掉卡（Xid 79）")
        assert "【严重】gpu-node-1：GPU 0 掉卡" in mail
        if name == "alertmanager.yaml":
            find_page(manager, "atlas gpu-node-1：GPU 0 掉卡（Xid 79）")
            find_mail(manager, "To: alice@example.com", "作业可能失败")
            wait_until(lambda: any("掉卡" in chat["title"] for chat in _chats(manager)))
        assert manager.value("alertmanager_notifications_failed_total") == 0
        assert {one["References"] for one in manager.inbox.mails} >= {
            "<group.atlas.gpu-node-1@nodevitals>"
        }


def test_page_chat_and_escalation_of_a_lost_gpu(tmp_path: Path) -> None:
    title = "atlas gpu-node-1: GPU 0 lost (Xid 79), 21 more alerts"
    with FilledIn(tmp_path, "alertmanager.yaml") as manager:
        alerts = lost_gpu(tmp_path)
        post(manager, alerts)
        find_page(manager, title)
        page = _pages(manager)[-1]
        assert page["event_action"] == "trigger"
        assert page["payload"]["severity"] == "critical"
        place = {name: page["payload"][name] for name in ("group", "component", "class")}
        assert place == {"group": "atlas", "component": "gpu-node-1", "class": "accelerator"}
        first = find_mail(manager, f"[30 MIN] {title}")
        assert first.startswith("To: team-lead@example.com")
        find_mail(manager, f"[2 HOURS] {title}")
        chat_title = f"[FIRING] {title}"
        wait_until(lambda: chat_title in [chat["title"] for chat in _chats(manager)])
        assert all(3 <= len(chat["text"].splitlines()) <= 4 for chat in _chats(manager))
        # The neighbours recover first: what is resolved is listed, and what still fires leads.
        post(manager, alerts[:-2], ENDED)
        find_mail(manager, "] atlas gpu-node-1: GPU 0 lost (Xid 79)\n", "resolved, 2 still firing.")
        post(manager, alerts[-2:], ENDED)
        find_mail(manager, "Subject: [RESOLVED] atlas gpu-node-1: GPU 0 lost")
        wait_until(lambda: any(body["event_action"] == "resolve" for body in _pages(manager)))
        assert len({body["dedup_key"] for body in _pages(manager)}) == 1
        # One thread per receiver's group, whatever the subjects say.
        assert {mail["References"] for mail in manager.inbox.mails} == {
            "<group.atlas.gpu-node-1@nodevitals>"
        }


def test_owner_is_not_notified_when_the_fault_is_resolved(tmp_path: Path) -> None:
    with FilledIn(tmp_path, "alertmanager.yaml") as manager:
        jobs = owners_jobs(tmp_path)
        post(manager, jobs)
        find_mail(manager, "trainer-0", "trainer-1", "eval-7f9c")
        before = len(manager.inbox.mails)
        post(manager, jobs, ENDED)
        ticket = annotated(tmp_path, "pcie_degraded", 8, **gpu(5))
        post(manager, [ticket])
        find_mail(manager, "[FIRING]")
        post(manager, [ticket], ENDED)
        find_mail(manager, "[RESOLVED]")
        mails = [mail for mail in manager.inbox.mails if mail["To"] == "alice@example.com"]
        assert len(mails) == before


def test_hostile_labels_arrive_in_a_valid_mail(tmp_path: Path) -> None:
    values = ("n1\r\nBcc: x@example.com\r\n\r\nforged", "x" * 5000, "漢" * 5000, "{{ .Status")
    with FilledIn(tmp_path, "alertmanager.yaml") as manager:
        for value in values:
            labels = {"instance": value, "mountpoint": value, "source": value, "component": "c"}
            hostile = annotated(tmp_path, "mount_slow", **labels)
            hostile["annotations"]["summary"] = f"{value} slow on {value}"
            post(manager, [hostile])
        wait_until(lambda: len(manager.inbox.mails) == len(values))
        for mail in manager.inbox.mails:
            assert mail["Bcc"] is None
            assert mail["Subject"].startswith("[FIRING] atlas ")
            assert len(mail["Subject"]) < 100
            assert mail["References"].startswith("<group.atlas.")


def _pages(manager: FilledIn) -> list[dict[str, Any]]:
    return [one.body for one in manager.inbox.messages if one.path == "on-call"]


def _chats(manager: FilledIn) -> list[dict[str, Any]]:
    return [one.body["attachments"][0] for one in manager.inbox.messages if one.path == "chat"]
