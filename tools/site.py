"""Hook of mkdocs: the pages of the repository at their own places, as one site.

In: the Markdown files of PAGES and the files that they link to. Out: mkdocs' list of files. The
layout is that of the repository, so a relative link is the same here and on a forge.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "rules/runbooks/**/*.md", "helm/nodevitals/README.md")
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?=[)#])")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
# A folder has no page of its own: it gets a list of its files, under this name.
LISTING = "index.md"
# The theme breaks code at any letter in a narrow column: not the names that a table is about.
STYLE = ("site.css", ".md-typeset td:first-child code { white-space: nowrap }\n")


def pages(root: Path) -> list[Path]:
    """Return every Markdown file of the site."""
    return sorted({path for pattern in PAGES for path in root.glob(pattern)})


def linked(root: Path, page: Path) -> set[Path]:
    """Return the files and folders of the repository that a page links to."""
    texts = LINK.findall(FENCE.sub("", page.read_text()))
    targets = {(page.parent / unquote(text)).resolve() for text in texts}
    return {path for path in targets if path.exists() and path.is_relative_to(root)}


def listing(root: Path, folder: Path) -> str:
    """Return the page of a folder: its files, with the title of each that has one."""
    lines = [f"# {folder.relative_to(root)}\n"]
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            heading = re.search(r"^# (.+)", path.read_text()) if path.suffix == ".md" else None
            title = f": {heading[1]}" if heading else ""
            lines.append(f"- [{path.name}]({path.name}){title}")
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of `docs_dir` by those of the whole site; the theme's stay."""
    root = Path(config.config_file_path).parent
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    markdown = pages(root)
    others = set().union(*(linked(root, page) for page in markdown)) - set(markdown)
    folders = {path for path in others if path.is_dir() and path != root}
    others = {path for path in others - folders if path.is_file()}
    others |= {path for one in folders for path in one.iterdir() if path.is_file()}
    for path in sorted({*markdown, *others}):
        name = str(path.relative_to(root))
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for folder in sorted(folders):
        name = f"{folder.relative_to(root)}/{LISTING}"
        files.append(File.generated(config, name, content=listing(root, folder)))
    files.append(File.generated(config, STYLE[0], content=STYLE[1]))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Let links to a folder lead to its list."""
    folder = posixpath.dirname(page.file.src_uri)

    def lead(found: re.Match[str]) -> str:
        path = found["path"]
        name = posixpath.normpath(posixpath.join(folder, path, LISTING))
        return f"{path.rstrip('/')}/{LISTING}" if files.get_file_from_path(name) else path

    return LINK.sub(lead, markdown)
