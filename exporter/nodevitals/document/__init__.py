"""Strict YAML files. In: a file or its text. Out: typed values, or every problem with its path and
line.
"""

from nodevitals.document.files import read_file
from nodevitals.document.problems import DocumentError, Problem
from nodevitals.document.settings import SettingsDocument
from nodevitals.document.text import parse_yaml
from nodevitals.document.typed import convert

__all__ = [
    "DocumentError",
    "Problem",
    "SettingsDocument",
    "convert",
    "parse_yaml",
    "read_file",
]
