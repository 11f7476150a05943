"""What an installed package prints or writes names no file that only the repository has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals import __version__
from nodevitals.commands.cli import main
from nodevitals.commands.shipped import DOCUMENTATION, IN_REPOSITORY, linked

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "exporter/nodevitals").rglob("*.py"),
    *(ROOT / "hub/nodevitals_hub").rglob("*.py"),
]
# Generators of pages, which stand in the repository, and the catalogue's docstrings.
OF_THE_REPOSITORY = ("generated", "alerts_page.py")


def texts_of(source: Path) -> Iterator[str]:
    """The texts of a module that are no docstring and no argument of `page`."""
    tree = ast.parse(source.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) or (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") == "page"
        ):
            skipped.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Constant))
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and id(node) not in skipped:
            yield value


def test_no_text_of_a_program_names_a_page_of_the_repository() -> None:
    named = [
        (str(source.relative_to(ROOT)), text)
        for source in SOURCES
        if not set(OF_THE_REPOSITORY) & set(source.parts)
        for text in texts_of(source)
        if IN_REPOSITORY.search(text)
    ]
    assert named == []


def test_init_writes_urls_of_this_version(tmp_path: Path) -> None:
    main(["init", str(tmp_path), "--expected=none"])  # warns of a checkout
    links = []
    for file in tmp_path.rglob("*.*"):
        text = file.read_text() if file.is_file() else ""
        assert not IN_REPOSITORY.search(text), file
        links += re.findall(re.escape(DOCUMENTATION) + r"([\w./-]+\.(?:md|yaml))", text)
    assert "docs/hub.md" in links
    assert all((ROOT / link).is_file() for link in links)


def test_a_link() -> None:
    text = "see docs/hub.md, other/docs/hub.md and https://example.org/docs/hub.md."
    url = f"https://github.com/nodevitals/nodevitals/blob/v{__version__}/docs/hub.md"
    assert linked(text) == text.replace("see docs/hub.md", f"see {url}")
    assert linked(linked(text)) == linked(text)


@pytest.mark.parametrize("name", ["bash", "zsh", "man"])
def test_completion_and_manual_page(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["completion", name]) == 0
    beginning = {"bash": "# AUTO", "zsh": "#compdef nodevitals", "man": ".TH"}[name]
    assert beginning in capsys.readouterr().out
