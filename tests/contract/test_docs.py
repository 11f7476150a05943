"""What is declared in code stands in the docs, and what the docs declare exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.hub_pages import hub_example

from nodevitals import probes
from nodevitals.commands.generated.example import example_configuration
from nodevitals.config import parse
from nodevitals.document import Problem, SettingsDocument, convert
from nodevitals_hub.settings.hub import HubSettings
from testbed.node import ROOT, SOURCES, run

README = (ROOT / "README.md").read_text()
PROBES_PAGE = (ROOT / "docs/probes.md").read_text()
COMMANDS = (ROOT / "docs/commands.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
EXAMPLE = (ROOT / "exporter/packaging/nodevitals.example.yaml").read_text()
# The test bed's own, where a test process has its folder on the path.
PROBES = {name: kind for name, kind in probes.registered().items() if name != "misbehave"}

HUB_EXAMPLE = (ROOT / "hub/nodevitals-hub.example.yaml").read_text()


def commands() -> list[str]:
    """Return every command, of groups as `group command`."""
    found = []
    for name in _subcommands():
        inner = _subcommands(name)
        found += [f"{name} {one}" for one in inner] or [name]
    return found


def _subcommands(*before: str) -> list[str]:
    text = run(*before, "--help").stdout
    if not re.search(r" (COMMAND|ACTION) \.\.\.", text.partition("\n\n")[0]):
        return []
    return re.findall(r"^    ([a-z][a-z-]+)\b", text, re.MULTILINE)


def alerts() -> list[str]:
    """Return the name of every shipped alert."""
    files = sorted((ROOT / "rules").glob("*.yaml"))
    groups: list[Any] = [g for file in files for g in yaml.safe_load(file.read_text())["groups"]]
    return sorted({rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule})


def test_there_are_commands_and_alerts_to_look_for() -> None:
    assert len(commands()) >= 12
    assert len(alerts()) >= 50


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_has_a_section(name: str) -> None:
    assert f"\n## {name}\n" in PROBES_PAGE


def test_every_command_is_in_the_pages_and_no_other() -> None:
    names = commands()
    for name in names:
        assert f"\n## nodevitals {name}\n" in COMMANDS, name
        assert f"`{name}`" in CHANGELOG, name
    for line in re.findall(r"^\| `nodevitals ([^`]*)`", README, re.MULTILINE):
        assert any(line == name or line.startswith(f"{name} ") for name in names), line


@pytest.mark.skipif(
    "## [Unreleased]" in CHANGELOG,
    reason="the changes of this version are still being written; a release lists all",
)
def test_a_release_lists_every_alert_and_every_probe() -> None:
    assert not [name for name in alerts() if not re.search(rf"\b{name}\b", CHANGELOG)]
    assert not [name for name in PROBES if f"`{name}`" not in CHANGELOG]


def test_every_flag_of_serve_is_in_the_page_of_commands() -> None:
    for flag in re.findall(r"--[a-z]+\.[a-z.-]+", run("serve", "--help").stdout):
        assert f"`{flag}`" in COMMANDS, flag


def test_the_example_configuration_is_fresh() -> None:
    assert example_configuration(PROBES) == EXAMPLE, "make generate"


def test_the_example_configuration_is_the_defaults() -> None:
    assert parse(EXAMPLE.encode(), PROBES) == parse(b"", PROBES)


def test_the_example_configuration_is_valid_with_every_key_set() -> None:
    text = re.sub(r"^( *)#(?=[a-z-])", r"\1", EXAMPLE, flags=re.MULTILINE)
    assert text.count("\n") == EXAMPLE.count("\n")
    config = parse(text.encode(), PROBES)
    assert config != parse(b"", PROBES)
    assert config.labels["rack"]


def test_the_example_configuration_of_the_hub_is_fresh() -> None:
    assert hub_example() == HUB_EXAMPLE, "make generate"


def test_the_example_configuration_of_the_hub_is_valid_with_every_key_set() -> None:
    text = re.sub(r"^( *)#(?=[a-zA-Z-])", r"\1", HUB_EXAMPLE, flags=re.MULTILINE)
    assert text != HUB_EXAMPLE
    text = text.replace("NAME", "name")
    problems: list[Problem] = []
    document = SettingsDocument(text.encode())
    settings = convert(document.values(), HubSettings, "", problems)
    assert settings is not None, document.error(problems)
    assert [*problems, *settings.problems()] == []
    assert settings.presets["name"].test.queue_pairs == 8
    assert settings.agents is not None


def test_the_catalogue_is_fresh() -> None:
    made = run("metrics", "--format", "markdown", PYTHONPATH=SOURCES).stdout
    assert (ROOT / "docs/METRICS.md").read_text() == made, "make generate"


def test_every_file_that_the_docs_name_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_no_file_has_the_marks_of_a_merge() -> None:
    folders = ("alertmanager", "docs", "exporter", "rules", "tests", "tools")
    files = [file for name in folders for file in (ROOT / name).rglob("*") if file.is_file()]
    texts = (file for file in files if file.suffix in (".md", ".yaml", ".py", ".tmpl"))
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [file for file in texts if marks.search(file.read_text())] == []


CHINESE_PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.zh*.md", "docs/*.zh.md", "rules/runbooks/zh/*.md")
    for path in ROOT.glob(pattern)
)
PUNCTUATION = "[\u3000-\u303f\uff00-\uffef]"
WIDE = "[\u3000-\u9fff\uff00-\uffef]"
BREAK = re.compile(f"{PUNCTUATION}\n *(?![-*|#!<\\s]|[0-9]+\\.|$)|{WIDE}\n *(?={WIDE})")


@pytest.mark.parametrize("page", CHINESE_PAGES, ids=str)
def test_no_line_of_a_chinese_page_is_wrapped_between_two_characters(page: Path) -> None:
    """A browser shows the line break as a space."""
    prose = re.sub(
        r"(?s:^```.*?^```$)|^#.*$|^\|.*$", "", (ROOT / page).read_text(), flags=re.MULTILINE
    )
    assert [
        prose[max(found.start() - 20, 0) : found.end() + 20] for found in BREAK.finditer(prose)
    ] == []
