"""Renders pages from templates: languages, formats of numbers. All values are escaped.

In: an ASGI scope (for the language), a template's name, values. Out: HTML.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from nodevitals_hub.web.texts import phrases
from nodevitals_hub.web.texts.texts import TEXTS
from nodevitals_hub.web.texts.translations import LANGUAGES, texts_of

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "static/style.css").read_bytes()


def language_of(scope: Any) -> str:
    """`?lang=`, else the cookie, else the first known language of Accept-Language, else English."""
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
    """A duration; `-` for a negative one, after the clock was set back."""
    if seconds is None or seconds < 0:
        return "-"
    t = texts_of(language)
    if seconds < 120:
        return f"{rounded(seconds)} {t('second')}"
    if seconds < 7200:
        return f"{seconds / 60:.0f} {t('minute')}"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.3g} {t('hour')}"
    return f"{seconds / 86400:.3g} {t('day')}"


def rounded(value: float) -> str:
    """A number for people: three digits, no exponent, `< 0.01` for less."""
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:.0f}" if value >= 100 else f"{round(value, 2):.3g}"


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


def gigabytes(value: float) -> str:
    """A bus bandwidth, in the unit of the tools: 10^9 bytes per second."""
    return f"{value / 1e9:.3g} GB/s"


def size(value: float) -> str:
    """A number of bytes."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:.0f} B"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(moment=moment, span=_span, rate=rate, size=size, rounded=rounded)
    environment.filters.update(gigabytes=gigabytes)
    environment.globals.update(phrases=phrases)
    return environment


_TEMPLATES = _environment()


def _other_language(scope: Any, language: str) -> tuple[str, str, str]:
    """The other language, the query of the same page in it, and its name."""
    other = next(known for known in LANGUAGES if known != language)
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    pairs = [*(pair for pair in query if pair[0] != "lang"), ("lang", other)]
    return other, urlencode(pairs), LANGUAGES[other]


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
