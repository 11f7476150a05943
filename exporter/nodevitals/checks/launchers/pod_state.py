"""Reads the state of a collective from its job and its pods.

In: objects of the API, in which any field may be missing. Out: a State.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import msgspec

from nodevitals.checks.launchers.manifests import ROLE_LABEL
from nodevitals.probes.fabric.tools.report import Reason

# The kubelet repeats a first failed pull; these states are final, or follow repeated failures.
IMAGE = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
OVER = ("Failed", "Aborted", "Terminated")
_DEVICES_TAKEN = re.compile(r"Insufficient |devices unavailable|UnexpectedAdmissionError")


class Problem(NamedTuple):
    """Why a collective cannot run: the reason for a report, one line, and the nodes."""

    reason: Reason
    message: str
    nodes: Optional[dict[str, str]] = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job."""

    launcher: str = ""
    """Name of the launcher's pod."""
    launcher_ended: bool = False
    status: int = 0
    """Exit status of the launcher, where it ended."""
    started: bool = False
    """Whether all pods run."""
    problem: Optional[Problem] = None
    waiting: Problem
    """Why it has not started, for when it has waited too long."""


def of(job: dict[str, Any], pods: Sequence[dict[str, Any]], expected: int) -> State:
    """The state of a job; `expected` is its number of pods."""
    launcher = next((pod for pod in pods if _role(pod) == "launcher"), None)
    phase = "" if launcher is None else _phase(launcher)
    problems = [problem for pod in pods if (problem := _problem(pod)) is not None]
    over = _over(job)
    if not problems and over and phase not in ("Succeeded", "Failed"):
        problems = [Problem("harness", over)]
    running = [pod for pod in pods if _phase(pod) == "Running"]
    return State(
        launcher="" if launcher is None or phase == "Pending" else _name(launcher),
        launcher_ended=phase in ("Succeeded", "Failed"),
        status=0 if launcher is None else _status(launcher, phase),
        started=len(running) >= expected,
        problem=problems[0] if problems else None,
        waiting=_waiting(job, pods, expected),
    )


def _problem(pod: dict[str, Any]) -> Optional[Problem]:
    node = _node(pod)
    if _phase(pod) == "Failed" and _role(pod) != "launcher":
        status = pod.get("status") or {}
        text = " ".join(f"{status.get('reason', '')} {status.get('message', '')}".split())
        why = text or f"exit status {_status(pod, 'Failed')}"
        taken = _DEVICES_TAKEN.search(why)
        message = f"worker {_name(pod)} on {node or 'no node'} failed: {why}"
        return Problem("peer_busy" if taken else "harness", message, _at(node, why))
    for waiting in _containers(pod, "waiting"):
        reason = str(waiting.get("reason", ""))
        if reason in IMAGE or reason in START:
            text = " ".join(str(waiting.get("message", "")).split())[:200]
            message = f"pod {_name(pod)} on {node}: {reason}: {text}"
            return Problem("harness", message, _at(node, reason))
    return None


def _waiting(job: dict[str, Any], pods: Sequence[dict[str, Any]], expected: int) -> Problem:
    status = job.get("status") or {}
    if not status:
        return Problem(
            "harness",
            "no controller answers for the job: is Volcano or the MPI operator installed?",
        )
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                text = " ".join(str(condition.get("message", "")).split())[:250]
                taken = _DEVICES_TAKEN.search(text)
                message = f"pod {_name(pod)} waits for a node: {text}"
                return Problem("peer_busy" if taken else "harness", message)
    if len(pods) < expected:
        return Problem(
            "peer_busy",
            f"{len(pods)} of {expected} pods were created: the queue or the nodes have no room",
        )
    slow = next((pod for pod in pods if _phase(pod) != "Running"), pods[0])
    return Problem("harness", f"pod {_name(slow)} on {_node(slow)} does not start")


def _over(job: dict[str, Any]) -> str:
    """Why the job is over without its launcher; '' where it is not."""
    status = job.get("status") or {}
    state = status.get("state") or {}
    if state.get("phase") in OVER:
        text = f"job {state['phase']}: {state.get('reason', '')} {state.get('message', '')}"
        return " ".join(text.split())
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            text = f"job failed: {condition.get('reason', '')} {condition.get('message', '')}"
            return " ".join(text.split())
    return ""


def _containers(pod: dict[str, Any], state: str) -> Iterator[dict[str, Any]]:
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            container_state = (container.get("state") or {}).get(state)
            if container_state:
                yield container_state


def _status(pod: dict[str, Any], phase: str) -> int:
    codes = [container_state.get("exitCode") for container_state in _containers(pod, "terminated")]
    exit_code = next((code for code in codes if isinstance(code, int) and code != 0), 0)
    # A pod that was evicted or reached its time limit has no container status.
    return exit_code or int(phase == "Failed")


def _at(node: str, why: str) -> Optional[dict[str, str]]:
    return {node: why} if node else None


def _phase(pod: dict[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _role(pod: dict[str, Any]) -> str:
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(ROLE_LABEL, ""))


def _name(pod: dict[str, Any]) -> str:
    return str((pod.get("metadata") or {}).get("name", "?"))


def _node(pod: dict[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))
