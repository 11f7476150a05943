"""A page of Markdown as a forge shows it: GitHub's measures, 16 px, in a window of 1,000 px.

`tools/test-python -m testbed.readme_page README.md README.png` writes its picture. In: a Markdown
file of this checkout. Out: its height, its picture.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt

from testbed.browser import Browser
from testbed.node import ROOT

WIDTH_PX = 1000
# The sizes of github.com's style for rendered Markdown.
STYLE = """
body { margin: 0; padding: 32px; font: 16px/1.5 sans-serif; color: #1f2328 }
h1, h2 { margin: 24px 0 16px; line-height: 1.25; padding-bottom: .3em;
  border-bottom: 1px solid #d1d9e0 }
h1 { font-size: 2em; margin-top: 0 } h2 { font-size: 1.5em } h3 { font-size: 1.25em }
p, ul, ol, table, pre { margin: 0 0 16px } ul, ol { padding-left: 2em } li + li { margin-top: 4px }
a { color: #0969da; text-decoration: none } img { max-width: 100% }
code, pre { font: 85%/1.45 "DejaVu Sans Mono", monospace; background: #f0f1f2; border-radius: 6px }
code { padding: .2em .4em } pre { padding: 16px; font-size: 13.6px; overflow: auto }
pre code { padding: 0; font-size: 100% }
table { border-collapse: collapse; display: block; width: max-content; max-width: 100% }
th, td { padding: 6px 13px; border: 1px solid #d1d9e0 } th { font-weight: 600 }
"""


def write_page(source: Path, folder: Path) -> Path:
    """Write the page of a Markdown file into a folder; pictures are those of the checkout."""
    body = MarkdownIt("commonmark").enable("table").render(source.read_text())
    page = folder / f"{source.name}.html"
    head = f'<meta charset="utf-8"><base href="{source.parent.as_uri()}/"><style>{STYLE}</style>'
    page.write_text(f"<!doctype html>{head}{body}")
    return page


def height_px(source: Path, picture: Path | None = None) -> int:
    """Return the height of a file's page, and write its picture."""
    with tempfile.TemporaryDirectory() as folder, Browser(WIDTH_PX, 900) as browser:
        browser.open(write_page(source, Path(folder)).as_uri())
        height = int(browser.evaluate("document.documentElement.offsetHeight"))
        if picture is not None:
            browser.resize(WIDTH_PX, height)
            browser.picture(picture)
    return height


if __name__ == "__main__":
    print(height_px(ROOT / sys.argv[1], Path(sys.argv[2])), "px")
