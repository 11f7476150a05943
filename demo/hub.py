"""The hub of the demo: started after the tour of the faults, where namespaces are possible.

In: an empty folder. Out: a running hub with eight agents, and the verdict of a check.
"""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import ROOT
from demo.cluster import SLOW_NODE
from demo.report import Progress

STARTING = "starting the hub, and eight agents in network namespaces with shaped links"
START_SECONDS = 300.0
CHECK_SECONDS = 120.0
# Links without a slow one are alike, and nothing says how fast they should be.
FOUND_WRONG, COULD_NOT_TELL = 1, 2
CHECK = ("fabric", "check", "--where", "pool=train", "--preset", "links")


class Cluster:
    """The hub and its agents, in a process of their own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self._slow = {SLOW_NODE}
        self.url = url

    def toggle(self, node: str) -> str:
        """Slow the link of a node, or heal it. Returns what was done."""
        assert self._process.stdin is not None
        order = "heal" if node in self._slow else "slow"
        self._process.stdin.write(f"{order} {node}\n")
        self._process.stdin.flush()
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
        wanted = FOUND_WRONG if self._slow else COULD_NOT_TELL
        return named == self._slow and done.returncode == wanted


@contextmanager
def started(folder: Path) -> Iterator[Cluster | None]:
    """Start them; None, and one line that says why, where that is not possible."""
    problem = missing()
    if problem:
        print(f"left out, the hub and its checks: {problem}", flush=True)
        yield None
        return
    progress = Progress(STARTING)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = _process(folder, listener)
        try:
            answer = _answer(process, progress)
            progress.end()
            if answer != "ready":
                print(f"left out, the hub and its checks: {answer}", flush=True)
                yield None
                return
            host, port = listener.getsockname()
            cluster = Cluster(process, f"http://{host}:{port}")
            print(f"  hub           {cluster.url}/   (start a check there; {SLOW_NODE} is slow)\n")
            yield cluster
        finally:
            process.kill()  # its namespaces end with it
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


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


def _process(folder: Path, listener: socket.socket) -> subprocess.Popen[str]:
    folder.mkdir()
    descriptor = listener.fileno()
    own = [str(ROOT / "tools/private-mounts"), "--network", "--processes"]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*own, sys.executable, "-m", "demo.cluster", str(folder), str(descriptor)],
            cwd=ROOT,
            pass_fds=(descriptor,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _answer(process: subprocess.Popen[str], progress: Progress) -> str:
    """The first line of the process, within the time for a start."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.5)[0]:
            return process.stdout.readline().strip() or "its process ended; see the lines above"
        progress.show("agents")
    return f"not started within {START_SECONDS:g} s"
