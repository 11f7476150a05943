"""The chart's files: rules, dashboards and Alertmanager's configuration in, copies for Helm out.

What a template only passes on is copied as it is; dashboards lose their spaces, because Helm keeps
the whole chart in one Secret of at most 1 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from helm.alertmanager import chart_alertmanager
from helm.crd import crd
from helm.rules import chart_rules
from nodevitals.commands.rules.site.pack import Pack

CHART = Path(__file__).parent / "nodevitals"


def chart_files(pack: Pack, dashboards: Mapping[Path, str]) -> dict[Path, str]:
    """The files below `files/` for a rule pack, and dashboards as .../LANGUAGE/NAME.json."""
    files = CHART / "files"
    return {
        files / "crds" / "checks.yaml": crd(),
        **{files / "rules" / name: text for name, text in chart_rules(pack).items()},
        **{
            files / "dashboards" / path.parent.name / path.name: _minified(text)
            for path, text in dashboards.items()
        },
        **{files / "alertmanager" / name: text for name, text in chart_alertmanager().items()},
    }


def _minified(text: str) -> str:
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) + "\n"
