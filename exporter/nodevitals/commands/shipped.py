"""Finds the files that the package ships for a site. In: the name of a part. Out: its folder. And
links to what it does not ship: the pages of this version's documentation.

The wheel has them in nodevitals/pack/ (pyproject.toml, force-include); a checkout has one source.
"""

from __future__ import annotations

import re
from pathlib import Path

import nodevitals

DOCUMENTATION = f"https://github.com/nodevitals/nodevitals/blob/v{nodevitals.__version__}/"
IN_REPOSITORY = re.compile(r"(?<![\w./-])(?:docs/[\w./-]+\.md|rules/faults/\w+\.yaml)\b")

_PACKAGE = Path(nodevitals.__file__).parent
# Where a checkout has each part.
_IN_CHECKOUT = {
    "rules": "rules",
    "alertmanager": "alertmanager",
    "dashboards": "helm/nodevitals/files/dashboards",
    "provisioning": "dashboards/provisioning",
    "packaging": "exporter/packaging",
}


def shipped(part: str) -> Path:
    """The folder of a part: `rules`, `alertmanager`, `dashboards` (a folder per language),
    `provisioning` (of Grafana) or `packaging` (unit, example and Prometheus' configuration).
    """
    installed = _PACKAGE / "pack" / part
    return installed if installed.is_dir() else _PACKAGE.parents[1] / _IN_CHECKOUT[part]


def page(path: str) -> str:
    """The URL of a file of the repository."""
    return f"{DOCUMENTATION}{path}"


def linked(text: str) -> str:
    """The text with the URL of each page and of each source of rules that it names."""
    return IN_REPOSITORY.sub(lambda match: page(match[0]), text)
