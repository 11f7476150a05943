"""Pages from templates: languages, and how numbers are written. All values are escaped.

In: an ASGI scope (for the language), a template's name, values. Out: HTML.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from nodevitals_hub.web.texts import phrases
from nodevitals_hub.web.texts.texts import LANGUAGES, TEXTS

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "static/style.css").read_bytes()


def language_of(scope: Any) -> str:
    """`?lang=`, else the cookie, else the first known one of Accept-Language, else English."""
    query: str = scope["query_string"].decode("latin-1")
    asked = parse_qs(query).get("lang", [""])
    if asked[0] in LANGUAGES:
        return asked[0]
    headers: dict[bytes, str] = {
        name.lower(): value.decode("latin-1") for name, value in scope["headers"]
    }
    for part in headers.get(b"cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "lang" and value in LANGUAGES:
            return value
    for part in headers.get(b"accept-language", "").split(","):
        if part.strip().lower()[:2] in LANGUAGES:
            return part.strip().lower()[:2]
    return "en"


def moment(seconds: float | None) -> str:
    """A time, in UTC."""
    if seconds is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "-"


def span(seconds: float | None, language: str = "en") -> str:
    """A length of time; none where the clock was set back meanwhile."""
    if seconds is None or seconds < 0:
        return "-"
    units = ("秒", "分钟", "小时", "天") if language == "zh" else ("s", "min", "h", "d")
    second, minute, hour, day = units
    if seconds < 120:
        return f"{seconds:.3g} {second}"
    if seconds < 7200:
        return f"{seconds / 60:.0f} {minute}"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.3g} {hour}"
    return f"{seconds / 86400:.3g} {day}"


@pass_context
def _span(context: Context, seconds: float | None) -> str:
    return span(seconds, context["lang"])


def rate(value: float | None, latency: bool = False) -> str:
    """A figure: bits per second, or the seconds of a latency."""
    if value is None:
        return "-"
    if latency:
        return f"{value * 1e6:.3g} µs"
    for size, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if value * 8 >= size:
            return f"{value * 8 / size:.4g} {unit}"
    return f"{value * 8:.3g} b/s"


def size(value: float) -> str:
    """A number of bytes."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:.0f} B"


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(moment=moment, span=_span, rate=rate, size=size)
    found.globals.update(phrases=phrases)
    return found


_TEMPLATES = _environment()


def texts_of(language: str) -> Callable[..., str]:
    """A function that looks up a text; `count` chooses between singular and plural."""
    place = LANGUAGES.index(language)

    def t(key: str, **words: object) -> str:
        pair = TEXTS.get(key)
        if pair is None:
            return key
        one, _, several = pair[place].partition("|")
        return (several if several and words.get("count") != 1 else one).format(**words)

    return t


def _other_language(scope: Any, language: str) -> tuple[str, str]:
    """The other language, and the query of the same page in it."""
    other = next(one for one in LANGUAGES if one != language)
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return other, urlencode([*(pair for pair in query if pair[0] != "lang"), ("lang", other)])


def render(scope: Any, template: str, **values: Any) -> str:
    """A page."""
    language = language_of(scope)
    client = (scope.get("state") or {}).get("client")
    common = {
        "t": texts_of(language),
        "known": TEXTS,
        "lang": language,
        "other": _other_language(scope, language),
        "client": client,
        "path": scope["path"],
        "refresh": False,
    }
    return _TEMPLATES.get_template(template).render({**common, **values})
