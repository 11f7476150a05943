"""The site of the pages: no dead link or anchor, no page left out, nothing from other servers."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from testbed.node import ROOT

# The site's own files.
PARTS = ("tools/site.py", "mkdocs.yml")
LOADED = re.compile(
    r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="?(?:https?:)?//', re.IGNORECASE
)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(
        [*command, "--config-file", str(root / "mkdocs.yml")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for pattern in ("docs/**/*.md", "rules/runbooks/**/*.md"):
        for page in ROOT.glob(pattern):
            assert (site / page.relative_to(ROOT)).with_suffix(".html").is_file(), page
    for name in ("index", "README.zh-CN", "CONTRIBUTING", "CHANGELOG", "helm/nodevitals/index"):
        assert (site / f"{name}.html").is_file(), name


def test_every_page_of_the_navigation_is_in_the_list_of_its_section(site: Path) -> None:
    """A page of the section that is open has a link beside the text."""
    config = (ROOT / "mkdocs.yml").read_text()
    sections = re.findall(r"^  - \w+:\n((?:      - .*\n?)+)", config, re.MULTILINE)
    assert len(sections) == 4
    for section in sections:
        pages = re.findall(r"^      - (.+): (\S+)\.md$", section, re.MULTILINE)
        last = pages[-1][1]
        html = (site / f"{last}.html").read_text()
        beside = html.partition('data-md-component="sidebar"')[2].partition("<article")[0]
        titles = re.findall(r'<span class="md-ellipsis">\s*(.+?)\s*<', beside)
        for title, name in pages:
            assert title in titles, f"{name}.md"


def test_the_site_is_not_built_over_what_init_writes(tmp_path: Path) -> None:
    """A build empties its folder first; the pages let `init` write to `site`, in a checkout."""
    root = tmp_path / "checkout"
    for name in PARTS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    config = (root / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (root / "mkdocs.yml").write_text(f"{config}\nnav:\n  - README.md\n")
    (root / "docs").mkdir()
    (root / "README.md").write_text("# A page\n")
    (root / "site").mkdir()
    (root / "site/nodevitals.yaml").write_text("# of this site\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (root / "site/nodevitals.yaml").is_file()
    assert (root / "dist/site/index.html").is_file()


def published(page: Path) -> str:
    """The text of a page as a browser shows it, without white space."""
    article = page.read_text().partition("<article")[2].partition("</article>")[0]
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", article)).split())


def texts(markdown: str) -> Iterator[str]:
    """Cells, paragraphs, headings and blocks of code as CommonMark reads them."""
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "fence":
            yield token.content
        elif token.type == "inline":
            parts = token.children or []
            yield "".join(one.content for one in parts if one.type in ("text", "code_inline"))


def test_no_text_of_a_page_is_lost(site: Path) -> None:
    """What a forge shows is on the site too: `{a | b}` in a table, the content of code."""
    compared = 0
    for pattern in ("*.md", "docs/**/*.md", "rules/runbooks/**/*.md", "helm/nodevitals/*.md"):
        for path in ROOT.glob(pattern):
            name = str(path.relative_to(ROOT).with_suffix(".html"))
            shown = published(site / re.sub(r"(^|/)README\.html$", r"\1index.html", name))
            for text in texts(path.read_text()):
                compared += 1
                assert "".join(text.split()) in shown, f"{path.relative_to(ROOT)}: {text}"
    assert compared > 10_000


def test_nothing_is_loaded_from_other_servers(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 150
    for page in pages:
        assert LOADED.findall(page.read_text()) == [], page
    styles = [*site.rglob("*.css"), *site.rglob("*.js")]
    assert [one for one in styles if re.search(r"url\(.?https?://", one.read_text())] == []


def test_names_in_the_first_column_are_not_broken(site: Path) -> None:
    """The theme breaks them at any letter: `kubernete` and `s` below it."""
    page = (site / "index.html").read_text()
    (style,) = re.findall(r'<link rel="stylesheet" href="([^"]*site\.css)"', page)
    assert "td:first-child code { white-space: nowrap }" in (site / style).read_text()


def test_search_finds_a_runbook(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    assert any("RdmaPortDown" in one["title"] for one in index["docs"])


def test_links_of_the_repository_hold_on_the_site(site: Path) -> None:
    """Each local link of each page leads to a file, also to a runbook and to a folder."""
    links = 0
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the server's root
            continue
        for target in re.findall(r'href="([^"#:?]+)(?:#[^"]*)?"', page.read_text()):
            links += 1
            assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"
    assert links > 1000


@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("docs/jobs.md", "[gone](gone.md)", "link 'gone.md'"),
        ("docs/jobs.md", "[gone](jobs.md#gone)", "anchor"),
        ("docs/jobs.md", "[gone](../rules/gone/)", "'../rules/gone/'"),
        ("README.md", "[gone](docs/jobs.md#gone)", "'#gone'"),
        ("README.zh-CN.md", "[gone](docs/gone.md)", "link 'docs/gone.md'"),
        ("CONTRIBUTING.md", "[gone](docs/gone.md)", "link 'docs/gone.md'"),
        ("rules/runbooks/OomKill.md", "[gone](gone.md)", "link 'gone.md'"),
        ("helm/nodevitals/README.md", "[gone](#gone)", "'#gone'"),
        ("docs/adr/0011-rooms.md", "[gone](0000-gone.md)", "link '0000-gone.md'"),
        ("docs/new.md", "# new", "docs/new.md"),
    ],
)
def test_a_dead_link_fails(page: str, text: str, problem: str, tmp_path: Path) -> None:
    """A small copy: the page itself, and the pages that it needs."""
    root = tmp_path / "checkout"
    for name in PARTS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    config = (root / "mkdocs.yml").read_text().partition("\nnav:")[0]
    pages = {page, "docs/jobs.md", "README.md"}
    nav = "".join(f"  - {one}\n" for one in sorted(pages - {"docs/new.md"}))
    (root / "mkdocs.yml").write_text(f"{config}\nnav:\n{nav}")
    for name in pages:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# A page\n")
    assert build(root, tmp_path / "good").returncode == ("docs/new.md" in pages)
    with (root / page).open("a") as file:
        file.write(f"\n{text}\n")
    done = build(root, tmp_path / "site")
    assert done.returncode == 1, done.stderr
    assert problem in done.stderr
