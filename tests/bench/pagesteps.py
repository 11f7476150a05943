"""The commands of a Markdown page, as steps, and whether an output is the one that the page shows.

In: the text of a page. Out: one step per fence of kind `sh` (commands) or `console` (commands after
`$ `, with their output). Fences below a line that says that tests do not run them are steps too,
marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ELLIPSIS = "…"
# The line above a block, as forges show it: a title of the fence is seen on the site only.
LABEL = re.compile(
    r"\*(?:Not run by our tests: |（本项目的自动测试不执行此段：)(?P<reason>.{8,}?)[.）]\*"
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)(?P<title>[^`\n]*)$")


@dataclass(frozen=True)
class Fence:
    """One fence of a page; the line is that of its first row of backticks."""

    line: int
    heading: str
    kind: str
    title: str
    text: str
    above: str
    """The last line before it that is not empty."""

    @property
    def not_run(self) -> bool:
        """Whether the page says that tests do not run it."""
        return LABEL.fullmatch(self.above) is not None


@dataclass(frozen=True)
class Step:
    """One fence of a page."""

    page: str
    heading: str
    kind: str
    text: str
    not_run: bool

    @property
    def commands(self) -> str:
        """What a shell runs."""
        if self.kind == "sh":
            return self.text
        return "".join(line[2:] + "\n" for line in self.text.splitlines() if line.startswith("$ "))

    @property
    def expected(self) -> list[str]:
        """The lines of output that the page shows."""
        if self.kind == "sh":
            return []
        lines = (line for line in self.text.splitlines() if not line.startswith("$ "))
        return [line for line in lines if line.strip()]


def steps(page: str, text: str) -> Iterator[Step]:
    """Yield the steps of a page in order. Fences of other kinds (yaml, text) are no steps."""
    for one in fences(page, text):
        if one.kind in ("sh", "console"):
            yield Step(page, one.heading, one.kind, one.text, one.not_run)


def fences(page: str, page_text: str) -> Iterator[Fence]:
    """Yield every fence of a page in order."""
    heading, above, opened, indent, lines = "", "", None, "", list[str]()
    for number, line in enumerate(page_text.splitlines(), 1):
        if opened is not None:
            if line.strip() != "```":
                lines.append(line.removeprefix(indent))
                continue
            start, kind, title = opened
            text = "".join(f"{row}\n" for row in lines)
            yield Fence(start, heading, kind, title, text, above)
            opened, lines, above = None, [], ""
        elif match := _FENCE.match(line):
            opened, indent = (number, match["kind"], match["title"].strip()), match["indent"]
        else:
            above = line.strip() or above
            if line.startswith("#"):
                heading = line.lstrip("# ")
    assert opened is None, f"{page}: a fence has no end"


def missing(expected: list[str], output: str, *, exact: bool = False) -> list[str]:
    """Return the expected lines that the output does not have, in their order.

    Widths of white space are equal to each other, and so are times; all numbers without `exact`:
    sizes and process numbers differ from machine to machine. `…` stands for any text.
    """
    plain = _without_times if exact else _without_numbers
    actual = [plain(line) for line in output.splitlines()]
    absent, position = list[str](), 0
    for line in expected:
        pattern = re.compile(".*".join(map(re.escape, plain(line).split(ELLIPSIS))))
        found = next(
            (at for at in range(position, len(actual)) if pattern.fullmatch(actual[at])), None
        )
        if found is None:
            absent.append(line)
        else:
            position = found + 1
    return absent


def _without_times(line: str) -> str:
    return re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]{8}", "TIME", " ".join(line.split()))


def _without_numbers(line: str) -> str:
    return re.sub(r"[0-9]+", "0", " ".join(line.split()))
