"""Each command of a page is run by a test, or is visibly marked as not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from bench import first_hour, pages
from bench.pagesteps import Fence, fences
from nodevitals.commands.cli import Parser, parser_of
from nodevitals.commands.generated.command_line import leaves
from testbed import pageblocks
from testbed.node import ROOT
from testbed.pagecommands import PAGES as ON_THE_TEST_BED

# Runs every command of its pages that is not marked.
RUNNERS = {
    "tests/bench/first_hour.py": first_hour.PAGES,
    "tests/bench/pages.py": pages.PAGES,
    "tests/testbed/pagecommands.py": ON_THE_TEST_BED,
}
RUN = {page for run in RUNNERS.values() for page in run}
PAGES = sorted(
    str(path.relative_to(ROOT)) for pattern in pageblocks.PAGES for path in ROOT.glob(pattern)
)
COMMANDS = ("sh", "console")
OTHERS = ("text", "yaml", "python", "promql", "json", "mermaid", "nginx")
LABEL = "*Not run by our tests: REASON.*"
PROGRAMS = (
    r"(nodevitals|curl|systemctl|pip|pipx|apt|apt-get|dnf|dpkg|docker|kubectl|helm|make|sudo|"
    r"promtool|amtool|python|python3|ansible|pdsh)"
)
WHOLE_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(rf"^([$#] )?{PROGRAMS} .*$", re.MULTILINE)
# `nodevitals probe [--raw] NAME` is not to be typed.
SYNOPSIS = re.compile(r" \[-*[A-Za-z]")


def problems(page: str, text: str) -> Iterator[str]:
    """Yield what is wrong with the fences of a page, with its place and what to do."""
    for fence in fences(page, text):
        for problem in _problems(page, fence):
            yield f"{page}:{fence.line}: {problem}"


def _problems(page: str, fence: Fence) -> Iterator[str]:
    if fence.kind not in COMMANDS + OTHERS:
        yield f"begin it with ```sh, ```console or one of {', '.join(OTHERS)}"
    elif fence.kind in OTHERS:
        found = COMMAND.search(fence.text)
        if fence.kind == "text" and found and not SYNOPSIS.search(fence.text):
            yield f"a command in a fence of kind text: {found[0]!r}; make it sh or console"
    else:
        yield from _problems_of_commands(page, fence)


def _problems_of_commands(page: str, fence: Fence) -> Iterator[str]:
    prompts = re.findall(r"^[$#] ", fence.text, re.MULTILINE)
    if fence.kind == "console" and not fence.text.startswith("$ "):
        yield "a fence of kind console begins with '$ ' and a command"
    if fence.kind == "sh" and "$ " in prompts:
        yield "a fence of kind sh has no prompts: make it console"
    if fence.not_run:
        return
    if "not run" in f"{fence.title} {fence.above}".lower() or "测试不执行" in fence.above:
        yield f"a line above the block says so, and why: {LABEL}"
    elif page in pageblocks.ENGLISH:
        english = _lines((ROOT / pageblocks.ENGLISH[page]).read_text())
        for line in _lines(f"```sh\n{fence.text}```\n") - english:
            yield f"{pageblocks.ENGLISH[page]} does not have {line!r}: its translation is not run"
    elif page not in RUN and page != pageblocks.PARSED:
        yield (
            f"no test runs this: write above it {LABEL}, or add the page to PAGES of "
            f"{' or '.join(RUNNERS)}"
        )


def _lines(text: str) -> set[str]:
    """The lines of the commands of a page, without comments."""
    commands = "".join(one.text for one in fences("", text) if one.kind in COMMANDS)
    return {re.sub(r"\s+#\s.*$", "", line).strip() for line in commands.splitlines()}


def test_there_are_pages_to_look_at() -> None:
    assert len(PAGES) > 25
    assert set(PAGES) >= RUN


@pytest.mark.parametrize("page", PAGES)
def test_each_command_is_run_or_marked(page: str) -> None:
    assert list(problems(page, (ROOT / page).read_text())) == []


def test_no_page_replaces_a_configuration_by_the_example() -> None:
    """What is there may be that of the site: `cp` does not ask."""
    found = re.compile(r"^(?:\$ )?cp (?!-n ).*example\.yaml /etc/", re.MULTILINE)
    assert [page for page in PAGES if found.search((ROOT / page).read_text())] == []


def test_each_runner_has_commands_to_run() -> None:
    for page in RUN:
        found = fences(page, (ROOT / page).read_text())
        assert [one for one in found if one.kind in COMMANDS and not one.not_run], page


@pytest.mark.parametrize(
    ("fence", "problem"),
    [
        ("```sh\ntrue\n```\n", "no test runs this"),
        ("*Not run by our tests: needs a cluster.*\n\n```sh\ntrue\n```\n", ""),
        ("*（本项目的自动测试不执行此段：需要 Kubernetes 集群）*\n\n```sh\ntrue\n```\n", ""),
        ("*Not run by our tests: .*\n```sh\ntrue\n```\n", "and why"),
        ("*Not run.*\n```sh\ntrue\n```\n", "and why"),
        ('```sh title="not run by our tests: needs a cluster"\ntrue\n```\n', "and why"),
        ("*Not run by our tests: needs a GPU.*\n\nTwo:\n```sh\ntrue\n```\n", "no test runs this"),
        ("```\nmake test\n```\n", "begin it with"),
        ("```bash\nmake test\n```\n", "begin it with"),
        ("```text\n$ make test\n```\n", "a command in a fence of kind text"),
        ("```text\nnodevitals rules check FOLDER [--json]\n```\n", ""),
        ("```yaml\na: 1\n```\n", ""),
        ("*Not run by our tests: needs a GPU.*\n```console\nup 1\n```\n", "begins with '$ '"),
        ("*Not run by our tests: needs a GPU.*\n```sh\n$ true\n```\n", "no prompts"),
    ],
)
def test_a_fence_is_judged(fence: str, problem: str) -> None:
    found = list(problems("docs/other.md", fence))
    assert len(found) == bool(problem), found
    assert problem in "".join(found)


def test_the_examples_of_commands_are_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a command and options that there are, and every argument that is needed."""
    page = (ROOT / pageblocks.PARSED).read_text()
    assert "tests parse the examples" in page
    parsed = 0
    for fence in fences(pageblocks.PARSED, page):
        for line in fence.text.replace("\\\n", "").splitlines():
            for command in re.findall(r"nodevitals [^|;&>)]+", line):
                parsed += 1
                try:
                    parser_of(()).parse_args(shlex.split(command)[1:])
                except SystemExit:
                    pytest.fail(
                        f"{pageblocks.PARSED}:{fence.line}: {command}: {capsys.readouterr().err}"
                    )
    assert parsed > 30


def test_commands_within_a_sentence_exist() -> None:
    """`nodevitals COMMAND --flag`: the command line has both."""
    flags = {one.prog: set(flags_of(one)) for one in leaves(parser_of(()))}
    groups = {name.rpartition(" ")[0] for name in flags}
    found = 0
    for page in set(PAGES) - {"CHANGELOG.md"}:
        text = "".join(
            re.split(r"^ *```.*?^ *```$", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        )
        for command in re.findall(r"`(nodevitals [a-z][^`]*)`", text):
            words = command.split()
            name = " ".join(words[:3] if " ".join(words[:2]) in groups else words[:2])
            assert name in flags or name in groups, f"{page}: {command}"
            used = re.findall(r"(?<!\S)\[?(--[a-z][a-z.-]*)", command)
            assert set(used) <= flags.get(name, set()), f"{page}: {command}"
            found += 1
    assert found > 25


def flags_of(parser: Parser) -> Iterator[str]:
    """The options of a command."""
    for action in parser.shown_actions():
        yield from action.option_strings
