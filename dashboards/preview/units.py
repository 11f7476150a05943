"""Numbers as text in Grafana's units. An unknown unit is an error: Grafana would print its name.

After the value formats of grafana-data. Without a fixed number of decimals Grafana takes as many as
the size of the number needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timezone

Format = Callable[[float, int | None], str]
SI = (" ", " k", " M", " G", " T", " P", " E", " Z", " Y")
BELOW_ONE = (" f", " p", " n", " µ", " m")
BINARY = (" ", " Ki", " Mi", " Gi", " Ti", " Pi", " Ei")
SHORT = ("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint")
COUNTS = ("", " K", " M", " B", " T")
# From each size of seconds on, the unit and its name.
TIMES = (
    (0.0, 1e-9, " ns"),
    (1e-6, 1e-6, " µs"),
    (1e-3, 1e-3, " ms"),
    (1.0, 1.0, " s"),
    (60.0, 60.0, " mins"),
    (3600.0, 3600.0, " hours"),
    (86400.0, 86400.0, " days"),
    (604800.0, 604800.0, " weeks"),
    (31536000.0, 3.15569e7, " years"),
)


def fixed(value: float, decimals: int | None) -> str:
    """Return a number with that many decimals; without one, with what its size needs."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}∞"
    places = _decimals(value) if decimals is None else decimals
    factor = 10**places
    text = f"{math.floor(value * factor + 0.5) / factor:.{places}f}"
    if decimals is None and places:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _decimals(value: float) -> int:
    if value == 0 or value % 1 == 0:
        return 0
    places = 1 - math.floor(math.log10(abs(value)))
    return max(0, places + (value / 10.0**-places > 2.25))


def _plain(suffix: str) -> Format:
    return lambda value, decimals: fixed(value, decimals) + suffix


def _scaled(factor: int, names: tuple[str, ...], unit: str = "", offset: int = 0) -> Format:
    """Return a format with a prefix; `offset` is where the number's own unit stands in them."""

    def text(value: float, decimals: int | None) -> str:
        if not math.isfinite(value):
            return fixed(value, decimals)
        size = abs(value)
        power = math.floor(math.log(size, factor) + 1e-12) if size else 0
        power = min(max(power, -offset), len(names) - 1 - offset)
        suffix = names[offset + power] + unit
        return fixed(value / factor**power, decimals) + (suffix if suffix.strip() else "")

    return text


def _si(unit: str, own: int = 0) -> Format:
    return _scaled(1000, BELOW_ONE + SI, unit, len(BELOW_ONE) + own)


def _iec(unit: str, own: int = 0) -> Format:
    return _scaled(1024, BINARY, unit, own)


def _count(unit: str) -> Format:
    return _scaled(1000, tuple(f"{name} {unit}" for name in COUNTS))


def _seconds(value: float, decimals: int | None) -> str:
    if value == 0 or not math.isfinite(value):
        return fixed(value, decimals) + " s"
    _, size, name = [one for one in TIMES if abs(value) >= one[0]][-1]
    return fixed(value / size, decimals) + name


def _times(factor: float) -> Format:
    return lambda value, decimals: _seconds(value * factor, decimals)


def _locale(value: float, decimals: int | None) -> str:
    text = f"{value:,.{3 if decimals is None else decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _iso(value: float, _decimals: int | None) -> str:
    return datetime.fromtimestamp(value / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float) -> str:
    """Return a distance in time as moment.js words it."""
    size = abs(seconds)
    for limit, length, word, single in (
        (45, 1, "seconds", "a few seconds"),
        (2700, 60, "minutes", "a minute"),
        (79200, 3600, "hours", "an hour"),
        (2246400, 86400, "days", "a day"),
        (27648000, 2629746, "months", "a month"),
        (math.inf, 31556952, "years", "a year"),
    ):
        if size < limit:
            count = math.floor(size / length + 0.5)
            text = single if count < 2 or length == 1 else f"{count} {word}"
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    raise AssertionError("no limit above infinity")


FORMATS: dict[str, Format] = {
    "none": _plain(""),
    "string": _plain(""),
    "short": _scaled(1000, SHORT),
    "sishort": _si(""),
    "locale": _locale,
    "percent": _plain("%"),
    "percentunit": lambda value, decimals: fixed(value * 100, decimals) + "%",
    "celsius": _plain(" °C"),
    "bool": lambda value, _: "True" if value else "False",
    "bool_yes_no": lambda value, _: "Yes" if value else "No",
    "bool_on_off": lambda value, _: "On" if value else "Off",
    "s": _seconds,
    "ms": _times(0.001),
    "µs": _times(1e-6),
    "m": _times(60),
    "h": _times(3600),
    "d": _times(86400),
    "dateTimeAsIso": _iso,
    **{f"{key}bytes": _iec("B", own) for own, key in enumerate(("", "k", "m", "g", "t", "p"))},
    **{f"dec{key}bytes": _si("B", own) for own, key in enumerate(("", "k", "m", "g", "t", "p"))},
    **{f"{key}Bs": _si("B/s", own) for own, key in enumerate(("K", "M", "G", "T"), 1)},
    **{f"{key}bits": _si("b/s", own) for own, key in enumerate(("K", "M", "G", "T"), 1)},
    **{f"{key}iBs": _iec("B/s", own) for own, key in enumerate(("K", "M", "G", "T"), 1)},
    "bits": _iec("b"),
    "decbits": _si("b"),
    "Bps": _si("B/s"),
    "bps": _si("b/s"),
    "binBps": _iec("B/s"),
    "binbps": _iec("b/s"),
    "pps": _si("p/s"),
    "hertz": _si("Hz"),
    "rothz": _si("Hz"),
    "watt": _si("W"),
    "mwatt": _si("W", -1),
    "kwatt": _si("W", 1),
    "watth": _si("Wh"),
    "kwatth": _si("Wh", 1),
    "joule": _si("J"),
    "volt": _si("V"),
    "amp": _si("A"),
    "dBm": _si("dBm"),
    "rotrpm": _plain(" rpm"),
    "flops": _si("FLOPS"),
    "cps": _count("c/s"),
    "ops": _count("ops/s"),
    "iops": _count("io/s"),
    "reqps": _count("req/s"),
    "wps": _count("wr/s"),
    "rps": _count("rd/s"),
    "cpm": _count("c/m"),
    "opm": _count("ops/m"),
}


def text(value: float, unit: str, decimals: int | None = None, now: float = 0.0) -> str:
    """Return a number as text; `now` is the time in seconds for `dateTimeFromNow`."""
    if unit == "dateTimeFromNow":
        return ago(now - value / 1000)
    kind, colon, rest = unit.partition(":")
    if colon and kind == "suffix":
        return f"{fixed(value, decimals)} {rest}"
    if colon and kind == "prefix":
        return rest + fixed(value, decimals)
    if unit not in FORMATS:
        raise ValueError(f"unknown unit {unit!r}")
    return FORMATS[unit](value, decimals)
