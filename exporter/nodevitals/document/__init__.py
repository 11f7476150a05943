"""Strict YAML files. In: a file or its text. Out: typed values, or every problem with its path,
line and column.
"""

from nodevitals.document.files import read_file
from nodevitals.document.problems import DocumentError, Problem, UnreadableError
from nodevitals.document.settings import SettingsDocument
from nodevitals.document.suggest import meant
from nodevitals.document.text import parse_yaml
from nodevitals.document.typed import convert
from nodevitals.document.wording import translated

__all__ = [
    "DocumentError",
    "Problem",
    "SettingsDocument",
    "UnreadableError",
    "convert",
    "meant",
    "parse_yaml",
    "read_file",
    "translated",
]
