"""The two implementations of MPI, and the words that each one's mpirun takes.

In: a Collective, and the version that mpirun prints. Out: parts of its command line. Raises
CheckError for what one of them does not have. Both run both tools:
https://github.com/NVIDIA/nccl-tests and the HCCL test's manual
(https://www.hiascend.com/document, HCCL Test, parameters) name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from nodevitals.checks import CheckError
from nodevitals.checks.requests import collective
from nodevitals.checks.requests.collective import Collective

Mpi = Literal["open_mpi", "mpich"]
OPEN_MPI_MARK = "(Open MPI)"
"""What only Open MPI's `mpirun --version` prints; that of MPICH is Hydra's."""


def of_version(text: str) -> Mpi:
    """The implementation whose mpirun prints this as its version."""
    return "open_mpi" if OPEN_MPI_MARK in text else "mpich"


def verify(wanted: Collective, mpi: Mpi) -> None:
    """Refuse what mpirun of this implementation cannot do."""
    if mpi == "mpich" and wanted.mca:
        raise CheckError("mca: mpirun here is MPICH's, and these are Open MPI's: remove it")
    for name, text in wanted.environment.items():
        if mpi == "open_mpi" and ";" in text:
            raise CheckError(f"{name}: Open MPI passes no value with a semicolon on: remove it")


def options(wanted: Collective, mpi: Mpi, parameters: Mapping[str, str]) -> list[str]:
    """The words after the hosts: number of processes, where they run, environment. `parameters` are
    MCA parameters of the launcher itself.
    """
    processes = str(len(wanted.nodes) * wanted.processes_per_node)
    variables = collective.environment(wanted)
    if mpi == "mpich":
        interface = ["-iface", wanted.interface] if wanted.interface else []
        return ["-n", processes, *interface, *_each("-genv", variables.items())]
    mca = {**parameters, **wanted.mca}
    return [
        # Ranks in the order of the hosts, and free to use the CPU cores near their devices.
        *("-np", processes, "--bind-to", "none", "--map-by", "slot", "--tag-output"),
        *_each("--mca", mca.items()),
        *_each("-x", (("=".join(pair),) for pair in variables.items())),
    ]


def _each(option: str, values: Iterable[tuple[str, ...]]) -> list[str]:
    return [word for words in values for word in (option, *words)]
