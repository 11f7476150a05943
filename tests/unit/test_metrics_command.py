"""`nodevitals metrics NAME`: what a family means, what exposes it, the alerts that read it."""

from __future__ import annotations

import json
import re

import pytest

from nodevitals.commands.cli import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["metrics", *arguments]) == 0
    return capsys.readouterr().out


def test_a_family_by_its_name_with_and_without_the_prefix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "nodevitals_rdma_port_up")
    lines = text.splitlines()
    assert lines[:4] == [
        "nodevitals_rdma_port_up",
        "  Whether the port is active; 0 also for a known port that is missing.",
        "  kind          gauge",
        "  labels        device, port, link_layer",
    ]
    assert '    link_layer  "" | InfiniBand | Ethernet' in lines
    assert "  exposed by    probe rdma" in lines
    assert printed(capsys, "rdma_port_up") == text


def test_alerts_through_recording_rules_and_faults_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The fault of a port reads it; that of a disk is another row of the same recorded series."""
    [line] = [line for line in printed(capsys, "rdma_port_up").splitlines() if "alerts" in line]
    assert "RdmaPortDown" in line
    assert "Disk" not in line
    assert "alerts      none" in printed(capsys, "web_connections_evicted_total")


def test_a_series_that_the_rules_record(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "nodevitals:accelerator_state").splitlines()
    assert "  kind        gauge" in lines
    assert any(re.fullmatch(r"  exposed by  rules/[a-z-]+\.yaml", line) for line in lines)
    assert "FleetIncident" in printed(capsys, "nodevitals:fault").splitlines()[-1]


def test_a_unit_and_several_families(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "accelerator_temperature_celsius", "process_cpu_seconds_total")
    first, second = text.split("\n\n")
    assert "  unit        celsius" in first.splitlines()
    assert "  unit        seconds" in second.splitlines()
    assert "  kind        counter" in second.splitlines()
    assert "  exposed by  the agent" in second.splitlines()


def test_one_family_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    [family] = json.loads(printed(capsys, "rdma_port_up", "--format=json"))
    assert family["name"] == "nodevitals_rdma_port_up"
    assert family["closed"] == {"link_layer": ["", "InfiniBand", "Ethernet"]}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("rdma_port_upp", "did you mean rdma_port_up "), ("zzz", "lists all of them")],
)
def test_an_unknown_name(capsys: pytest.CaptureFixture[str], name: str, hint: str) -> None:
    assert main(["metrics", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"unknown metric '{name}'")
    assert hint in captured.err
