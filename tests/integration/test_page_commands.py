"""The commands of pages, as typed, with the status and the output that the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pages import PAGES as MACHINES
from bench.pagesteps import Step, missing, steps
from testbed.node import ROOT
from testbed.pagecommands import BEFORE, PAGES, SERVERS, Shell


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_succeed(page: str, tmp_path: Path) -> None:
    """`console` also has the lines of output that it shows."""
    shell = Shell(tmp_path)
    before = Step(page, "(what is there before)", "sh", BEFORE.get(page, ""), not_run=False)
    for step in (before, *steps(page, (ROOT / page).read_text())):
        if step.not_run or (page in MACHINES and SERVERS.search(step.commands)):
            continue
        done = shell.run(step)
        assert done.returncode == 0, f"{page}, {step.heading}:\n{step.commands}\n{done.stdout}"
        assert missing(step.expected, done.stdout, exact=True) == [], (
            f"{page}, {step.heading}:\n{done.stdout}"
        )


def test_a_command_that_fails_ends_its_step(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    done = shell.run(
        Step("page", "", "sh", "nodevitals no-such-command\necho after\n", not_run=False)
    )
    assert done.returncode == 2
    assert "after" not in done.stdout
