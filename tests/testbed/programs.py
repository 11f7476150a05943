"""Programs for PATH that are functions of the test bed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def install(folder: Path, module: str, names: Iterable[str], *arguments: str) -> Path:
    """Write programs that call `main(name, *arguments)` of a module; the folder comes back.

    Without site-packages (-S), which take most of the time that a program needs to start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        words = ", ".join(map(repr, (name, *arguments)))
        program = folder / name
        program.write_text(
            f"#!{sys.executable} -S\nimport sys\n"
            f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            f"from testbed.{module} import main\nmain({words})\n"
        )
        program.chmod(0o755)
    return folder
