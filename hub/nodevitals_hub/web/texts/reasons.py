"""Reasons of refusals in the language of the client.

In: a reason as the hub writes it, for programs and logs in English. Out: the same in a language;
one that is not in the table of texts_reasons.py stays as it is.
"""

from __future__ import annotations

from string import Formatter

from nodevitals_hub.web.texts.texts_reasons import REASONS


def reason_in(language: str, text: str) -> str:
    """A reason in a language."""
    if language == "zh":
        for english, chinese in REASONS.items():
            values = values_of(english, text)
            if values is not None:
                return chinese.format(**values)
    return text


def values_of(template: str, text: str) -> dict[str, str] | None:
    """The values with which a template gives a text; None where there are none."""
    found: dict[str, str] = {}
    name = ""
    for literal, field, _, _ in Formatter().parse(template):
        value, matched, rest = text.partition(literal) if literal else ("", " ", text)
        if not matched or bool(value) != bool(name):
            return None
        if name:
            found[name] = value
        name, text = field or "", rest
    if name:
        found[name], text = text, ""
    return found if not text else None
