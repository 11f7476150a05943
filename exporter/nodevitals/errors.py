"""The two ways in which a run may fail as expected. Everything else that it raises is a bug."""

from __future__ import annotations


class ProbeError(Exception):
    """An expected failure of what is probed: `reason` is one word for rules and the history,
    `message` one line for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Absent(Exception):
    """The hardware or its tool is not on this node, and the configuration does not expect it."""
