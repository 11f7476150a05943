"""`python -m build`: the same bytes wherever and whenever, and a list of what is installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import yaml

from nodevitals import __version__
from testbed import image
from testbed.node import ROOT

PROGRAMS = Path(sys.executable).parent
LOCK = ROOT / "exporter/packaging/requirements.lock"
MAX_BYTES = 2 * 2**20
COMMIT_SECONDS = "1800000000"


def build(folder: Path, *options: str, source: Path = ROOT) -> Path:
    """Build with what is installed here, without a network."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": COMMIT_SECONDS}
    done = subprocess.run(
        [*command, str(source)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def checkout(folder: Path) -> Path:
    """A copy of what is built, with other times, and the modes of another umask."""
    folder.mkdir()
    for part in ("alertmanager", "dashboards", "exporter", "rules"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "pyproject.toml"):
        shutil.copy(file, folder)
    shutil.copy(ROOT / ".gitignore", folder)
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 86400, time.time() - 86400))
        path.chmod(path.stat().st_mode & 0o700)
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, and the wheel that is built from it."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.mark.proof("images")
def test_two_builds_are_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """From another folder, with files of another time and mode."""
    again = build(tmp_path / "dist", source=checkout(tmp_path / "elsewhere"))
    assert digests(again) == digests(built)
    stem = f"nodevitals-{__version__}"
    assert set(digests(built)) == {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"}


def test_the_source_distribution_makes_the_wheel_of_the_checkout(
    built: Path, tmp_path: Path
) -> None:
    wheel = build(tmp_path, "--wheel")
    assert digests(wheel).items() <= digests(built).items()


def test_the_source_distribution_is_small_and_complete(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md", "PKG-INFO"} <= names
    dashboards = "helm/nodevitals/files/dashboards/"
    assert any(name.startswith(dashboards) for name in names)
    others = [name for name in names if not name.startswith(dashboards)]
    assert [name for name in others if name.startswith(("tests/", "demo/", "helm/"))] == []
    assert path.stat().st_size < MAX_BYTES


def test_the_wheel_has_what_an_index_shows(built: Path) -> None:
    (path,) = built.glob("*.whl")
    folder = f"nodevitals-{__version__}.dist-info"
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(f"{folder}/METADATA").decode()
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.9"):
        assert f"\n{line}\n" in metadata
    assert "Classifier: Topic :: System :: Monitoring" in metadata


def sbom_options() -> list[str]:
    """The options of the command that the release runs."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())
    lines = " ".join(
        step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]
    )
    [options] = re.findall(r"cyclonedx-py environment (.*?) --output-file", lines)
    return str(options).split()


@pytest.mark.proof("images")
def test_bill_of_materials_names_what_is_locked(built: Path, tmp_path: Path) -> None:
    """cyclonedx-py validates it by the schema; twice from different folders it is the same."""
    written = []
    environment = {**os.environ, "SOURCE_DATE_EPOCH": COMMIT_SECONDS}
    for name in ("one", "another"):
        made, path = tmp_path / name, tmp_path / f"{name}.json"
        base = Path(sys.base_prefix, "bin/python3")
        subprocess.run([base, "-m", "venv", "--without-pip", made], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(made / "bin/python"), "install"]
        pip += ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
        pip += [
            "--root-user-action=ignore",
            "--no-compile",
            "--find-links",
            str(image.FETCHED / "wheels"),
        ]
        subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
        subprocess.run([*pip, "--find-links", str(built), "nodevitals"], check=True)
        command = [str(PROGRAMS / "cyclonedx-py"), "environment", *sbom_options()]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": COMMIT_SECONDS}
        subprocess.run(
            [*command, "--output-file", str(path), str(made / "bin/python")],
            env=environment,
            check=True,
        )
        written.append(path.read_text())
    assert written[0] == written[1]
    assert str(tmp_path) not in written[0]
    content = json.loads(written[0])
    locked = re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE)
    wanted = {f"pkg:pypi/{name}@{version}" for name, version in locked}
    own = f"pkg:pypi/nodevitals@{__version__}"
    assert {one["purl"] for one in content["components"]} == {*wanted, own}
    assert all(one["licenses"] for one in content["components"])
    [direct] = [one["dependsOn"] for one in content["dependencies"] if "nodevitals" in one["ref"]]
    assert len(direct) >= 6
