"""Pages from templates: languages, and how numbers are written. All values are escaped.

In: an ASGI scope (for the language), a template's name, values. Out: HTML.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nodevitals.hub.web.texts import LANGUAGES, TEXTS

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "static/style.css").read_bytes()


def language_of(scope: Any) -> str:
    """`?lang=`, else the cookie, else the first known one of Accept-Language, else English."""
    asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=200).get("lang", [""])
    if asked[0] in LANGUAGES:
        return asked[0]
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    for part in headers.get(b"cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "lang" and value in LANGUAGES:
            return value
    for part in headers.get(b"accept-language", "").split(","):
        if part.strip().lower()[:2] in LANGUAGES:
            return part.strip().lower()[:2]
    return "en"


def moment(seconds: Optional[float]) -> str:
    """A time, in UTC."""
    if seconds is None:
        return "–"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "–"


def span(seconds: Optional[float]) -> str:
    """A length of time."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def rate(value: Optional[float], latency: bool = False) -> str:
    """A figure: bits per second, or the seconds of a latency."""
    if value is None:
        return "–"
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
    found.filters.update(moment=moment, span=span, rate=rate, size=size)
    return found


_TEMPLATES = _environment()


def render(scope: Any, template: str, **values: Any) -> str:
    """A page."""
    language = language_of(scope)
    place = LANGUAGES.index(language)

    def t(key: str, **words: object) -> str:
        pair = TEXTS.get(key)
        return pair[place].format(**words) if pair else key

    state = scope.get("state") or {}
    client = state.get("client")
    common = {"t": t, "lang": language, "client": client, "path": scope["path"], "refresh": False}
    return _TEMPLATES.get_template(template).render({**common, **values})
