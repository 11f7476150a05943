"""Finds the files that the package ships for a site. In: the name of a part. Out: its folder.

The wheel has them in nodevitals/pack/ (pyproject.toml, force-include); a checkout has one source.
"""

from __future__ import annotations

from pathlib import Path

import nodevitals

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
