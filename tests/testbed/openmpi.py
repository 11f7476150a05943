"""Real Open MPI: Debian's, unpacked into .tools/mpi and not installed.

Its libraries find their files below the prefix that variables name; without them, they look where
the package would be installed.
"""

from __future__ import annotations

from pathlib import Path

from testbed.node import ROOT

FOLDER = ROOT / ".tools/mpi"
PROGRAMS = {"mpirun": "orterun", "orted": "orted"}


def install(folder: Path) -> Path:
    """Write `mpirun` and the daemon that it starts on other nodes into a folder; return that."""
    libraries = next((FOLDER / "usr/lib").glob("*-linux-gnu"))
    exchange = libraries / "pmix2"
    variables = {
        "LD_LIBRARY_PATH": f"{libraries}:{FOLDER / 'lib' / libraries.name}",
        "OPAL_PREFIX": FOLDER / "usr",
        "OPAL_LIBDIR": libraries / "openmpi/lib",
        "OPAL_SYSCONFDIR": FOLDER / "etc",
        "PMIX_PKGLIBDIR": exchange / "lib/pmix",
        "PMIX_PKGDATADIR": exchange / "share/pmix",
    }
    exported = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in PROGRAMS.items():
        program = folder / name
        # With a path as its name, mpirun would look for the daemon beside that.
        program.write_text(
            f"#!/bin/bash\n{exported}exec -a {name} '{FOLDER / 'usr/bin' / file}' \"$@\"\n"
        )
        program.chmod(0o755)
    return folder
