"""Checks of one node by the hub: what its agent exposes, and the reason of each problem."""

from __future__ import annotations

from nodevitals.checks.verdicts.reasons import reason_of
from nodevitals_hub.launch.node_checks import parse, problems_of


def test_a_missing_mount_is_a_fault_of_the_node() -> None:
    """Its probe fails as well, and is not a second problem; another one that fails is."""
    facts = parse(
        'nodevitals_mount_present{mountpoint="/data",fstype="nfs4",source="filer:/x"} 0\n'
        'nodevitals_mount_present{mountpoint="/home",fstype="nfs4",source="filer:/y"} 1\n'
        'nodevitals_probe_success{probe="mounts",target="/data"} 0\n'
        'nodevitals_probe_success{probe="mounts",target="/home"} 1\n'
        'nodevitals_probe_success{probe="services",target="units"} 0\n'
    )
    found = [(reason_of(report), report.message) for report in problems_of(facts)]
    assert found == [
        ("hardware", "/data is not mounted"),
        ("harness", "probe services:units fails"),
    ]
