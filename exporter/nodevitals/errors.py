"""The two ways in which a run may fail as expected. Everything else that it raises is a bug."""

from __future__ import annotations


class ProbeError(Exception):
    """An expected failure of what is probed: `reason` is one word for rules and the history,
    `message` one line for people. `stays` says that the handles of a resident are good: its process
    runs again.
    """

    def __init__(self, reason: str, message: str, *, stays: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.stays = stays


class Absent(Exception):
    """The hardware or its tool is not on this node, and the configuration does not expect it."""
