"""Tests of nodes and links that a person, an alert, a schedule or a job requests.

The command line and the hub share this: the model of a check, its plan and its cost, the tools that
run it, and the verdicts on its results.
"""

from __future__ import annotations

from nodevitals.document import ProblemsError


class CheckError(ProblemsError):
    """A check, or a part of it, could not be run; the text says why, in one line."""
