"""The fields of mountinfo."""

from __future__ import annotations

import re


def unescape(text: str) -> str:
    r"""Undo the kernel's octal escapes of space, tab, newline and backslash (\040)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
