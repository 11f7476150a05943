"""Loads both configuration files, in a process that may hang or crash alone.

In: their paths. Out: what the agent uses of them, or every problem, one line each. It is imported
only in such a process: the agent itself opens no file that can hang.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from nodevitals import config, probes, web_config
from nodevitals.document import DocumentError, Problem, UnreadableError, read_file
from nodevitals.engine.plan import plan_targets
from nodevitals.engine.protocol import Files, Loaded
from nodevitals.wire import ProtocolError, frame, one_line

MAX_TARGETS = 5000
Read = TypeVar("Read")


def load(files: Files) -> Loaded:
    """Read, check and plan. Never raises."""
    errors: list[str] = []
    unreadable: list[str] = []
    planned = _attempt(_planned, files.config, errors, unreadable)
    web = _attempt(web_config.read, files.web, errors, unreadable)
    if planned is None or web is None:
        return Loaded(errors=(*errors, *unreadable), invalid=bool(errors))
    return msgspec.structs.replace(planned, web=web)


def _attempt(
    read: Callable[[str | None], Read],
    path: str | None,
    errors: list[str],
    unreadable: list[str],
) -> Read | None:
    try:
        return read(path)
    except DocumentError as error:
        place = unreadable if isinstance(error, UnreadableError) else errors
        place += [problem.within(str(path)) for problem in error.problems]
    except Exception as error:  # a mistake in the settings of a site's probe
        errors.append(one_line(f"{path}: {type(error).__name__}: {error}"))
    return None


def _planned(path: str | None) -> Loaded:
    content = b"" if path is None else read_file(path)
    checked, warnings = config.check(content, probes.registered())
    targets = tuple(plan_targets(checked))
    if len(targets) > MAX_TARGETS:
        text = f"{len(targets)} targets, over {MAX_TARGETS}: remove some"
        raise DocumentError([Problem("probes", text)])
    lines = tuple(warning.within(str(path)) for warning in warnings)
    return Loaded(checked.labels, checked.state_directory, targets, warnings=lines)


def framed(loaded: Loaded) -> bytes:
    """The reply to the agent; an error where it is too large for one."""
    try:
        return frame(loaded)
    except ProtocolError as error:
        return frame(Loaded(errors=(str(error),)))
