"""What the Containerfile and the workflows name exists and is pinned; none is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals.commands.cli import parser_of
from testbed.node import ROOT

FILE = ROOT / "exporter/packaging/Containerfile"
TEXT = FILE.read_text()
KEPT = [
    line[1:]
    for line in Path(f"{FILE}.dockerignore").read_text().splitlines()
    if line.startswith("!")
]


def within(path: str, folders: list[str]) -> bool:
    """Whether a path is one of these, or below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def test_every_base_is_pinned_by_digest() -> None:
    bases = re.findall(r"^FROM (?:--\S+ )?(\S+)", TEXT, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python@sha256:[0-9a-f]{64}", bases[0])
    assert bases[1:] == ["build", "build", "scratch", "scratch"]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)", TEXT, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert {"pyproject.toml", "rules", "exporter/nodevitals", "exporter/packaging/image"} <= {
        *copied
    }
    for source in copied:
        assert (ROOT / source).exists(), source
        assert within(source, KEPT), source
    # What hatchling reads besides the package.
    project = (ROOT / "pyproject.toml").read_text()
    included = re.findall(r'^"(\S+)" = "nodevitals/', project, re.MULTILINE)
    assert included
    assert [path for path in included if not within(path, copied)] == []


def test_scripts_exist_and_run_as_another_user() -> None:
    scripts = re.findall(r"/image/(\S+)", TEXT)
    assert {"fetch.py", "build.py", "build.lock"} <= set(scripts)
    for name in scripts:
        assert (ROOT / "exporter/packaging/image" / name).exists(), name
    agent, hub = stage("agent"), stage("hub")
    for text in (agent, hub):
        assert re.findall(r"^USER (.+)", text, re.MULTILINE) == ["65532:65532"]
        assert 'ENTRYPOINT ["/usr/bin/nodevitals"]' in text
    # Without --target, the last stage is built.
    assert TEXT.endswith(agent)
    assert (command(agent), command(hub)[0]) == (["serve"], "hub")


def stage(name: str) -> str:
    """The text of a stage."""
    return re.split(rf"^FROM scratch AS {name}$", TEXT, flags=re.MULTILINE)[1].split("\nFROM ")[0]


def command(text: str) -> list[str]:
    """What a stage executes."""
    words: list[str] = json.loads(re.findall(r"^CMD (.+)", text, re.MULTILINE)[0])
    return words


def test_the_hubs_command_is_one() -> None:
    words = command(stage("hub"))
    options = parser_of(words).parse_args(words)
    assert (options.config, options.listen) == ("/etc/nodevitals/hub.yaml", ":9857")


def test_each_image_has_its_lock() -> None:
    for name in ("agent", "hub"):
        assert f"--image {name} " in stage_of_build(name)
        assert f"COPY --from=build-{name} /rootfs /" in stage(name)


def stage_of_build(name: str) -> str:
    """The text of the stage that makes a root file system."""
    return TEXT.split(f"FROM build AS build-{name}\n")[1].split("\nFROM ")[0]


def jobs_of(workflow: str) -> dict[str, Any]:
    """The jobs of a workflow."""
    content = yaml.safe_load((ROOT / ".github/workflows" / workflow).read_text())
    return dict(content["jobs"])


@pytest.mark.parametrize(
    ("workflow", "least"), [("ci.yaml", 1), ("nightly.yaml", 2), ("release.yaml", 4)]
)
def test_actions_are_pinned_by_commit(workflow: str, least: int) -> None:
    jobs = jobs_of(workflow)
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert len(used) >= least
    for one in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", one), one


def test_ci_runs_the_two_commands() -> None:
    [job] = jobs_of("ci.yaml").values()
    assert job["strategy"]["matrix"]["command"] == ["make test", "make demo ONCE=1"]
    assert job["steps"][-1]["run"] == "${{ matrix.command }}"


def test_release_builds_for_both_platforms_and_lists_what_is_locked() -> None:
    jobs = jobs_of("release.yaml")
    commands = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    locks = re.findall(r"-r (\S+\.lock)", commands)
    assert len(locks) == 2
    assert [lock for lock in locks if not (ROOT / lock).exists()] == []
    (built,) = (
        step["with"] for step in jobs["image"]["steps"] if "platforms" in step.get("with", {})
    )
    assert (ROOT / built["file"]).exists()
    assert built["platforms"] == "linux/amd64,linux/arm64"
    assert built["target"] == "${{ matrix.target }}"
    targets = {one["target"] for one in jobs["image"]["strategy"]["matrix"]["include"]}
    assert targets == {"agent", "hub"}
    assert [stage(target) for target in targets]
