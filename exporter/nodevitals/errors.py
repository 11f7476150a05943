"""The two expected failures of a run (any other exception is a bug), and translatable messages."""

from __future__ import annotations


class Wording(str):
    """An English text that can be translated: `template`, with `{name}` for each of `values`.

    As a str it is the formatted text. A catalogue of translations has the template as its key; a
    value that is a Wording is translated as well. `error.args[0]` of an exception is the Wording,
    `str(error)` only its text.
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, /, **values: object) -> Wording:
        """Format the template."""
        self = super().__new__(cls, template.format(**values))
        self.template, self.values = template, values
        return self


class ProbeError(Exception):
    """An expected failure of the probed object: `reason` is one word for rules and the history,
    `message` one line for people. `stays`: the handles of a resident are good, and its process runs
    again.
    """

    def __init__(self, reason: str, message: str, *, stays: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.stays = stays


class Absent(Exception):
    """The hardware or its tool is not on this node, and the configuration does not expect it."""
