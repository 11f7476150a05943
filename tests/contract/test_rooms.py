"""Imports point one way: each room imports only from the rooms above it in this list.

The order is that of docs/architecture.md. A room is a module or a folder of `nodevitals`. The hub
is a package of its own, which imports what is listed here of the agent's; the agent imports nothing
of the hub.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.node import ROOT

PACKAGE = ROOT / "exporter/nodevitals"
ROOMS = (
    "errors",
    "families",
    "quantities",
    "document",
    "wire",
    "linux",
    "probe",
    "config",
    "web_config",
    "connections",
    "logs",
    "probes.common",
    "probes",
    "exposition",
    "state",
    "catalogue",
    "engine",
    "web",
    "agent",
    "checks",
    "checks.requests",
    "checks.verdicts",
    "checks.isolation",
    "checks.ssh",
    "checks.launchers",
    "commands",
)
FILES = sorted(PACKAGE.rglob("*.py"))
HUB = ROOT / "hub/nodevitals_hub"
HUB_FILES = sorted(HUB.rglob("*.py"))
HUB_ROOMS = (
    "families",
    "stopping",
    "settings",
    "records",
    "plain_text",
    "store",
    "checks",
    "context",
    "web.texts",
    "web",
    "launch",
    "leases",
    "triggers",
    "alerting",
    "incidents",
    "notify.texts",
    "notify.channels",
    "notify",
    "isolation.schedulers",
    "isolation",
    "repair",
    "out_of_service",
    "metrics",
    "parts",
    "service",
    "start",
)
MOST_FILES = 15
# Rooms and modules of the agent that the hub may import.
OPEN_TO_THE_HUB = (
    "errors",
    "families",
    "quantities",
    "document",
    "wire",
    "linux",
    "web_config",
    "logs",
    "checks",
    # The lock of a state directory and its damaged files, and the passwords of a web
    # configuration file.
    "state.damaged_files",
    "state.lock",
    "web.passwords",
    # How nodes and URLs are spelled.
    "probes.common.addresses",
    "probes.common.discovery",
    # The records of the fabric API.
    "probes.fabric.leases",
    "probes.fabric.orders",
    "probes.fabric.tools.report",
    "probes.fabric.secrets",
    "probes.fabric.settings",
)


def module_of(file: Path, package: Path = PACKAGE) -> str:
    """Return the dotted name below the package; '' for the package itself."""
    parts = file.relative_to(package).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str, rooms: tuple[str, ...] = ROOMS) -> str:
    """Return the most specific room that a module is in; '' for none."""
    holding = [room for room in rooms if module == room or module.startswith(f"{room}.")]
    return max(holding, key=len, default="")


def imports_of(file: Path, package: str = "nodevitals") -> Iterator[str]:
    """Yield the dotted names below a package that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == package and rest and not rest.startswith("__"):
                yield rest


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_up(file: Path) -> None:
    module = module_of(file)
    room = room_of(module)
    if module in ("", "__main__"):
        return
    assert room, f"{file} is in no room: add it to the list and to docs/architecture.md"
    for imported in imports_of(file):
        target = room_of(imported)
        assert target, f"{module} imports {imported}, which is in no room"
        assert ROOMS.index(target) <= ROOMS.index(room), f"{module} imports {imported}"


def test_the_agent_imports_nothing_of_the_hub() -> None:
    assert [file for file in FILES if list(imports_of(file, HUB.name))] == []


@pytest.mark.parametrize("file", HUB_FILES, ids=lambda file: str(file.relative_to(HUB)))
def test_the_hub_imports_the_rooms_that_are_open_to_it(file: Path) -> None:
    for imported in imports_of(file):
        opened = any(f"{imported}.".startswith(f"{name}.") for name in OPEN_TO_THE_HUB)
        assert opened, f"{file}: {imported}"


@pytest.mark.parametrize("file", HUB_FILES, ids=lambda file: str(file.relative_to(HUB)))
def test_imports_within_the_hub_point_up(file: Path) -> None:
    module = module_of(file, HUB)
    if not module:
        return
    room = room_of(module, HUB_ROOMS)
    assert room, f"{file} is in no room: add it to the list and to docs/architecture.md"
    for imported in imports_of(file, HUB.name):
        target = room_of(imported, HUB_ROOMS)
        assert target, f"{module} imports {imported}, which is in no room"
        assert HUB_ROOMS.index(target) <= HUB_ROOMS.index(room), f"{module} imports {imported}"


def test_no_room_has_many_files() -> None:
    folders = {file.parent for file in (*FILES, *HUB_FILES)}
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("package", [PACKAGE, HUB], ids=lambda package: str(package.name))
def test_there_is_no_circle_of_modules(package: Path) -> None:
    """Also within a room; imports for type checkers and in functions count as well."""
    files = sorted(package.rglob("*.py"))
    modules = {module_of(file, package) for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        targets = set()
        for imported in imports_of(file, package.name):
            found = imported if imported in modules else imported.rpartition(".")[0]
            targets.add(found)
        graph[module_of(file, package)] = targets & modules - {module_of(file, package)}
    finished: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in finished:
            for target in sorted(graph[module]):
                visit(target, (*path, module))
            finished.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_a_probe_imports_no_other_probe_but_the_messages_it_sends() -> None:
    """One home per probe. Messages are of the receiver's types."""
    # Self-checks run some of the tools of the tests between nodes, behind the same gate.
    shared = {("selfcheck", "fabric"): ("admission", "tools")}
    senders = {
        "kernel_log": ("nvidia",),
        "kubernetes": ("nvidia", "ascend", "kernel_log"),
        "services": ("kernel_log",),
    }
    for file in FILES:
        parts = module_of(file).split(".")
        if parts[0] != "probes" or len(parts) < 2 or parts[1] == "common":
            continue
        for imported in imports_of(file):
            target = imported.split(".")
            if target[0] == "probes" and len(target) > 1 and target[1] not in (parts[1], "common"):
                if target[2] in shared.get((parts[1], target[1]), ()):
                    continue
                assert parts[1] in senders.get(target[1], ()), f"{file}: {imported}"
                assert target[2] == "messages", f"{file}: {imported}"


def test_the_picture_lists_every_room() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for room in (*ROOMS, *(room for room in HUB_ROOMS if "." not in room)):
        assert f"`{room.replace('.', '/')}" in text, room
