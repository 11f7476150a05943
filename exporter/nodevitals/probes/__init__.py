"""One home per probe: `NAME.py`, or a folder `NAME` whose entry is `NAME/probe.py`. Each holds one
subclass of `Probe`, whose name is the home's. `common/` holds what several probes share.

A site's own probes stand in `nodevitals/probes/` anywhere on PYTHONPATH, with no change here.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from functools import cache

from nodevitals.probe import Probe

_own = list(__path__)
_elsewhere = (os.path.join(entry, "nodevitals", "probes") for entry in sys.path)
__path__ = [*_own, *(path for path in _elsewhere if path not in _own and os.path.isdir(path))]


@cache
def registered() -> dict[str, type[Probe]]:
    """Every probe by its name. Raises what importing one raises: a broken probe is no probe."""
    found: dict[str, type[Probe]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name == "common":
            continue
        entry = ".probe" if module_info.ispkg else ""
        module = importlib.import_module(f"{__name__}.{module_info.name}{entry}")
        for thing in vars(module).values():
            is_probe = isinstance(thing, type) and issubclass(thing, Probe)
            if is_probe and thing.__module__ == module.__name__:
                found[thing.name] = thing
    return dict(sorted(found.items()))
