"""What a module imports is declared in pyproject.toml: as a dependency, or in its room's extra."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nodevitals.commands.hub.command import LOWEST_PYTHON
from testbed.node import ROOT

PACKAGE = ROOT / "exporter/nodevitals"
HUB = ROOT / "hub/nodevitals_hub"
# Where the modules of an extra begin; all other modules have the dependencies alone.
EXTRAS = {"checks/launchers/kubernetes_": "collectives", "probes/kubernetes/": "pods"}


def listed(name: str, project: Path = ROOT) -> list[Requirement]:
    """The requirements of a list of pyproject.toml."""
    text = re.sub(r" *#.*", "", (project / "pyproject.toml").read_text())
    [found] = re.findall(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    return [Requirement(one) for one in re.findall(r'"(.+)"', found)]


def declared(room: str, package: Path) -> set[str]:
    """Names of the distributions that a module may import from, by its path in its package."""
    if package == HUB:
        found = listed("dependencies", ROOT / "hub")
    else:
        extra = next((name for start, name in EXTRAS.items() if room.startswith(start)), None)
        found = listed("dependencies") + (listed(extra) if extra else [])
    return {canonicalize_name(one.name) for one in found}


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of the top-level packages that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module).partition(".")[0]


def test_every_imported_package_is_declared() -> None:
    distributions = metadata.packages_distributions()
    own = {"nodevitals", "nodevitals_hub", *sys.stdlib_module_names}
    seen, missing = set(), set()
    for package in (PACKAGE, HUB):
        for path in sorted(package.rglob("*.py")):
            room = path.relative_to(package).as_posix()
            for name in set(imported(ast.parse(path.read_text()))) - own:
                seen.add(name)
                names = {canonicalize_name(one) for one in distributions.get(name, [name])}
                if not names & declared(room, package):
                    missing.add(f"{package.name}/{room}: {name}")
    assert {"msgspec", "h2", "litestar"} <= seen
    assert sorted(missing) == []


def test_the_extra_of_collectives_has_no_release_for_an_older_python() -> None:
    """So pip refuses it there: lightkube 1 needs Python 3.10."""
    wanted = listed("collectives")
    assert [str(one) for one in wanted if one.marker is not None] == []
    [lightkube] = [one for one in wanted if one.name == "lightkube"]
    assert "0.22.0" not in lightkube.specifier, "it uses httpx, which runs on Python 3.9"


def test_the_pages_name_the_python_of_the_hub() -> None:
    lowest = ".".join(map(str, LOWEST_PYTHON))
    for page in ("hub.md", "hub.zh.md", "install.md", "packages.md"):
        text = " ".join((ROOT / "docs" / page).read_text().split())
        assert re.search(rf"hub\b[^|]{{,60}}Python {re.escape(lowest)}", text), page
