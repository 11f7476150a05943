"""Write the JSON of every dashboard in both languages.

It is in the chart, because Helm reads no file outside a chart; everything else reads it there.
"""

from __future__ import annotations

from pathlib import Path

from dashboards import agents, conformity, fabric, fleet, hardware, job, node, usage
from dashboards.language import LANGUAGES, Say

FOLDER = Path(__file__).parents[1] / "helm/nodevitals/files/dashboards"
MODULES = (fleet, node, hardware, fabric, conformity, job, usage, agents)


def files() -> dict[Path, str]:
    """Return the content of every file."""
    made = {}
    for language in LANGUAGES:
        for module in MODULES:
            board = module.board(Say(language))
            made[FOLDER / language / f"{board.name}.json"] = board.json()
    return made


def main() -> None:
    """Write them."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
