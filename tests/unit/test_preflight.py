"""The table of defects names what the agent exposes; lists of nodes are those of Slurm."""

from __future__ import annotations

import string
import time

import pytest

from nodevitals import catalogue
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN
from nodevitals.commands.doctor.samples import Samples, parse_samples
from nodevitals.commands.preflight.agent import freshness_findings
from nodevitals.commands.preflight.defect_table import DEFECTS, Defect
from nodevitals.commands.preflight.defects import GOOD_LABELS, PARTS, defect_findings
from nodevitals.commands.preflight.peers import parse_nodes
from nodevitals.commands.terminal import CommandError


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: f"{one.family}-{one.other}")
def test_a_row_names_what_the_agent_exposes(defect: Defect) -> None:
    families = catalogue.all_families()
    family = families[f"nodevitals_{defect.family}"]
    texts = (defect.subject, defect.text, defect.remedy)
    names = {part[1] for text in texts for part in string.Formatter().parse(text) if part[1]}
    assert names - {"value", "limit"} <= set(family.labels)
    for label, value in defect.where.items():
        assert value in family.closed[label]
    for label, values in [GOOD_LABELS[defect.family]] if defect.family in GOOD_LABELS else []:
        assert set(values) <= set(family.closed[label])
    if defect.other:
        assert families[f"nodevitals_{defect.other}"].labels == family.labels


def samples(text: str) -> Samples:
    return parse_samples(text.encode())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('rdma_port_up{device="m",port="1"} 0', ""),  # never up: a port without a cable
        (('rdma_port_up{device="m",port="1"} 0\n'
         'nodevitals_rdma_port_expected_rate_bytes_per_second{device="m",port="1"} 5e10'),
         "port m/1: down"),
        (('services_unit_active{unit="a.service"} 0\n'
         'nodevitals_services_unit_expected{unit="a.service"} 0'), ""),
        (('services_unit_active{unit="a.service"} 0\n'
         'nodevitals_services_unit_expected{unit="a.service"} 1'), "a.service: not active"),
        ('node_hung_processes{wait="paused"} 3', ""),
        ('node_hung_processes{wait="nfs"} 3', "processes: 3 hang in the kernel: nfs"),
        ('scripts_status{script="x",status="warning"} 1', ""),
        ('scripts_status{script="x",status="critical"} 1', "x: critical"),
        ('nvidia_recovery_action{device="1",vendor_action="none",action="none"} 1', ""),
        (('accelerators_present{vendor="nvidia"} 7\n'
         'nodevitals_accelerators_expected{vendor="nvidia"} 8'),
         "nvidia: 7 of 8 accelerators answer"),
        ('profile_conforms{check="\x1b[31m"} 0', "\\x1b[31m: differs from the profile"),
    ],
)  # fmt: skip
def test_a_value_is_a_defect_or_not(text: str, line: str) -> None:
    found = list(defect_findings(samples(f"nodevitals_{text}\n")))
    assert [one.detail for one in found if one.state == PROBLEM] == ([line] if line else [])
    assert {one.check for one in found} <= set(PARTS)
    assert [one for one in found if one.state == OK] == ([] if line else found)


def test_old_and_failed_results_are_unknown() -> None:
    now = time.time()
    lines = []
    for probe, success, age, stuck in (
        ("a", 1, 5, 0),
        ("b", 0, 5, 0),
        ("c", 1, 60, 0),
        ("d", 0, 5, 9),
    ):
        labels = f'{{probe="{probe}",target="{probe}"}}'
        lines += [
            f"nodevitals_probe_success{labels} {success}",
            f"nodevitals_probe_last_success_timestamp_seconds{labels} {now - age:.3f}",
            f"nodevitals_probe_interval_seconds{labels} 15",
            f"nodevitals_probe_stuck_seconds{labels} {stuck}",
        ]
    lines.sort()
    found = list(freshness_findings(samples("\n".join(lines) + "\n"), now))
    assert [(one.state, one.detail.partition(":")[0]) for one in found] == [
        (UNKNOWN, "b"),
        (UNKNOWN, "c"),
        (UNKNOWN, "d"),
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a,b a", ["a", "b"]),
        ("gpu-[01-03,7],login1", ["gpu-01", "gpu-02", "gpu-03", "gpu-7", "login1"]),
        ("r[1-2]n", ["r1n", "r2n"]),
        ("a\nb\n", ["a", "b"]),
        ("192.0.2.1", ["192.0.2.1"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert parse_nodes(text) == names


@pytest.mark.parametrize("text", ["a[", "a[x]", "a[2-1]", "-o", "a[1-20000]", "a;b", "a[1][2]"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--nodes"):
        parse_nodes(text)
