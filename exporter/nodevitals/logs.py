"""Logging that never blocks: a bounded queue between the agent and its stderr.

When the reader of stderr (journald, a container runtime) hangs, only the writing thread blocks;
messages that do not fit into the queue are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from typing import TextIO

QUEUE_LENGTH = 1000
FORMATS = ("logfmt", "json")
LEVELS = ("debug", "info", "warn", "error")


def _fields(record: logging.LogRecord) -> dict[str, str]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + logging.Formatter().formatException(record.exc_info)
    return {
        "ts": f"{stamp}.{int(record.msecs):03d}Z",
        "level": "warn" if record.levelname == "WARNING" else record.levelname.lower(),
        "caller": f"{record.module}.py:{record.lineno}",
        "msg": message,
    }


def as_logfmt(record: logging.LogRecord) -> str:
    """One line of key=value pairs, as Prometheus writes it."""
    return " ".join(
        f"{key}={json.dumps(value, ensure_ascii=False) if _needs_quotes(value) else value}"
        for key, value in _fields(record).items()
    )


def _needs_quotes(value: str) -> bool:
    return not value or any(character in ' "=\n\t\\' or character < " " for character in value)


def as_json(record: logging.LogRecord) -> str:
    """One JSON object per line."""
    return json.dumps(_fields(record), ensure_ascii=False)


class QueuedHandler(logging.Handler):
    """Formats records at once and writes them from its own thread; counts those it drops."""

    def __init__(self, log_format: str, stream: TextIO) -> None:
        super().__init__()
        self._render = as_json if log_format == "json" else as_logfmt
        self._stream = stream
        self._queue: queue.Queue[str | None] = queue.Queue(QUEUE_LENGTH)
        self.dropped = 0
        self._writer = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        try:
            self._queue.put_nowait(self._render(record))
        except queue.Full:
            self.dropped += 1

    def drain(self, seconds: float) -> None:
        """Wait at most this long until the queue is written."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._writer.join(seconds)

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self._queue.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1


def set_up(level: str, log_format: str) -> QueuedHandler:
    """Send every log record of this process through one queued handler."""
    handler = QueuedHandler(log_format, sys.stderr)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logging.raiseExceptions = False
    return handler
