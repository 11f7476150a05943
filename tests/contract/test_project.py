"""The project's files agree: one version, and a license for every library that is packaged."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from nodevitals import __version__
from testbed.node import ROOT

PACKAGING = ROOT / "exporter/packaging"
MODULES = {"nvidia-ml-py": "pynvml.py", "pyyaml": "yaml"}


def locked(name: str) -> dict[str, str]:
    """Versions by package of a lock file."""
    text = (PACKAGING / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def dependencies() -> list[Requirement]:
    """What pyproject.toml asks for on a node."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = text[text.index("\ndependencies = [") :].partition("\n]")[0]
    return [Requirement(word) for word in re.findall(r'^  "([^"]+)"', listed, re.MULTILINE)]


def test_chart_and_pages_have_the_version_of_the_package() -> None:
    hub = (ROOT / "hub/pyproject.toml").read_text()
    assert f'\nversion = "{__version__}"\n' in hub
    assert f'  "nodevitals=={__version__}",' in hub
    chart = yaml.safe_load((ROOT / "helm/nodevitals/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    for page in ("image.md", "packages.md"):
        text = (ROOT / "docs" / page).read_text()
        shown = re.findall(r"nodevitals[:_-](\d+\.\d+\.\d+)|{version=\"(\d[\d.]*)\"", text)
        assert shown, page
        assert {one or other for one, other in shown} == {__version__}, page
    minor = __version__.rpartition(".")[0]
    assert f"Today that is {minor}." in (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-3.9.lock"])
def test_locks_have_what_the_project_depends_on(lock: str) -> None:
    found = locked(lock)
    assert set(found) == set(locked("requirements.lock"))
    wanted = {one.name.lower(): one.specifier for one in dependencies()}
    assert len(wanted) >= 6
    for name, specifier in wanted.items():
        assert Version(found[name]) in specifier, name


def test_every_packaged_library_has_its_license_in_the_copyright_file() -> None:
    """As its own metadata names it, where that is an identifier of SPDX."""
    text = (PACKAGING / "copyright").read_text()
    [shown] = re.findall(r"^license: (.+)$", (PACKAGING / "nfpm.yaml").read_text(), re.MULTILINE)
    stanzas = dict(
        re.findall(
            r"^Files: usr/lib/\S+/site-packages/(\S+?)(?:/\*)?\n(.+?)\n\n",
            text,
            re.MULTILINE | re.DOTALL,
        )
    )
    used = {"Apache-2.0"}  # the project's own
    for name in locked("requirements.lock"):
        stanza = stanzas.pop(MODULES.get(name, name.replace("-", "_")))
        [license_] = re.findall(r"^License: (.+)$", stanza, re.MULTILINE)
        found = metadata.metadata(name).json
        declared = str(found.get("license_expression") or found.get("license"))
        if declared != "BSD":  # nvidia-ml-py says no more; its text is that of three clauses
            assert license_.replace(" and ", " AND ") == declared.strip(), name
        used |= set(license_.split(" and "))
        assert all(f"\nLicense: {one}\n " in text for one in license_.split(" and ")), name
    assert not stanzas, "no longer packaged"
    assert set(shown.split(" AND ")) == used
