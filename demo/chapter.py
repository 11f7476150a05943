"""A chapter of the demo that runs in a process of its own, beside others, and is shown later.

In: a module of the demo that prints `ready`, or why not, in one line, and then what it shows. Out:
its lines. The process has mounts and processes of its own, which end with it.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import ROOT
from demo.report import Progress

START_SECONDS = 300.0
# After SIGKILL.
END_SECONDS = 60.0
LEFT_OUT = "left out"


class Chapter:
    """A chapter that was begun; `name` is what is left out where it cannot start."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log

    def order(self, line: str) -> None:
        """Write a line to the input of the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ready(self, title: str) -> bool:
        """Wait until it has started. Where it cannot: False, and one line says why."""
        assert self._process.stdout is not None
        progress = Progress(title)
        answer = f"not started within {START_SECONDS:g} s"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                answer = self.line() or f"its process ended: {self._last()}"
                break
            progress.show("waiting")
        progress.end()
        if answer != "ready":
            print(f"{LEFT_OUT}, {self._name}: {answer}", flush=True)
        return answer == "ready"

    def line(self) -> str:
        """Its next line; '' at its end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def _last(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((one.strip() for one in reversed(lines) if one.strip()), "it logged nothing")


@contextmanager
def begun(
    name: str, module: str, folder: Path, *namespaces: str, descriptor: int | None = None
) -> Iterator[Chapter]:
    """Begin the chapter of a module, with further namespaces (the options of private-mounts)."""
    folder.mkdir(parents=True, exist_ok=True)
    own = [str(ROOT / "tools/private-mounts"), *namespaces, "--processes"]
    command = [*own, sys.executable, "-m", module, str(folder)]
    inherited = () if descriptor is None else (descriptor,)
    log = folder / "log"
    with log.open("wb") as handle:
        process = subprocess.Popen(
            [*command, *map(str, inherited)],
            cwd=ROOT,
            pass_fds=inherited,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=handle,
            text=True,
            bufsize=1,
        )
    try:
        yield Chapter(name, process, log)
    finally:
        process.kill()  # its namespaces end with it
        process.wait(END_SECONDS)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
