"""What our tests do with each block of code of the pages: run it, or give it to what reads it.

In: a page and its fences. Out: the fate of each, and an error where its reader refuses it. A block
of YAML goes to what reads such a file: the agent, the hub, the chart, promtool, amtool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import promql_parser
import yaml

from bench import first_hour, pages
from bench.pagesteps import Fence, fences
from nodevitals_hub.settings.hub import HubSettings
from testbed.blockreaders import READ, READERS, SYNTAX, RefusedError, hub, values
from testbed.node import ROOT
from testbed.pagecommands import PAGES as ON_THE_TEST_BED

# Its examples are parsed, and say so.
PARSED = "docs/commands.md"
PAGES = ("*.md", "docs/*.md", "helm/nodevitals/README.md")
ENGLISH = {
    "README.zh-CN.md": "README.md",
    "docs/first-alert.zh.md": "docs/first-alert.md",
    "docs/hub.zh.md": "docs/hub.md",
}
# Titles: keys of the chart are keys of the hub as well.
OF_THE_CHART = re.compile(r"values\.yaml|values of the chart")
RUN_IN_TEST, RUN_IN_PROOF = "run by make test", "run by make proof"
LABELED, SHOWN = "not run, and says so above", "text: shown, no code"
FATES = (RUN_IN_TEST, RUN_IN_PROOF, READ, SYNTAX, LABELED, SHOWN)


def all_blocks() -> list[tuple[str, Fence]]:
    """Every block of every page."""
    paths = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    names = [str(path.relative_to(ROOT)) for path in paths]
    return [(name, one) for name in names for one in fences(name, (ROOT / name).read_text())]


def problem(page: str, fence: Fence) -> str:
    """What is wrong with a block, or an empty text."""
    try:
        fate(page, fence)
    except Exception as error:  # noqa: BLE001 - each reader has its own
        return str(error) or repr(error)
    return ""


def fate(page: str, fence: Fence) -> str:
    """What is done with a block. Raises RefusedError where its reader does not accept it."""
    if fence.not_run:
        return LABELED
    if fence.kind in ("sh", "console"):
        page = ENGLISH.get(page, page)
        if page in ON_THE_TEST_BED:
            return RUN_IN_TEST
        if page in {*first_hour.PAGES, *pages.PAGES}:
            return RUN_IN_PROOF
        if page == PARSED:
            return READ
        raise RefusedError("no test runs it")
    if fence.kind == "yaml":
        return _yaml(page, fence)
    if fence.kind == "text":
        return SHOWN
    readers = {"json": _json, "promql": _promql, "python": _python}
    if fence.kind not in readers:
        raise RefusedError(f"nothing reads {fence.kind}: say above it that our tests do not run it")
    return readers[fence.kind](page, fence.text)


def _python(page: str, text: str) -> str:
    compile(text, page, "exec")
    return READ  # tests/integration/test_site_probes.py runs it


def _json(_page: str, text: str) -> str:
    json.loads(text)
    return SYNTAX


def _promql(_page: str, text: str) -> str:
    known = (ROOT / "docs/METRICS.md").read_text() + "".join(
        path.read_text() for path in (ROOT / "rules").glob("*.yaml")
    )
    for expression in re.split(r"(?m)^#.*\n", text):
        if not expression.strip():
            continue
        try:
            promql_parser.parse(expression)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        for name in re.findall(r"nodevitals[_:][a-z_:]+", expression):
            if not re.search(rf"(?:`|record: ){name}\b", known):
                raise RefusedError(f"no probe exposes and no rule records {name}")
    return READ


def _yaml(page: str, fence: Fence) -> str:
    text, document = fence.text, yaml.safe_load(fence.text)
    if page == "docs/rules-check.md":  # parts of rules, with the faults that the page explains
        return SYNTAX
    if page == "helm/nodevitals/README.md" or OF_THE_CHART.search(fence.title):
        return values(document)
    if isinstance(document, Mapping) and set(document) <= set(HubSettings.__struct_fields__):
        return hub(page, text)
    for accepts, reader in READERS:
        if accepts(document):
            return reader(document, text) or READ
    raise RefusedError("no reader is known for this YAML: add one to READERS of blockreaders.py")
