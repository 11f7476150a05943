"""Settings of repairs: each error is found before the hub starts, with its path and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals.commands.cli import main
from nodevitals.document import DocumentError, Problem
from nodevitals_hub.service import check, load
from testbed.repairs import RESET_JOB

COMMAND = {"name": "ticket", "action": "replace", "command": ["/bin/ticket", "{node}"]}
JOB = {"name": "reset-gpu", "action": "reset_device"}
PLACE = "out_of_service.repairs[0]"


def file_of(
    folder: Path, *repairs: dict[str, Any], scheduler: str = "kubernetes", **more: Any
) -> Path:
    """A file of the hub with these repairs, and `more` in their section."""
    file = folder / "hub.yaml"
    section: dict[str, Any] = {
        "scheduler": scheduler,
        "where": [{"pool": "a"}],
        "repairs": list(repairs),
        **more,
    }
    if scheduler == "command":
        section["command"] = {name: ["/bin/x"] for name in ("isolate", "restore", "status")}
    file.write_text(
        yaml.safe_dump({"prometheus": {"url": "http://prometheus:9090"}, "out_of_service": section})
    )
    return file


def problems(file: Path) -> list[str]:
    """The problems of a file; each has a line."""
    found: tuple[Problem, ...] = ()
    try:
        load(str(file))
    except DocumentError as error:
        found = error.problems
    assert all(problem.line for problem in found)
    return [str(problem) for problem in found]


def job(folder: Path, text: str) -> dict[str, Any]:
    """An entry with an object of this text."""
    manifest = folder / "object.yaml"
    manifest.write_text(text)
    return {**JOB, "manifest_file": str(manifest)}


def test_good_ones_load_and_start_nothing_by_default(tmp_path: Path) -> None:
    good = job(tmp_path, yaml.safe_dump(RESET_JOB))
    file = file_of(tmp_path, good, COMMAND)
    settings = load(str(file)).out_of_service
    assert settings is not None
    for one in settings.repairs:
        assert (one.dry_run, one.when_empty, one.at_most, one.per_hour) == (True, True, 1, 3)
        assert one.timeout == 3600


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"action": None}, PLACE, "add `action` or `faults`"),
        ({"action": "explode"}, f"{PLACE}.action", "explode"),
        ({"command": []}, PLACE, "add `manifest_file` or `command`"),
        ({"manifest_file": "/etc/none"}, f"{PLACE}.command", "`manifest_file` as well"),
        ({"manifest_file": "/etc/none"}, f"{PLACE}.manifest_file", "No such file"),
        ({"name": "Reset"}, f"{PLACE}.name", ""),
        ({"name": "x" * 31}, f"{PLACE}.name", ""),
        ({"faults": ["a", "a"]}, f"{PLACE}.faults", "twice"),
        ({"resource": "jobs"}, f"{PLACE}.resource", "add `manifest_file`"),
        ({"command": ["{node}"]}, f"{PLACE}.command[0]", "write its path"),
        ({"command": ["/x", "a{nod}"]}, f"{PLACE}.command[1]", "did you mean node?"),
        ({"at_most": 0}, f"{PLACE}.at_most", ""),
        ({"shell": True}, f"{PLACE}", "shell"),
    ],
    ids=str,
)
def test_each_error_is_found(tmp_path: Path, change: Any, place: str, words: str) -> None:
    entry = {key: value for key, value in {**COMMAND, **change}.items() if value is not None}
    found = problems(file_of(tmp_path, entry))
    assert any(one.startswith(place) and words in one for one in found), found


def test_duplicates_are_errors(tmp_path: Path) -> None:
    assert problems(file_of(tmp_path, COMMAND, {**COMMAND, "action": "reset_device"})) == [
        "out_of_service.repairs[1].name: 'ticket' is there twice: rename one"
    ]
    assert problems(file_of(tmp_path, COMMAND, {**COMMAND, "name": "other"})) == [
        "out_of_service.repairs[1]: the same as out_of_service.repairs[0]: remove one"
    ]


def test_a_scheduler_that_does_not_say_what_runs(tmp_path: Path) -> None:
    assert problems(file_of(tmp_path, {**COMMAND, "when_empty": False}, scheduler="command")) == []
    [found] = problems(file_of(tmp_path, COMMAND, scheduler="command"))
    assert "when_empty: false" in found


IDLE: dict[str, Any] = {"services": ["drain_now", "drain_when_idle"]}
RECOVERY: dict[str, Any] = {"recovery": {"faults": ["peer_unreachable"]}}
SSHD = {"name": "sshd", "command": ["/bin/restart-sshd", "{node}"], "faults": ["peer_unreachable"]}


@pytest.mark.parametrize(
    ("entry", "more", "place", "words"),
    [
        (
            SSHD,
            {},
            "faults[0]",
            (
                "peer_unreachable takes no node out of service (scope fleet, severity warning, "
                "action investigate): add it to out_of_service.recovery.faults"
            ),
        ),
        (
            SSHD | {"faults": ["nvidia_xid", "node_reaches_nobody"]},
            {},
            "faults[1]",
            (
                "node_reaches_nobody takes no node out of service (scope node, severity warning, "
                "action investigate): add it to out_of_service.recovery.faults"
            ),
        ),
        (
            SSHD | {"faults": ["latency_high"]},
            {},
            "faults[0]",
            (
                "latency_high takes no node out of service (scope node, severity warning, "
                "action investigate): add drain_when_idle to out_of_service.services, or remove it"
            ),
        ),
        (
            SSHD | {"faults": ["accelerators_missing"]},
            {},
            "faults[0]",
            (
                "accelerators_missing takes no node out of service (scope node, severity critical, "
                "action reboot_node): add drain_when_idle to out_of_service.services, or remove it"
            ),
        ),
        (
            SSHD | {"faults": ["collective_failed"]},
            IDLE,
            "faults[0]",
            (
                "collective_failed takes no node out of service (scope fleet, severity warning, "
                "action investigate): remove it"
            ),
        ),
        (
            SSHD | {"faults": ["peer_unreachable"], "action": "replace"},
            {},
            "faults[0]",
            "peer_unreachable never has the action replace: remove one of both",
        ),
        (
            COMMAND | {"action": "restart_app"},
            {"services": ["drain_when_idle"]},
            "",
            "",
        ),
        (
            {"name": "app", "command": ["/bin/x"], "action": "restart_app"},
            {},
            "action",
            (
                "no fault with the action restart_app has the service drain_now: add "
                "drain_when_idle to out_of_service.services, or remove it"
            ),
        ),
        (SSHD | {"faults": ["accelerators_missing"]}, IDLE, "", ""),
        (SSHD | {"faults": ["a_fault_of_the_site"]}, {}, "", ""),
    ],
)
def test_a_repair_that_can_never_start_is_an_error(
    tmp_path: Path, entry: dict[str, Any], more: dict[str, Any], place: str, words: str
) -> None:
    """With the reason, and what to write."""
    found = problems(file_of(tmp_path, entry, **more))
    assert found == ([f"{PLACE}.{place}: {words}"] if words else [])


def test_with_a_recovery_it_may_start(tmp_path: Path) -> None:
    file = file_of(tmp_path, SSHD, **RECOVERY)
    assert problems(file) == [
        "out_of_service.recovery: needs the section agents: other nodes are asked through it"
    ]
    with open(file, "a") as text:
        text.write("agents: {token_file: /etc/none}\n")
    assert not any("out_of_service" in one for one in problems(file))


def test_a_severity_of_the_site_is_a_warning_only(tmp_path: Path) -> None:
    """Critical, latency_high is drain_when_idle."""
    file = file_of(tmp_path, SSHD | {"faults": ["latency_high"]}, **IDLE)
    assert problems(file) == []
    found = [str(one) for one in check(str(file))[1]]
    assert [one for one in found if "faults" in one] == [
        (
            f"{PLACE}.faults[0]: latency_high starts it only where your rules have another "
            "severity (shipped: scope node, severity warning, action investigate)"
        )
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n---\nb: 2\n", "another document"),
        ("[]", "not one object"),
        ("", "not one object"),
        ("kind: [", "not valid YAML"),
        ("{apiVersion: v1}", "kind: missing"),
        ("{kind: Job}", "apiVersion: missing"),
        ("{apiVersion: batch/v1, kind: List, items: []}", "kind: missing"),
        ("{apiVersion: batch/v1, kind: Job}", "metadata.namespace: missing: a Job"),
        ("{apiVersion: '../../v1', kind: X}", "apiVersion: missing, or not GROUP/VERSION"),
        ("{apiVersion: x.y/v1, kind: X, metadata: {generateName: a}}", "created twice"),
        ("{apiVersion: x.y/v1, kind: X, metadata: {namespace: '{node}'}}", "is not replaced"),
        ("{apiVersion: x.y/v1, kind: X, metadata: 7}", "metadata: not a mapping"),
        ("{apiVersion: x.y/v1, kind: X, spec: [1]}", "spec: not a mapping"),
        ("{apiVersion: x.y/v1, kind: X, spec: {a: [x, 'b{uuid}']}}", "spec.a[1]: {uuid} is no"),
        ("{apiVersion: x.y/v1, kind: X, spec: {a: 2026-01-01}}", "spec.a: '2026-01-01' is no"),
        ("{apiVersion: x.y/v1, kind: X, spec: {a: .nan}}", "spec.a: not a number"),
        ("{apiVersion: x.y/v1, kind: X, spec: {1: a}}", "the key 1 is no text"),
        ("{apiVersion: x.y/v1, kind: X, spec: {template: {metadata: 7}}}", "not a mapping"),
        ("{a: 1, a: 2}", "a"),
    ],
    ids=str,
)
def test_each_error_of_an_object_is_found(tmp_path: Path, text: str, words: str) -> None:
    found = problems(file_of(tmp_path, job(tmp_path, text)))
    assert any(words in one and "object.yaml" in one for one in found), found


@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: x.y/v1, kind: X, spec: {a: '${node} {{node}} {print $1} { }'}}",
        '{"apiVersion": "x.y/v1", "kind": "X", "metadata": {"name": "{node}"}}',
    ],
)
def test_other_braces_stay(tmp_path: Path, text: str) -> None:
    """Variables of a shell, other templates, JSON."""
    assert problems(file_of(tmp_path, job(tmp_path, text))) == []


def test_a_file_can_be_checked_without_a_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = file_of(tmp_path, COMMAND)
    assert main(["hub", "--config.file", str(good), "--check-config"]) == 0
    assert capsys.readouterr().out == f"{good}: ok\n"
    bad = file_of(tmp_path, job(tmp_path, "kind: ["))
    assert main(["hub", "--config.file", str(bad), "--check-config"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{bad}:" in line
    assert f"{tmp_path}/object.yaml:" in line
