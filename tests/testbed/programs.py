"""Programs for PATH that call functions of the test bed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def first_lines(interpreter: str) -> str:
    """Return what makes a file a program of this interpreter. The kernel takes no path with a
    space and none that is long (BINPRM_BUF_SIZE): then a shell starts it, in a line that is part of
    a string for Python.
    """
    if " " not in interpreter and len(interpreter) < 120:
        return f"#!{interpreter} -S\n"
    return f"#!/bin/sh\n'''exec' \"{interpreter}\" -S \"$0\" \"$@\"\n' '''\n"


def install(folder: Path, module: str, names: Iterable[str], *arguments: str) -> Path:
    """Write programs that call `main(name, *arguments)` of a module; return the folder.

    They run without site-packages (-S), whose import takes most of the time of a start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        words = ", ".join(map(repr, (name, *arguments)))
        program = folder / name
        program.write_text(
            f"{first_lines(sys.executable)}import sys\n"
            f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            f"from testbed.{module} import main\nmain({words})\n"
        )
        program.chmod(0o755)
    return folder
