"""Tests the other nodes of the job: their names, TCP, ssh, and their clocks.

In: lists as Slurm writes them, or a file. Out: findings. A prolog passes a list to root that the
job's user may influence: its length, its ranges and their digits are limited before the expansion,
and no list names a file. Each peer is tested in a thread, and each ssh process is ended at the
deadline.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional

from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, listed, printable
from nodevitals.commands.terminal import CommandError
from nodevitals.document import DocumentError, read_file
from nodevitals.probes.fabric.tools.process import ToolMissingError, ToolProcess

MAX_NODES = 10_000
# More than host names have; int() refuses thousands of digits, or is slow.
_MAX_DIGITS = 9
_MAX_NAME = 253
_SHOWN = 60
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251}[A-Za-z0-9_])?\Z")
_RANGES = re.compile(r"([A-Za-z0-9_.-]*)\[([0-9,-]+)\]([A-Za-z0-9_.-]*)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
# A comma within brackets does not end a part; brackets that do not match are refused later.
_PART = re.compile(r"(?:\[[^\]]*\]?|[^\[,\s])+")


def parse_nodes(text: str) -> list[str]:
    """The names in a list such as `gpu-[01-03,7],login1`, as Slurm writes it. Raises
    CommandError.
    """
    names: list[str] = []
    for match in _PART.finditer(text):
        part = match[0]
        expanded = _expanded(part) if "[" in part else [part]
        for name in expanded:
            if not _NAME.match(name):
                raise CommandError(f"--nodes: {_shown(name)} is not the name of a node")
        names += expanded
        if len(names) > MAX_NODES:
            raise CommandError(f"--nodes: over {MAX_NODES} names")
    return list(dict.fromkeys(names))


def short_name(name: str) -> str:
    """The name without its domain; that of an address is the address."""
    first, _, rest = name.partition(".")
    return name if first.isdigit() and rest else first


def nodes_of_file(path: str) -> list[str]:
    """The names in a file: a list, or a line per node. The content of another file is not shown: it
    may be secret, and others may read the output. Raises CommandError.
    """
    try:
        text = read_file(path).decode()
    except DocumentError as error:
        problem = error.problems[0].message
        raise CommandError(f"--nodes-file: {printable(path)}: {problem}") from None
    except UnicodeDecodeError:
        text = "\0"
    try:
        return parse_nodes(text)
    except CommandError:
        problem = "not a list of nodes: write a name per line"
        raise CommandError(f"--nodes-file: {printable(path)}: {problem}") from None


def _expanded(part: str) -> list[str]:
    match = _RANGES.fullmatch(part)
    problem = CommandError(f"--nodes: {_shown(part)} is not a list of nodes, as gpu-[1-8]")
    if match is None:
        raise problem
    before, ranges, after = match.groups()
    if len(before) + len(after) > _MAX_NAME:
        raise problem
    names: list[str] = []
    for span in ranges.split(","):
        match = _RANGE.fullmatch(span)
        if match is None:
            raise problem
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise problem
        count = int(last) - int(first) + 1
        if not 0 < count <= MAX_NODES - len(names):
            raise CommandError(f"--nodes: {_shown(part)} has no or too many nodes")
        names += [f"{before}{int(first) + n:0{len(first)}d}{after}" for n in range(count)]
    return names


def _shown(text: str) -> str:
    return repr(printable(text[: 4 * _SHOWN], _SHOWN))


AT_A_TIME = 64
MAX_CLOCK_SECONDS = 1.0
MAX_FINDINGS = 10
POLL_SECONDS = 0.02
_OPTION = re.compile(r"-?([A-Za-z0-9])[= ]?(.*)", re.DOTALL)
_TIME = re.compile(r"[0-9]{9,11}\.[0-9]{1,9}")


class PeerAnswer(NamedTuple):
    """The answer of one peer: its problem or '', and the difference of its clock. `asked` is false
    where this node could not send the request.
    """

    problem: str
    clock_seconds: Optional[float] = None
    asked: bool = True


def dial(name: str, port: int, deadline: float) -> PeerAnswer:
    """Connect to a peer once."""
    seconds = max(deadline - time.monotonic(), 0.1)
    try:
        socket.create_connection((name, port), seconds).close()
    except socket.gaierror:
        return PeerAnswer("its name has no address")
    except OSError as error:
        return PeerAnswer(f"port {port}: {error.strerror or 'no answer'}")
    return PeerAnswer("")


def ssh_options(given: Sequence[str]) -> list[str]:
    """The options of ssh, a word each, from `i=FILE`, `oUser=check`, `4`. Without -F, ssh reads no
    configuration file: it could start commands (ProxyCommand, Match exec), and preflight may run as
    root. Raises CommandError.
    """
    options: list[str] = []
    for word in given:
        match = _OPTION.fullmatch(word)
        if match is None:
            text = printable(word, 60)
            raise CommandError(f"--ssh-option: {text!r} is no option of ssh: write i=FILE")
        options.append(f"-{match[1]}{match[2]}")
    given_file = any(option.startswith("-F") for option in options)
    return options if given_file else ["-F", "none", *options]


def login(name: str, port: int, options: Sequence[str], deadline: float) -> PeerAnswer:
    """Log in as mpirun does: without a password, and only to a host with a known key. The peer's
    time is returned, uncertain by half the time of the call. The peer's output is limited, and ssh
    ends with this process.
    """
    left = max(deadline - time.monotonic(), 0.1)
    argv = [
        *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
        *("-o", f"ConnectTimeout={max(1, int(left))}", "-p", str(port), *options, "--", name),
        *("date", "+%s.%N"),
    ]
    began = time.time()
    try:
        process = ToolProcess(argv)
    except ToolMissingError as error:
        return PeerAnswer(f"cannot be asked: {error}", asked=False)
    try:
        while (status := process.status()) is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        now, text = time.time(), process.text()
    finally:
        process.end()
    if status is None:
        return PeerAnswer(f"ssh: no answer within {left:.0f} s")
    if status != 0:
        lines = text.strip().splitlines()
        return PeerAnswer(f"ssh: {printable(lines[-1] if lines else 'no reason given', 160)}")
    match = _TIME.search(text)
    if match is None:
        return PeerAnswer("")
    uncertain = now - began
    difference = float(match[0]) - (began + now) / 2
    return PeerAnswer("", max(abs(difference) - uncertain / 2, 0.0))


def peer_findings(answers: dict[str, PeerAnswer], what: str, state: str = PROBLEM) -> list[Finding]:
    """The findings about all peers, one per problem; `state` is the state of a problem."""
    by_problem: dict[PeerAnswer, list[str]] = {}
    for name, answer in answers.items():
        if answer.problem:
            by_problem.setdefault(answer, []).append(name)
    remedy = "take these nodes from the job, or mend the way to them"
    findings = [
        Finding(
            "peers",
            state if answer.asked else UNKNOWN,
            printable(f"{listed(names)}: {answer.problem}"),
            remedy if answer.asked else "install openssh-client",
        )
        for answer, names in by_problem.items()
    ]
    if len(findings) > MAX_FINDINGS:
        text = f"and {len(findings) - MAX_FINDINGS} more problems with other nodes"
        findings = [*findings[:MAX_FINDINGS], Finding("peers", state, text, remedy)]
    clocks = {
        name: answer.clock_seconds
        for name, answer in answers.items()
        if answer.clock_seconds is not None and answer.clock_seconds > MAX_CLOCK_SECONDS
    }
    if clocks:
        texts = [f"{name} by {seconds:.1f} s" for name, seconds in clocks.items()]
        text = f"clocks differ from this node: {listed(texts)}"
        findings.append(Finding("peers", state, printable(text), "chronyc tracking on both"))
    return findings or [Finding("peers", OK, f"{len(answers)} reached {what}")]
