"""The text of a notification in both languages: the fault, its place, its start, the next step."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from testbed.node import ROOT
from testbed.servers import BINARIES

PORT = {
    "status": "firing",
    "labels": {
        "alertname": "RdmaPortDown",
        "severity": "critical",
        "fault": "rdma_port_down",
        "action": "drain",
        "cluster": "c",
        "instance": "n1",
        "device": "mlx5_0",
    },
    "annotations": {
        "summary": "RDMA port mlx5_0/1 down or missing on n1",
        "description": "Jobs that use this port have failed.",
        "action": "On the node: rdma link",
        "runbook_url": "https://x/RdmaPortDown.md",
    },
    "startsAt": "2026-11-21T03:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus.example/graph",
}
MOUNT = {
    "status": "resolved",
    "labels": {
        "alertname": "MountHung",
        "severity": "critical",
        "fault": "mount_hung",
        "action": "investigate",
        "cluster": "c",
        "instance": "n1",
        "mountpoint": "/data",
        "source": "filer:/x",
    },
    "annotations": {
        "summary": "/data hung on n1",
        "description": "d",
        "action": "a",
        "runbook_url": "https://x/MountHung.md",
    },
    "startsAt": "2026-11-21T02:00:00Z",
    "endsAt": "2026-11-21T02:30:00Z",
    "generatorURL": "http://prometheus.example/graph2",
}


def message(folder: Path, template: str) -> list[str]:
    """Return the lines of a template, rendered by amtool as Alertmanager renders it."""
    data = {"receiver": "r", "status": "firing", "externalURL": "http://alertmanager.example"}
    file = folder / "data.json"
    file.write_text(json.dumps({**data, "alerts": [PORT, MOUNT]}))
    done = subprocess.run(
        [
            *(BINARIES / "amtool", "template", "render"),
            f"--template.glob={ROOT}/alertmanager/templates/*.tmpl",
            f'--template.text={{{{ template "{template}" . }}}}',
            f"--template.data={file}",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": "/nonexistent"},
    )
    return done.stdout.strip().splitlines()


def test_english_notification_has_every_field(tmp_path: Path) -> None:
    assert message(tmp_path, "nodevitals.subject") == [
        "[FIRING 1] RDMA port mlx5_0/1 down or missing on n1 (and 1 more)"
    ]
    lines = message(tmp_path, "nodevitals.text")
    for line in (
        "CRITICAL: RDMA port mlx5_0/1 down or missing on n1",
        "  Where:   c n1, device mlx5_0",
        "  Since:   2026-11-21 03:00:00 UTC",
        "  Action:  On the node: rdma link",
        "  Runbook: https://x/RdmaPortDown.md",
        "RESOLVED: /data hung on n1",
        "  Where:   c n1, /data, filer:/x",
        "  Since:   2026-11-21 02:00:00 UTC, until 02:30:00",
        "Alertmanager: http://alertmanager.example",
    ):
        assert line in lines
    assert sum(line.startswith("  Action:") for line in lines) == 1  # a resolved alert needs none


def test_chinese_notification_has_every_field(tmp_path: Path) -> None:
    assert message(tmp_path, "nodevitals.zh.subject") == ["[告警 1] RDMA 端口断开：n1 等 2 条"]
    lines = message(tmp_path, "nodevitals.zh.text")
    for line in (
        "【严重】RDMA 端口断开",
        "  位置：c n1，设备 mlx5_0",
        "  处置：排空节点",
        "  手册：https://x/RdmaPortDown.md",
        "【已恢复】存储挂死",
        "  触发时间：2026-11-21 02:00:00 UTC，恢复时间：02:30:00",
    ):
        assert line in lines
