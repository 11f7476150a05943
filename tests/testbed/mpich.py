"""Real MPICH: Debian's, unpacked beside Open MPI and not installed."""

from __future__ import annotations

from pathlib import Path

from testbed.openmpi import FOLDER

PROGRAMS = {"mpirun": "mpiexec.hydra", "hydra_pmi_proxy": "hydra_pmi_proxy"}


def install(folder: Path) -> Path:
    """Write `mpirun` and the program that it starts on each node into a folder; return that."""
    libraries = next((FOLDER / "usr/lib").glob("*-linux-gnu"))
    paths = ":".join(str(path.parent) for path in sorted(FOLDER.rglob("libslurm.so.*")))
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in PROGRAMS.items():
        program = folder / name
        # It looks for the other program in the folder of the path that it was started by.
        program.write_text(
            f"#!/bin/bash\nexport LD_LIBRARY_PATH='{libraries}:{paths}'\n"
            f"exec -a '{program}' '{FOLDER / 'usr/bin' / file}' \"$@\"\n"
        )
        program.chmod(0o755)
    return folder
