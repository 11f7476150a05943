"""The paths that a job names: is there a file system that answers.

Each is looked at in a process of its own, which may hang and is left behind then: a process in
uninterruptible sleep cannot be waited for.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, printable
from nodevitals.commands.preflight import children

_TEXT_BYTES = 512

Started = dict[str, children.Child]
"""By path the process that looks at it."""


def start(paths: Sequence[str], write: bool, seconds: float) -> Started:
    """Start to look at paths, for so many seconds at most. It forks: call it before threads are
    started.
    """
    return {path: _start(path, write, seconds) for path in dict.fromkeys(paths)}


def place_findings(started: Started, deadline: float) -> list[Finding]:
    """A finding per path."""
    return [_finding(path, one, deadline) for path, one in started.items()]


def _start(path: str, write: bool, seconds: float) -> children.Child:
    return children.start(
        lambda: [_look(path, write).encode("utf-8", "replace")[:_TEXT_BYTES]], seconds
    )


def _look(path: str, write: bool) -> str:
    """What is wrong with a path; `ok` where nothing is."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
        os.statvfs(path)
    except OSError as error:
        return error.strerror or "cannot be listed"
    except ValueError as error:  # a NUL
        return str(error)
    if write and not os.access(path, os.W_OK | os.X_OK):
        return "no permission to write, or read-only"
    return "ok"


def _finding(path: str, child: children.Child, deadline: float) -> Finding:
    text = children.answer(child, deadline).decode("utf-8", "replace")
    name = printable(path, 160)
    if text == "ok":
        return Finding("paths", OK, f"{name} answers")
    problem = text or "does not answer: its file server or the network to it hangs"
    remedy = f"findmnt -T {shlex.quote(name)}"
    return Finding("paths", PROBLEM, printable(f"{name}: {problem}"), remedy)
