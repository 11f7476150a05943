"""The chart's files: rules and Alertmanager's configuration in, what templates of Helm read out."""

from __future__ import annotations

from pathlib import Path

from helm.alertmanager import chart_alertmanager
from helm.crd import crd
from helm.rules import chart_rules
from nodevitals.commands.rules.site.pack import Pack

CHART = Path(__file__).parent / "nodevitals"


def chart_files(pack: Pack) -> dict[Path, str]:
    """The files below `files/` for a rule pack; dashboards are made there (dashboards/)."""
    files = CHART / "files"
    return {
        files / "crds" / "checks.yaml": crd(),
        **{files / "rules" / name: text for name, text in chart_rules(pack).items()},
        **{files / "alertmanager" / name: text for name, text in chart_alertmanager().items()},
    }
