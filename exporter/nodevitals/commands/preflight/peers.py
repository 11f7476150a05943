"""The other nodes of the job: reachable by TCP, by ssh, and on the same time.

In: host names. Out: findings. Each peer is asked in a thread, and each ssh is a process that is
ended at the deadline.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, listed, printable
from nodevitals.commands.terminal import CommandError

SSH_PORT = 22
MAX_PEERS = 10_000
AT_A_TIME = 64
MAX_CLOCK_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251}[A-Za-z0-9_])?\Z")
_NODE_RANGE = re.compile(r"([A-Za-z0-9_.-]*)\[([0-9,-]+)\]([A-Za-z0-9_.-]*)")
_TIME = re.compile(rb"[0-9]{9,11}\.[0-9]{1,9}")


class PeerAnswer(NamedTuple):
    """What one peer answered: '' where all is well, and the difference of its clock."""

    problem: str
    clock_seconds: Optional[float] = None


def parse_nodes(text: str) -> list[str]:
    """The names in a list such as `gpu-[01-03,7],login1`, as Slurm writes it. Raises
    CommandError.
    """
    names: list[str] = []
    for part in _parts(text):
        names += _expanded(part) if "[" in part else [part]
        if len(names) > MAX_PEERS:
            raise CommandError(f"--nodes: over {MAX_PEERS} names")
    names = [name for name in dict.fromkeys(names) if name]
    for name in names:
        if not _NAME.match(name):
            raise CommandError(f"--nodes: {printable(name, 60)!r} is not the name of a node")
    return names


def _parts(text: str) -> list[str]:
    """The items between commas and blanks; a comma within brackets is no end."""
    parts, inside = [""], False
    for one in text:
        inside = one != "]" if inside else one == "["
        if not inside and (one == "," or one.isspace()):
            parts.append("")
        else:
            parts[-1] += one
    return parts


def _expanded(part: str) -> list[str]:
    match = _NODE_RANGE.fullmatch(part)
    if match is None:
        raise CommandError(f"--nodes: {printable(part, 60)!r} is not a list of nodes, as gpu-[1-8]")
    names = []
    for one in match[2].split(","):
        first, dash, last = one.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise CommandError(f"--nodes: {printable(part, 60)!r} is not a list of nodes")
        low, high = int(first), int(last or first)
        if not 0 <= high - low < MAX_PEERS:
            raise CommandError(f"--nodes: {printable(part, 60)!r} has no or too many nodes")
        names += [f"{match[1]}{number:0{len(first)}d}{match[3]}" for number in range(low, high + 1)]
    return names


def dial(name: str, port: int, deadline: float) -> PeerAnswer:
    """Connect once."""
    seconds = max(deadline - time.monotonic(), 0.1)
    try:
        socket.create_connection((name, port), seconds).close()
    except socket.gaierror:
        return PeerAnswer("its name has no address")
    except OSError as error:
        return PeerAnswer(f"port {port}: {error.strerror or 'no answer'}")
    return PeerAnswer("")


def login(name: str, port: int, options: Sequence[str], deadline: float) -> PeerAnswer:
    """Log in as mpirun does: no password, and only to a host whose key is known. Its clock comes
    back; half of the time that the call took is the uncertainty.
    """
    seconds = max(deadline - time.monotonic(), 0.1)
    argv = [
        *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
        *("-o", f"ConnectTimeout={max(1, int(seconds))}", "-p", str(port), *options, "--", name),
        *("date", "+%s.%N"),
    ]
    began = time.time()
    try:
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        return PeerAnswer("ssh is not installed here")
    except subprocess.TimeoutExpired:
        return PeerAnswer(f"ssh: no answer within {seconds:.0f} s")
    now = time.time()
    if ended.returncode != 0:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return PeerAnswer(f"ssh: {printable(lines[-1] if lines else 'no reason given', 160)}")
    found = _TIME.search(ended.stdout)
    if found is None:
        return PeerAnswer("")
    uncertain = now - began
    difference = float(found[0]) - (began + now) / 2
    return PeerAnswer("", max(abs(difference) - uncertain / 2, 0.0))


def peer_findings(answers: dict[str, PeerAnswer], what: str) -> list[Finding]:
    """The findings about all peers, one per problem."""
    by_problem: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if answer.problem:
            by_problem.setdefault(answer.problem, []).append(name)
    remedy = "take these nodes from the job, or mend the way to them"
    found = [
        Finding("peers", PROBLEM, printable(f"{listed(names)}: {problem}"), remedy)
        for problem, names in by_problem.items()
    ]
    clocks = {
        name: one.clock_seconds
        for name, one in answers.items()
        if one.clock_seconds is not None and one.clock_seconds > MAX_CLOCK_SECONDS
    }
    if clocks:
        texts = [f"{name} by {seconds:.1f} s" for name, seconds in clocks.items()]
        text = f"clocks differ from this node: {listed(texts)}"
        found.append(Finding("peers", PROBLEM, printable(text), "chronyc tracking on both"))
    return found or [Finding("peers", OK, f"{len(answers)} reached {what}")]
