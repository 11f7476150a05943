"""The hub of the demo, where namespaces are possible: it starts while another chapter is shown.

In: an empty folder. Out: a running hub with eight agents, and the verdict of a check.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import ROOT, chapter
from demo.cluster import SLOW_NODE

NAME = "the hub and its checks"
STARTING = "starting the hub, and eight agents in network namespaces with shaped links"
CHECK_SECONDS = 120.0
# Links without a slow one are alike, and nothing says how fast they should be.
FOUND_WRONG, COULD_NOT_TELL = 1, 2
BUSY = "a pair beside it was slow as well: its links are simulated, and this machine is busy"
CHECK = ("fabric", "check", "--where", "pool=train", "--preset", "links")


class Cluster:
    """The hub and its agents, in a process of their own."""

    def __init__(self, begun: chapter.Chapter, url: str) -> None:
        self._chapter = begun
        self._slow = {SLOW_NODE}
        self.url = url

    def ready(self) -> bool:
        """Wait until it has started. Where it cannot: False, and one line says why."""
        if not self._chapter.ready(STARTING):
            return False
        print(f"  hub           {self.url}/   (start a check there; {SLOW_NODE} is slow)\n")
        return True

    def toggle(self, node: str) -> str:
        """Slow the link of a node, or heal it. Returns what was done."""
        order = "heal" if node in self._slow else "slow"
        self._chapter.order(f"{order} {node}")
        self._slow ^= {node}
        return f"the link of {node} is {'slow' if order == 'slow' else 'as fast as the others'}"

    def check(self) -> bool:
        """Start a check of all pairs by REST, and print its table. Whether the nodes that its
        verdict names are those that are slow.
        """
        argv = [*CHECK, "--hub", self.url]
        print(f"$ nodevitals {' '.join(argv)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "nodevitals", *argv],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
        print(done.stdout, flush=True)
        # `gpu-1 - gpu-2` is a pair: on a busy machine one may be slow by chance.
        lines = [line.split() for line in done.stdout.splitlines() if " threshold " in line]
        named = {words[0] for words in lines if words[1] != "-"}
        if len(named) < len(lines):
            print(BUSY, flush=True)
        wanted = FOUND_WRONG if self._slow else COULD_NOT_TELL
        return named == self._slow and done.returncode == wanted


@contextmanager
def begun(folder: Path) -> Iterator[Cluster | None]:
    """Begin to start them; None, and one line that says why, where no namespaces can be made."""
    problem = missing()
    if problem:
        print(f"{chapter.LEFT_OUT}, {NAME}: {problem}", flush=True)
        yield None
        return
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        chapter.begun(
            NAME, "demo.cluster", folder, "--network", descriptor=listener.fileno()
        ) as started,
    ):
        host, port = listener.getsockname()
        yield Cluster(started, f"http://{host}:{port}")


def missing() -> str:
    """Why no namespaces can be made here, and what to do; '' where they can."""
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program}: apt-get install iproute2"
    done = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "nodevitals", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else f"no bridge: {done.stderr.strip()}; run it as root"
