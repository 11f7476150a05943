"""The script of a job's launcher: it waits for the workers, then starts the tool on them.

In: a Collective. Out: a script, in which every word is quoted; and the parts of its output.
"""

from __future__ import annotations

import shlex
from typing import Literal, Optional

from nodevitals.checks import CheckError
from nodevitals.checks.launchers.mpi import OPEN_MPI_MARK, Mpi, options, verify
from nodevitals.checks.requests.collective import Collective, sweeps, tool_argv

Kind = Literal["volcano", "mpijob"]
# Not 22: with hostNetwork the node's own sshd uses that port.
SSH_PORT = 22622
SSH_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-p", str(SSH_PORT)),
)
# Time limit for the start of all workers.
START_SECONDS = 120
HOSTFILE = "/tmp/hostfile"  # noqa: S108 -- in the launcher's own container
MARK = "# nodevitals sweep "
"""Begins the line before the output of each run of the tool."""
HOSTS: dict[Kind, str] = {
    "volcano": "cat /etc/volcano/worker.host",
    "mpijob": "sed 's/[ :].*//' /etc/mpi/hostfile",
}
_SCRIPT = """\
set -eu
list=
: >/tmp/hostfile
for host in $({hosts}); do
  tries=0
  until ssh {ssh} "$host" true 2>/tmp/error; do
    tries=$((tries + 1))
    if [ "$tries" -ge {tries} ]; then
      echo "no ssh to worker $host: $(tail -n 1 /tmp/error)"
      exit 75
    fi
    sleep 2
  done
  list="$list,$host:{slots}"
  echo "$host:{slots}" >>/tmp/hostfile
done
list="${{list#,}}"
printf '#!/bin/sh\\nexec ssh %s "$@"\\n' {quoted_ssh} >/tmp/ssh; chmod +x /tmp/ssh
export HYDRA_LAUNCHER_EXEC=/tmp/ssh
mpirun --version
case $(mpirun --version) in *"{mark}"*) mpi=open_mpi ;; *) mpi=mpich ;; esac
"""


def script(wanted: Collective, kind: Kind, seconds: float) -> str:
    """The script: it prints a mark and the command line and runs the tool, once per sweep of sizes;
    whether mpirun is Open MPI's or MPICH's is known only there.
    """
    ssh = shlex.join(SSH_OPTIONS)
    lines = [
        _SCRIPT.format(
            hosts=HOSTS[kind],
            ssh=ssh,
            quoted_ssh=shlex.quote(ssh),
            tries=START_SECONDS // 2,
            slots=wanted.processes_per_node,
            mark=OPEN_MPI_MARK,
        )
    ]
    limit = ["timeout", "--kill-after=15", f"{seconds + 1:g}"]
    for number, swept in enumerate(sweeps(wanted.sizes)):
        rank = ["timeout", "--kill-after=5", f"{seconds:g}", *tool_argv(wanted, swept)]
        lines.append(f"echo {shlex.quote(f'{MARK}{number}')}")
        lines += ["if [ $mpi = open_mpi ]; then", *_started(wanted, "open_mpi", limit, rank)]
        lines += ["else", *_started(wanted, "mpich", limit, rank)]
        lines.append("fi")
    return "\n".join(lines) + "\n"


def _started(wanted: Collective, mpi: Mpi, limit: list[str], rank: list[str]) -> list[str]:
    """The lines that print the command line of mpirun and run it, or that refuse."""
    try:
        verify(wanted, mpi)
    except CheckError as error:
        return [f"  echo {shlex.quote(str(error))}", "  exit 64"]
    hosts = ["mpirun", "-f", HOSTFILE]
    if mpi == "open_mpi":
        hosts = ["mpirun", "--allow-run-as-root", "--host"]
    parameters = {"plm_rsh_args": " ".join(SSH_OPTIONS), "plm_rsh_no_tree_spawn": "1"}
    before = shlex.join([*limit, *hosts])
    after = shlex.join([*options(wanted, mpi, parameters), *rank])
    words = [before, *(['"$list"'] if mpi == "open_mpi" else []), after]
    shown = [shlex.quote(f"$ {before}"), *words[1:-1], shlex.quote(after)]
    return [f"  echo {' '.join(shown)}", f"  {' '.join(words)}"]


def parts_of(log: str) -> Optional[list[str]]:
    """The output of each sweep in a launcher's log; None where no sweep was started."""
    parts = f"\n{log}".split(f"\n{MARK}")
    return [part.partition("\n")[2] for part in parts[1:]] or None
