"""Label matchers as Alertmanager and PromQL write them: text in, a test of labels out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

_OPERATOR = re.compile(r"=~|!=|!~|=")
_LABEL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,200}")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class LabelMatcher(msgspec.Struct, frozen=True):
    """`label operator "value"`; a label that is missing has the value ''."""

    label: str
    operator: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels match."""
        return self.matches_value(labels.get(self.label, ""))

    def matches_value(self, value: str) -> bool:
        """Whether one value matches."""
        if "~" in self.operator:
            found = _pattern(self.value).fullmatch(value) is not None
        else:
            found = self.value == value
        return found != self.operator.startswith("!")


def all_match(matchers: tuple[LabelMatcher, ...], labels: Mapping[str, str]) -> bool:
    """Whether every matcher matches."""
    return all(matcher.matches(labels) for matcher in matchers)


def _parts(text: str) -> Iterator[str]:
    """The text between commas that are not within quotes."""
    start, quoted, escaped = 0, False, False
    for position, character in enumerate(text):
        if quoted and (escaped or character == "\\"):
            escaped = not escaped
        elif character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def parse_matchers(text: str) -> Iterator[LabelMatcher]:
    """The matchers of `a="b"`, `a=~b` or `{a="b", c!="d"}`. Raises ValueError."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    for part in _parts(inner):
        if part.strip():
            operator = _OPERATOR.search(part)
            label = part[: operator.start()].strip() if operator else ""
            if operator is None or not _LABEL.fullmatch(label):
                raise ValueError(f'{text!r} is not a matcher: write it like severity="critical"')
            value = unquoted(part[operator.end() :].strip())
            yield LabelMatcher(label, operator[0], value)


def unquoted(text: str) -> str:
    """The value of a string in quotes, or the text itself."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'`":
        return text
    if text[0] == "`":
        return text[1:-1]
    return _ESCAPE.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1])


@lru_cache(maxsize=4096)
def _pattern(expression: str) -> re.Pattern[str]:
    return re.compile(expression)
