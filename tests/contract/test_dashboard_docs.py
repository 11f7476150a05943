"""docs/dashboards.md has every dashboard, with its picture, and names only what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dashboards.md").read_text()
BOARDS = sorted((ROOT / "helm/nodevitals/files/dashboards/en").glob("*.json"))
PICTURE = re.compile(r"!\[([^]]+)\]\((pictures/[a-z]+\.png)\)")


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_a_section_and_a_picture(path: Path) -> None:
    board = json.loads(path.read_text())
    title = board["title"].removeprefix("nodevitals / ")
    assert f"\n### {title}\n![{title}](pictures/{path.stem}.png)\n" in PAGE
    for model in board["templating"]["list"]:
        assert model.get("hide") or model["label"] in PAGE.partition("## Metrics of others")[0]


def test_the_pictures_exist_and_are_small() -> None:
    files = [ROOT / "docs" / path for _, path in PICTURE.findall(PAGE)]
    assert len(files) >= len(BOARDS)
    for file in files:
        assert file.stat().st_size < 300_000
        with Image.open(file) as image:
            assert image.width == 1600
    assert "not screenshots of Grafana" in PAGE
    pages = "".join(path.read_text() for path in (*ROOT.glob("README*.md"), ROOT / "docs/hub.md"))
    for file in set((ROOT / "docs" / "pictures").iterdir()) - set(files):
        assert f"pictures/{file.name})" in pages, file
