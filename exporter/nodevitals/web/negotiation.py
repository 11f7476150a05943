"""Content negotiation. In: Accept and Accept-Encoding headers. Out: the format of the response."""

from __future__ import annotations


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(item.split("=", 1) for item in parameters if "=" in item)
        if kind in quality and values.get("version", "1.0.0") in ("1.0.0", "0.0.1", "0.0.4"):
            quality[kind] = max(quality[kind], _quality(values.get("q", "1")))
    preferred, plain = quality.values()
    return preferred > 0 and preferred >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    for part in accept_encoding.split(","):
        name, _, parameter = part.strip().lower().partition(";")
        if name.strip() == "gzip":
            return _quality(parameter.strip().removeprefix("q=") or "1") > 0
    return False


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
