"""Blocks of code in the pages: what reads such a file accepts each, and outputs are not stale."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from bench.pagesteps import Fence, fences
from nodevitals import __version__
from testbed import blockreaders, pageblocks
from testbed.node import ROOT, SOURCES, environment

BLOCKS = pageblocks.all_blocks()
FIRST_ALERT = ("docs/first-alert.md", "docs/first-alert.zh.md")


@pytest.mark.parametrize("page", sorted({page for page, _ in BLOCKS}))
def test_each_block_is_accepted(page: str) -> None:
    refused = [
        f"{page}:{fence.line}: {problem}"
        for name, fence in BLOCKS
        if name == page and (problem := pageblocks.problem(page, fence))
    ]
    assert refused == []


def test_most_are_run_or_read() -> None:
    """Of those that are code; `python -m tests.bench blocks` prints the table."""
    found = Counter(pageblocks.fate(page, one) for page, one in BLOCKS if one.kind != "text")
    good = (pageblocks.RUN_IN_TEST, pageblocks.RUN_IN_PROOF, blockreaders.READ)
    assert sum(found[one] for one in good) > 2 * sum(found.values()) / 3


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("yaml", "probes: {node: {enabledd: true}}", "enabledd"),
        ("yaml", "probes: {nodee: {}}", "unknown probe"),
        ("yaml", "cluster: a\nclusters: b", "no reader"),
        ("yaml", "cluster: [a]", "cluster"),
        ("yaml", "alerts: [{alertname: NodeDown, preset: gone}]\npresets: {}", "no preset 'gone'"),
        ("yaml", "- {job_name: a, scrape_intervall: 1s}", "scrape_intervall"),
        ("yaml", "- {targets: 1}", "cannot unmarshal"),
        ("yaml", "route: {receiver: b}\nreceivers: [{name: a}]", "undefined receiver"),
        ("yaml", "- {alert: A, expr: up ==}", "parse error"),
        ("yaml", "name: a\nexpect: {memory.byte: 1}", "memory.byte"),
        ("yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {}\nspec: {templat: {}}", "templat"),
        ("yaml", "rules: [{apiGroups: [''], verb: [list]}]", "verb"),
        ("yaml", "a: 1", "no reader"),
        ("promql", "nodevitals_gone > 0", "nodevitals_gone"),
        ("promql", "sum(", "unclosed"),
        ("json", "{a: 1}", "property name"),
        ("python", "def", "invalid syntax"),
        ("sh", "true", "no test runs it"),
        ("nginx", "server {}", "nothing reads nginx"),
    ],
)
def test_a_faulty_block_is_refused(kind: str, text: str, problem: str) -> None:
    fence = Fence(1, "", kind, "", f"{text}\n", "")
    assert problem in pageblocks.problem("docs/other.md", fence)


def test_a_value_that_the_chart_lacks_is_refused() -> None:
    fence = Fence(1, "", "yaml", "", "agent: {imag: 1}\n", "")
    assert "imag" in pageblocks.problem("helm/nodevitals/README.md", fence)


@pytest.mark.parametrize("page", FIRST_ALERT)
def test_the_count_of_rules_is_that_of_the_files(page: str) -> None:
    groups = [
        group
        for path in (ROOT / "rules").glob("*.yaml")
        for group in yaml.safe_load(path.read_text()).get("groups", ())
    ]
    count = sum(len(group["rules"]) for group in groups)
    line = f"rules ok {count} rules in {len(groups)} groups, all of version {__version__}"
    shown = [" ".join(one.split()) for one in (ROOT / page).read_text().splitlines()]
    assert [one for one in shown if " rules in " in one] == [line], "write this count in the page"


def test_init_writes_the_files_that_the_page_lists(tmp_path: Path) -> None:
    """A node whose devices belong to groups has a drop-in more."""
    command = [sys.executable, "-m", "nodevitals", "init", "site", "--cluster", "test"]
    subprocess.run(
        command, cwd=tmp_path, env=environment(PYTHONPATH=SOURCES), check=False, capture_output=True
    )
    found = fences(FIRST_ALERT[0], (ROOT / FIRST_ALERT[0]).read_text())
    [shown] = [one.text for one in found if one.text.startswith("$ ls -1 site\n")]
    written = {path.name for path in (tmp_path / "site").iterdir()}
    assert set(shown.splitlines()[1:]) == written - {"nodevitals.service.d"}
