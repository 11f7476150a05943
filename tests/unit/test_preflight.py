"""The table of defects names what the agent exposes; lists of nodes are those of Slurm."""

from __future__ import annotations

import math
import os
import string
import time
from pathlib import Path

import pytest

from nodevitals import catalogue, probes
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Samples, parse_samples
from nodevitals.commands.preflight.agent import freshness_findings
from nodevitals.commands.preflight.defects import DEFECTS, PARTS, Defect, defect_findings
from nodevitals.commands.preflight.peers import nodes_of_file, parse_nodes, short_name, ssh_options
from nodevitals.commands.terminal import CommandError


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: f"{one.family}-{one.other}")
def test_a_row_names_what_the_agent_exposes(defect: Defect) -> None:
    families = catalogue.all_families()
    family = families[f"nodevitals_{defect.family}"]
    texts = (defect.subject, defect.text, defect.remedy)
    names = {part[1] for text in texts for part in string.Formatter().parse(text) if part[1]}
    assert names - {"value", "limit"} <= set(family.labels)
    for label, value in {**defect.where, **defect.unless}.items():
        assert value in (probes.registered() if label == "probe" else family.closed[label])
    for other in filter(None, (defect.other, defect.beside)):
        assert families[f"nodevitals_{other}"].labels == family.labels


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
        # As long as a failover takes: unknown, by freshness; so is a driver's device.
        ('probe_unanswered_seconds{probe="mounts",target="/data"} 85.5', ""),
        ('probe_unanswered_seconds{probe="mounts",target="/data"} 95.5',
         "/data: no call has returned for 95.5 s"),
        ('probe_unanswered_seconds{probe="nvidia",target="nvidia"} 95.5', ""),
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
    for probe, success, age, stuck, unanswered in (
        ("a", 1, 5, 0, 0),
        ("b", 0, 5, 0, 0),
        ("c", 1, 60, 0, 0),
        ("d", 0, 5, 9, 24),
        ("e", 1, math.nan, 0, 0),
        ("f", math.nan, 5, 0, 0),
        ("g", 1, math.inf, 0, 0),
        ("h", 0, 60, 0, 0),
        ("i", 0, 60, 0, 45),
    ):
        labels = f'{{probe="{probe}",target="{probe}"}}'
        lines += [
            f"nodevitals_probe_success{labels} {success}",
            f"nodevitals_probe_last_success_timestamp_seconds{labels} {now - age:.3f}",
            f"nodevitals_probe_interval_seconds{labels} 15",
            f"nodevitals_probe_stuck_seconds{labels} {stuck}",
            f"nodevitals_probe_unanswered_seconds{labels} {unanswered}",
        ]
    lines.sort()
    found = list(freshness_findings(samples("\n".join(lines) + "\n"), now))
    assert [(one.state, one.detail.partition(":")[0]) for one in found] == [
        (UNKNOWN, "b"),
        (UNKNOWN, "c"),
        (UNKNOWN, "d"),
        (UNKNOWN, "e"),
        (UNKNOWN, "f"),
        (UNKNOWN, "g"),
        (UNKNOWN, "h"),
        (UNKNOWN, "i"),
    ]
    texts = {one.detail.partition(": ")[0]: one.detail.partition(": ")[2] for one in found}
    assert texts["b"] == "its last run failed"
    assert texts["e"] == texts["g"] == "it has no result yet"
    assert texts["h"] == "its last good result is 60 s old"
    assert texts["d"] == "its process has hung for 9 s: a driver or a mount"
    assert texts["i"] == "no run has ended in time for 45 s: a driver or a mount"


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


@pytest.mark.parametrize(
    "text",
    [
        *("a[", "a]", "a[]", "a[x]", "a[2-1]", "a[1-2-3]", "a[,]", "-o", "a[1-20000]", "a;b"),
        *("a[1][2]", "a b[1-2]c[", "a@b", "@/etc/hostname", "-oProxyCommand=x", "a/../b"),
        *("--", "a\0b", "\udcff", "a[1-999999999]", f"a[{'1-9999,' * 999}1]", "a[1-9999]," * 99),
        *(f"a[1-1{'0' * 5000}]", f"a[{'0' * 5000}1-2]", f"{'a' * 9999}[1-9999]", "a" * 100_000),
        *("[" * 100_000, "a[1\n-2]", "$(id)", "`id`", "\x1b[31m", "a,-F/tmp/x"),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    """In one short line without control characters."""
    with pytest.raises(CommandError, match="--nodes") as refused:
        parse_nodes(text)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


def test_a_long_list_is_read_in_linear_time() -> None:
    """A file may have a MiB; with a copy per character, this would take minutes."""
    with pytest.raises(CommandError, match="over 10000 names"):
        parse_nodes("a," * 500_000)


def test_a_file_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text("gpu-1\ngpu-[2-3]\n\n")
    assert nodes_of_file(str(path)) == ["gpu-1", "gpu-2", "gpu-3"]


@pytest.mark.parametrize("content", [b"root:$y$secret:19000:0:99999", b"secret \xff", b"a[secret]"])
def test_the_content_of_another_file_is_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shadow"
    path.write_bytes(content)
    with pytest.raises(CommandError, match="not a list of nodes") as refused:
        nodes_of_file(str(path))
    assert "secret" not in str(refused.value)


def test_a_file_of_nodes_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").write_bytes(b"a" * (2 << 20))
    for name in ("fifo", "huge", "none", "."):
        with pytest.raises(CommandError, match="--nodes-file"):
            nodes_of_file(str(tmp_path / name))
    for path in ("/dev/zero", "/proc/kmsg", "a\0b"):
        with pytest.raises(CommandError, match="--nodes-file"):
            nodes_of_file(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ["-F", "none"]),
        (["-i=/root/key", "oUser=check"], ["-F", "none", "-i/root/key", "-oUser=check"]),
        (["-F=/etc/ssh/ssh_config", "4"], ["-F/etc/ssh/ssh_config", "-4"]),
        (["o ProxyJump=a"], ["-F", "none", "-oProxyJump=a"]),
    ],
)
def test_options_of_ssh_are_a_word_each(given: list[str], words: list[str]) -> None:
    assert ssh_options(given) == words


@pytest.mark.parametrize("given", ["", "-", "--", "=x"])
def test_what_is_no_option_of_ssh_is_refused(given: str) -> None:
    with pytest.raises(CommandError, match="--ssh-option"):
        ssh_options([given])


@pytest.mark.parametrize(
    ("name", "short"),
    [("gpu-1", "gpu-1"), ("gpu-1.example.org", "gpu-1"), ("10.0.0.1", "10.0.0.1"), ("7", "7")],
)
def test_the_short_name_of_a_node(name: str, short: str) -> None:
    assert short_name(name) == short
