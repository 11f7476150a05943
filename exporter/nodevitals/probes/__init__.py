"""One home per probe: `NAME.py`, or a folder `NAME` whose entry is `NAME/probe.py`. Each holds one
subclass of `Probe` whose `name` is the name of its home. `common/` holds what several probes share.

A site puts its own probes into `nodevitals/probes/` anywhere on PYTHONPATH and changes nothing
here. A probe that cannot be used fails; the agent and the other probes continue.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import NamedTuple

from nodevitals.linux.sysfs import list_names
from nodevitals.probe import Family, Probe
from nodevitals.wire import one_line

_own = list(__path__)
_elsewhere = (os.path.join(entry, "nodevitals", "probes") for entry in sys.path)
__path__ = [*_own, *(path for path in _elsewhere if path not in _own and os.path.isdir(path))]

_NOT_PROBES = ("common",)


@cache
def registered() -> dict[str, type[Probe]]:
    """Every probe by its name; `unusable` of a stand-in says why a probe cannot be used."""
    kinds: dict[str, type[Probe]] = {}
    families: dict[str, Family] = {}
    for home in _homes():
        try:
            kind = _probe_of(home)
            families |= _new_families(kind, families)
        except (Exception, SystemExit) as error:
            kind = _unusable(home.name, f"{type(error).__name__}: {error}")
        kinds[home.name] = kind
    return dict(sorted(kinds.items()))


def is_own(kind: type[Probe]) -> bool:
    """Whether a probe belongs to this package, not to a site."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return any(path.startswith(f"{folder}{os.sep}") for folder in _own)


class _Home(NamedTuple):
    """A module that holds a probe, or a package whose module `probe` holds one."""

    name: str
    is_package: bool


def _homes() -> Iterator[_Home]:
    """The modules that hold a probe, those of this package first."""
    names = set()
    for path in __path__:
        for home in _modules(path):
            if home.name not in _NOT_PROBES and home.name not in names:
                names.add(home.name)
                yield home


def _modules(folder: str) -> Iterator[_Home]:
    """The modules of a folder that can be imported. pkgutil.iter_modules would list them too, but
    it imports inspect and ast: 0.7 MiB of the memory that all processes share.
    """
    for file in list_names(folder):
        name = _module_name(file)
        if name and name != "__init__":
            yield _Home(name, is_package=False)
        elif "." not in file and "__init__" in map(_module_name, list_names(f"{folder}/{file}")):
            yield _Home(file, is_package=True)


def _module_name(file: str) -> str:
    """The name of the module in a file; '' where there is none."""
    suffixes = sorted(importlib.machinery.all_suffixes(), key=len, reverse=True)
    suffix = next((suffix for suffix in suffixes if file.endswith(suffix)), "")
    name = file[: -len(suffix)] if suffix else ""
    return "" if "." in name else name


def _probe_of(home: _Home) -> type[Probe]:
    entry = ".probe" if home.is_package else ""
    module = importlib.import_module(f"{__name__}.{home.name}{entry}")
    kinds = list(_defined_in(module))
    if len(kinds) != 1:
        raise TypeError(f"{module.__file__} defines {len(kinds)} probes; it must define one")
    if kinds[0].name != home.name:
        text = f"its name is {kinds[0].name!r}; it must be {home.name!r}, as its file's"
        raise TypeError(f"{module.__file__}: {kinds[0].__name__}: {text}")
    return kinds[0]


def _defined_in(module: ModuleType) -> Iterator[type[Probe]]:
    for thing in vars(module).values():
        is_probe = isinstance(thing, type) and issubclass(thing, Probe)
        if is_probe and thing.__module__ == module.__name__:
            yield thing


def _new_families(kind: type[Probe], known: dict[str, Family]) -> dict[str, Family]:
    """The probe's families by name. Raises ValueError if another probe declares a family of the
    same name differently.
    """
    own = {family.name: family for family in kind.families}
    for name in own.keys() & known.keys():
        if own[name] != known[name]:
            raise ValueError(f"family {name} is declared by another probe in another way")
    return own


def _unusable(name: str, problem: str) -> type[Probe]:
    body = {"name": name, "families": (), "unusable": one_line(problem)}
    return type("UnusableProbe", (Probe,), body)
