"""The dashboards as they are committed: their files, panels, texts and expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.node import ROOT

Json = dict[str, Any]
FOLDER = ROOT / "helm/nodevitals/files/dashboards"
FILES = {
    language: sorted((FOLDER / language).glob("*.json"))
    for language in sorted(path.name for path in FOLDER.iterdir())
}
NAMES = [file.stem for file in FILES["en"]]
# The values that a variable's query names.
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)\s*", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.+)\)\s*", re.DOTALL)


def read(path: Path) -> Json:
    """Return a dashboard."""
    return dict(json.loads(path.read_text()))


def every(language: str = "en") -> dict[str, Json]:
    """Return all dashboards of a language by name."""
    return {file.stem: read(file) for file in FILES[language]}


def panels(dashboard: Json) -> list[Json]:
    """Return the panels without rows, also those of rows that are closed."""
    found: list[Json] = []
    for panel in dashboard["panels"]:
        found += panel.get("panels") or [] if panel["type"] == "row" else [panel]
    return found


def expressions(dashboard: Json) -> Iterator[tuple[str, str]]:
    """Yield every expression with where it is: of panels, of variables, and of annotations."""
    for panel in panels(dashboard):
        for target in panel.get("targets", ()):
            yield f"{panel['title']}, {target['refId']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", selected(variable)[0]
    for one in dashboard["annotations"].get("list", ()):
        if "expr" in one:
            yield f"annotation {one['name']}", one["expr"]


def selected(variable: Json) -> tuple[str, str]:
    """Return the expression of a variable's query, and the label of which it takes the values."""
    query = variable["query"]
    text = query["query"] if isinstance(query, dict) else query
    if found := _LABEL_VALUES.fullmatch(text):
        return found[1], found[2]
    result = _QUERY_RESULT.fullmatch(text)
    assert result, f"neither label_values nor query_result: {text}"
    return result[1], ""


def columns(panel: Json) -> set[str]:
    """Return the names that the columns of a table have at the end."""
    found: set[str] = set()
    for one in panel.get("transformations", ()):
        if one["id"] == "organize":
            found |= set(one["options"].get("renameByName", {}).values())
            found |= set(one["options"].get("includeByName", {}))
    return found


def links(panel: Json) -> Iterator[str]:
    """Yield the addresses of a panel's links, and of those of its columns."""
    field = panel.get("fieldConfig", {})
    found = [*panel.get("links", ()), *field.get("defaults", {}).get("links", ())]
    for override in field.get("overrides", ()):
        for one in override["properties"]:
            if one["id"] == "links":
                found += one["value"]
    yield from (one["url"] for one in found if "url" in one)


def texts(panel: Json) -> Iterator[str]:
    """Yield the texts that a reader sees: title, description, columns, words of mappings."""
    yield panel.get("title", "")
    yield panel.get("description", "")
    field = panel.get("fieldConfig", {})
    mappings = list(field.get("defaults", {}).get("mappings", ()))
    for override in field.get("overrides", ()):
        for one in override["properties"]:
            if one["id"] == "mappings":
                mappings += one["value"]
            if one["id"] == "displayName":
                yield one["value"]
    for mapping in mappings:
        options = mapping["options"]
        shown = options.values() if mapping["type"] == "value" else [options.get("result", {})]
        yield from (one["text"] for one in shown if one.get("text"))
    for one in panel.get("transformations", ()):
        yield from one["options"].get("renameByName", {}).values()
