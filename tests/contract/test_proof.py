"""Each part of `make proof` can be started, and the nightly workflow starts all of them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import parts
from testbed.node import ROOT

LIST = ["python3", "-S", "-m", "tests.bench", "--list"]


@pytest.mark.parametrize("name", parts.benchmarks())
def test_a_benchmark_takes_the_folder_that_it_is_given(name: str) -> None:
    main = parts.benchmark_main(parts.BENCH / f"{name}.py")
    assert main is not None
    required = len(main.args.args) - len(main.args.defaults)
    assert required == 1, f"tests/bench/{name}.py: main() must take one folder"


def test_every_part_is_listed_without_anything_installed() -> None:
    done = subprocess.run(LIST, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == parts.names()


def test_every_mark_has_tests() -> None:
    """A name without tests would be a part that proves nothing. pytest itself refuses a name that
    is not in the table (tests/conftest.py).
    """
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    mark = re.compile(r'(?:\.proof|long_forms)\(\s*"(\w+)"')
    used = {name for path in files for name in mark.findall(path.read_text())}
    assert used == parts.MARKS.keys()


def test_a_part_that_does_not_exist_is_an_error() -> None:
    done = subprocess.run(
        [*LIST[:-1], "nosuch"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no such part: nosuch; there are ascend, " in done.stderr


def test_the_nightly_workflow_runs_each_part_of_the_list() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/nightly.yaml").read_text())["jobs"]
    [listing] = [step["run"] for step in jobs["parts"]["steps"] if "run" in step]
    assert listing == 'echo "names=$(python3 -m tests.bench --list)" >> "$GITHUB_OUTPUT"'
    assert jobs["part"]["strategy"]["matrix"] == {
        "part": "${{ fromJSON(needs.parts.outputs.names) }}"
    }
    assert jobs["part"]["steps"][-1]["run"] == "make proof PART=${{ matrix.part }}"
