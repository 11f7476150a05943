"""The catalogue of translations has every text of the hub's pages and refusals, and no other.

A text is the first argument of `t` in a template or a module of the pages, the template of a
Wording, or has a key in TEXTS.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import polib
from jinja2 import Environment, nodes

from nodevitals_hub.web import form
from nodevitals_hub.web.texts.texts import TEXTS
from nodevitals_hub.web.texts.translations import LANGUAGES, catalogue, texts_of
from testbed.node import ROOT

HUB = ROOT / "hub/nodevitals_hub"
FILES = [*HUB.rglob("*.py"), *(ROOT / "exporter/nodevitals").rglob("*.py")]
TEMPLATES = sorted((HUB / "web/templates").glob("*.html"))
CATALOGUE = polib.pofile(str(HUB / "locale/zh/LC_MESSAGES/nodevitals_hub.po"))
WORDS = re.compile(r"\{[a-z]*\}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Names, units and signs that are the same in both languages.
SAME = {"REST", "JSON", "-", "{name}"}
Text = tuple[str | None, str]
"""The context and the English text, whose plural follows a `|`."""


def constants(tree: ast.expr) -> Iterator[str]:
    """The texts that an argument may be; nothing of one that is made of a value."""
    if isinstance(tree, ast.Constant):
        yield str(tree.value)
    elif isinstance(tree, ast.IfExp):
        yield from constants(tree.body)
        yield from constants(tree.orelse)


def calls(file: Path, function: str) -> Iterator[ast.Call]:
    """The calls of a function that have an argument."""
    text = file.read_text()
    if f"{function}(" in text:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function and node.args:
                yield node


def of_template(file: Path) -> Iterator[str]:
    """The texts of a template."""
    for call in Environment().parse(file.read_text()).find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "t":
            parts = [call.args[0]]
            while parts:
                part = parts.pop()
                if isinstance(part, nodes.CondExpr):
                    parts += [part.expr1, part.expr2 or nodes.Const("")]
                elif isinstance(part, nodes.Const):
                    yield part.value


def texts() -> set[Text]:
    """All texts."""
    found = {text for file in TEMPLATES for text in of_template(file)}
    of_modules = [call for file in (HUB / "web").rglob("*.py") for call in calls(file, "t")]
    of_modules += [call for file in FILES for call in calls(file, "Wording")]
    found |= {text for call in of_modules for text in constants(call.args[0])}
    return {*((None, text) for text in found - TEXTS.keys()), *TEXTS.items()}


def english(entry: polib.POEntry) -> str:
    """The text of an entry as code has it."""
    return "|".join(filter(None, (entry.msgid, entry.msgid_plural)))


def test_the_catalogue_has_every_text_and_no_other() -> None:
    listed = [(entry.msgctxt, english(entry)) for entry in CATALOGUE]
    assert len(set(listed)) == len(listed)
    assert set(listed) == texts()


def test_a_wording_is_written_where_it_is_made() -> None:
    """A template that is made of values would have no translation."""
    for file in FILES:
        for call in calls(file, "Wording"):
            [template] = constants(call.args[0])
            given = {f"{{{word.arg}}}" for word in call.keywords}
            assert given == set(WORDS.findall(template)), f"{file}:{call.lineno}"


def test_every_key_is_used() -> None:
    """As a word in quotes or a field of the form; or by what a word in quotes begins it with."""
    sources = "".join(file.read_text() for file in (*TEMPLATES, *FILES) if file.name != "texts.py")
    words = {*form.FIELDS, *re.findall(r"[\"']([a-z_0-9]+)[\"'{]", sources)}
    beginnings = tuple(word for word in words if word.endswith("_"))
    assert [key for key in TEXTS if key not in words and not key.startswith(beginnings)] == []


def test_a_translation_is_chinese_and_has_the_values_of_the_text() -> None:
    for entry in CATALOGUE:
        chinese = entry.msgstr_plural[0] if entry.msgid_plural else entry.msgstr
        assert set(WORDS.findall(english(entry))) == set(WORDS.findall(chinese)), entry
        assert entry.msgid in SAME or CHINESE.search(chinese) or not entry.msgid.strip(",;: ")
        assert not CHINESE.search(entry.msgid), entry
        assert not entry.fuzzy, entry
        assert not entry.obsolete, entry


def test_one_node_is_singular_and_eight_are_plural() -> None:
    t = texts_of("en")
    text = "{count} node|{count} nodes"
    assert [t(text, count=count) for count in (1, 8)] == ["1 node", "8 nodes"]
    assert texts_of("zh")(text, count=1) == "1 个节点"


def test_a_key_and_a_text_without_one_are_translated() -> None:
    t = texts_of("zh")
    assert (t("incident_opened"), t("Opened")) == ("开始", "开始时间")
    assert (t("gpu-1"), t("")) == ("gpu-1", "")


def test_every_language_but_english_has_a_catalogue() -> None:
    assert [name for name in LANGUAGES if catalogue(name).gettext("Alerts") != "Alerts"] == ["zh"]
