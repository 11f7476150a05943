"""Values as YAML has them. Pure: values in, text out."""

from __future__ import annotations

import re

import msgspec

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# YAML 1.1 reads these as booleans and null.
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def spelled(rate: float) -> str:
    """Bytes per second as the configuration spells them: 400Gb/s."""
    return f"{rate * 8 / 1e9:g}Gb/s"


def key(name: str) -> str:
    """A name as a key of YAML."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else quoted(name)


def quoted(text: str) -> str:
    """A text as YAML reads it back."""
    return msgspec.json.encode(text).decode()
