"""Strict YAML files. In: a file or its text. Out: typed values, or every problem with its path,
line and column.

The YAML parser takes a megabyte, and few processes of an agent read a file: `SettingsDocument` and
`parse_yaml` are imported at their first use. Modules of the agent import them where they read.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nodevitals.document.problems import (
    DocumentError,
    Problem,
    ProblemsError,
    UnreadableError,
    read_file,
)
from nodevitals.document.typed import (
    add_problems,
    convert,
    convert_parts,
    meant,
    translated,
)

if TYPE_CHECKING:
    from nodevitals.document.settings import SettingsDocument
    from nodevitals.document.text import parse_yaml

__all__ = [
    "DocumentError",
    "Problem",
    "ProblemsError",
    "SettingsDocument",
    "UnreadableError",
    "add_problems",
    "convert",
    "convert_parts",
    "meant",
    "parse_yaml",
    "read_file",
    "translated",
]

_LATER = {"SettingsDocument": "settings", "parse_yaml": "text"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
