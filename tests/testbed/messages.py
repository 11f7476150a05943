"""Five notifications as people receive them: alerts of the shipped rules, through a real
Alertmanager with the shipped configurations, filled in. docs/alerts.md shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import requests

from testbed.annotated import annotated
from testbed.node import ROOT, wait_until
from testbed.shipped import FilledIn, Shipped

PAGE = ROOT / "docs/alerts.md"
BEGIN, END = "<!-- messages -->\n", "<!-- end of messages -->\n"
STARTED, ENDED = "2025-03-04T03:12:00Z", "2025-03-04T03:47:00Z"
FIRING = "2099-01-01T00:00:00Z"
GRAPH = "http://prometheus.example.com/graph"
NODE = "gpu-node-1"


def post(manager: Shipped, alerts: list[dict[str, Any]], ends: str = FIRING) -> None:
    """Post alerts that started at STARTED, as Prometheus does.

    Alertmanager does not wait for the rest of a group whose first alert is that old: they arrive in
    two messages or more.
    """
    times = {"startsAt": STARTED, "endsAt": ends, "generatorURL": GRAPH}
    body = [{**alert, **times} for alert in alerts]
    answer = requests.post(f"{manager.url}/api/v2/alerts", json=body, timeout=60)
    assert answer.ok, answer.text


def gpu(number: int) -> dict[str, str]:
    """Return the labels of a GPU."""
    uuid = f"GPU-{number}a5e71f0-0000-4000-8000-00000000000{number}"
    return {"instance": NODE, "vendor": "nvidia", "device": str(number), "uuid": uuid}


def lost_gpu(folder: Path) -> list[dict[str, Any]]:
    """Return the alerts of a lost GPU and its seven neighbours, the lost one not first."""
    found = []
    for number in range(1, 8):
        reset = {**gpu(number), "action": "reset_device"}
        found += [
            annotated(folder, "nvlink_down", 17, **gpu(number)),
            annotated(folder, "nvidia_xid", xid="74", **reset),
            annotated(folder, "recovery_needed", vendor_action="gpu_reset", **reset),
        ]
    found.append(annotated(folder, "nvidia_xid", xid="79", **{**gpu(0), "action": "reboot_node"}))
    found.append(annotated(folder, "accelerator_lost", **gpu(0)))
    return found


def incident(folder: Path, kind: str, domain: str, name: str, summary: str) -> dict[str, Any]:
    """Return an incident; its summary is made by queries, and is given."""
    fixed = {"kind": kind, "domain": domain, "domain_name": name, "fault": "fleet_incident"}
    alert = annotated(folder, "FleetIncident", **fixed)
    alert["annotations"]["summary"] = summary
    return alert


def owners_jobs(folder: Path) -> list[dict[str, Any]]:
    """Return the alerts on three jobs of one owner, one of them with two devices."""
    jobs = [("trainer-0", 0), ("trainer-0", 1), ("trainer-1", 2), ("eval-7f9c", 3)]
    return [
        annotated(folder, "job_impact", namespace="vision", pod=pod, owner="alice", **gpu(number))
        for pod, number in jobs
    ]


def killed_containers(folder: Path, owner: str = "alice") -> list[dict[str, Any]]:
    """Return the alerts on two jobs of one owner, one of them with two containers, and on a pod."""
    jobs = [("trainer", "main"), ("trainer", "loader"), ("eval", "main")]
    found = [
        annotated(
            folder, "PodOomKilled", namespace="vision", job_name=job, owner=owner, container=c
        )
        for job, c in jobs
    ]
    pod = {"namespace": "vision", "pod": "shell-0", "owner": owner, "container": "main"}
    return [*found, annotated(folder, "PodOomKilled", **pod)]


def _mail(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part
    assert not mail.get_body(("html",))
    body = part.get_content().replace("\r\n", "\n").strip()
    return f"To: {mail['To']}\nSubject: {mail['Subject']}\n\n{body}"


def _page(body: dict[str, Any]) -> str:
    payload = body["payload"]
    return f"Page: {payload['summary']}\n\n{payload['custom_details']['firing'].strip()}"


def find_page(manager: FilledIn, *texts: str) -> str:
    """Return the first page that has all of these texts, once it has arrived."""
    return str(wait_until(lambda: _find(_pages(manager), texts), what=str(texts)))


def find_mail(manager: FilledIn, *texts: str) -> str:
    """Return the first mail that has all of these texts, once it has arrived."""
    return str(wait_until(lambda: _find(map(_mail, manager.inbox.mails), texts), what=str(texts)))


def _pages(manager: FilledIn) -> Iterator[str]:
    return (_page(one.body) for one in manager.inbox.messages if one.path == "on-call")


def _find(found: Iterable[str], texts: tuple[str, ...]) -> str | None:
    return next((one for one in found if all(text in one for text in texts)), None)


def messages(folder: Path) -> list[tuple[str, str]]:
    """Return the title and the text of each message."""
    nodes = "(gpu-node-17, gpu-node-18, gpu-node-19, …)"
    leaf = f"30 of 32 nodes of leaf leaf-3: RDMA port down, network interface down {nodes}"
    filer = f"64 of 80 nodes that mount nas-1:/data: mount hung, hung task {nodes}"
    ticket = annotated(folder, "pcie_degraded", 8, **gpu(5))
    with FilledIn(folder / "one", "alertmanager.yaml") as manager:
        post(manager, lost_gpu(folder))
        lost = find_page(manager, "21 more", "GPU 0 lost on", "lost (Xid 79) on")
    with FilledIn(folder / "two", "alertmanager.yaml") as manager:
        post(manager, [incident(folder, "network", "leaf", "leaf-3", leaf)])
        post(manager, owners_jobs(folder))
        post(manager, [ticket])
        leaf_page = find_page(manager, "leaf-3")
        to_owner = find_mail(manager, "trainer-0", "trainer-1", "eval-7f9c")
        find_mail(manager, "[FIRING]")
        post(manager, [ticket], ENDED)
        resolved = find_mail(manager, "[RESOLVED]")
    with FilledIn(folder / "three", "minimal.yaml", chinese=True) as manager:
        post(manager, [incident(folder, "storage", "source", "nas-1:/data", filer)])
        chinese = find_mail(manager, "nas-1")
    return [
        ("A lost GPU with 21 more alerts: a page", lost),
        ("A leaf switch: one page for 30 nodes", leaf_page),
        ("A filer, in Chinese: a mail", chinese),
        ("To the owner of three jobs on a faulty node: one mail", to_owner),
        ("A ticket that is resolved: a mail", resolved),
    ]


def markdown(found: list[tuple[str, str]]) -> str:
    """Return the section of the documentation."""
    return "".join(f"\n### {title}\n\n```text\n{text}\n```\n" for title, text in found) + "\n"


def shown() -> str:
    """Return the section as it stands in the documentation."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def write(section: str) -> None:
    """Write the section to the documentation."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + begin + section + END + rest.partition(END)[2])
