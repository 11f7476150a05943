"""An agent process for tests: started by its command, queried over HTTP, always stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import requests
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
SOURCES = f"{ROOT / 'exporter'}:{ROOT / 'hub'}"
PLUGINS = ROOT / "tests/testbed/plugins"
# The limit ends a test that has failed already: what is waited for may take long on a busy machine.
PATIENCE_SECONDS = 300.0
# Of the agent and the commands; tests.bench.python39 sets another than that of the tests.
PYTHON = os.environ.get("NODE_PYTHON", sys.executable)
OFF = {
    name: {"enabled": False}
    for name in (
        *("nvidia", "kernel_log", "kubernetes", "ascend", "rdma", "network", "switches", "disks"),
        *("profile", "services", "transceivers", "bmc"),
    )
}


# What listens on a port may start long after the next ones are chosen. Each of pytest's workers has
# a network of its own (tools/test-python), and nothing else there chooses ports.
_chosen: deque[int] = deque(maxlen=1000)


def free_port() -> int:
    """A TCP port on loopback that is free, that this process has not chosen lately, and that no
    client's socket will use: the kernel assigns those from 32768, and a test with hundreds of
    clients uses many.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        if port in _chosen:
            continue
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            _chosen.append(port)
            return port


def wait_until(condition: Callable[[], Any], seconds: float = 0.0, what: str = "") -> Any:
    """Return the condition's value once it is true. Raises AssertionError after so many seconds, at
    least `PATIENCE_SECONDS`.

    A condition that takes long is asked less often: waiting leaves the processors to what it waits
    for.
    """
    seconds = max(seconds, PATIENCE_SECONDS)
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(min(max(0.02, 3 * (now - began)), 0.5))


def environment(**more: str) -> dict[str, str]:
    """The environment of a simulated node: this tree's package and the misbehaving probe."""
    return {**os.environ, "PYTHONPATH": f"{SOURCES}:{PLUGINS}", **more}


def take_interrupts() -> None:
    """For `preexec_fn`: tests in the background of a shell ignore SIGINT, and so would a child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a `nodevitals` command and wait for its end."""
    return subprocess.run(
        [PYTHON, "-m", "nodevitals", *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def parse_samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of a text, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Node:
    """`nodevitals serve` with a configuration, on a free loopback port."""

    def __init__(self, folder: Path, config: dict[str, Any], *flags: str, **more: str) -> None:
        self.folder = folder
        self.config_file = folder / "nodevitals.yaml"
        self.flags = flags
        self.prelude = ""
        """Python code that the agent's process executes first, to shorten a wait of the agent."""
        self.wrapper: Sequence[str] = ()
        """Program and arguments that the agent's command is appended to."""
        self.environment = environment(**more)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = folder / "nodevitals.log"
        self.session = requests.Session()
        self.write(config)

    def write(self, config: dict[str, Any]) -> None:
        """Replace the configuration file (JSON is YAML). Probes of hardware that the test machine
        may have are off unless `config` has them. Counts of runs are written soon: tests wait
        for them.
        """
        kept = {"state_directory": str(self.folder / "state"), "history": {"interval": "250ms"}}
        probes = {**OFF, **config.get("probes", {})}
        self.config_file.write_text(json.dumps({**kept, **config, "probes": probes}))

    def start(self) -> Node:
        """Start the agent and wait until the port accepts connections."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env=self.environment,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_until(self._accepts, what=f"no connection to {self.url}; log: {self.log_file}")
        return self

    def command(self) -> list[str]:
        """The command line; of a flag that is given twice the last one is used."""
        program = ["-m", "nodevitals"]
        if self.prelude:
            run_main = "import runpy; runpy.run_module('nodevitals', run_name='__main__')"
            program = ["-c", f"{self.prelude}\n{run_main}"]
        return [
            *(*self.wrapper, PYTHON, *program, "serve"),
            f"--config.file={self.config_file}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *self.flags,
        ]

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self.log()
        with socket.socket() as sock:
            accepted = sock.connect_ex(("127.0.0.1", self.port)) == 0
        return accepted and self.process.poll() is None

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.session.close()
        self.end()

    def end(self) -> None:
        """Send SIGTERM. If the agent does not end, send SIGKILL and raise TimeoutExpired."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise

    def kill(self) -> None:
        """Send SIGKILL, as the kernel's OOM killer does."""
        self.process.kill()
        self.process.wait()

    def hang_up(self) -> None:
        """Send SIGHUP, which reloads the configuration."""
        self.process.send_signal(signal.SIGHUP)

    def get(self, path: str = "/metrics", **headers: str) -> requests.Response:
        """Send one request; the connection is kept open."""
        return self.session.get(self.url + path, headers=headers, timeout=PATIENCE_SECONDS)

    def samples(
        self, path: str = "/metrics"
    ) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Every sample of a scrape, by name and labels."""
        return parse_samples(self.get(path).text)

    def family(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of this name by their labels, without parsing the others: that would be most
        of the work of a wait.
        """
        lines = self.get().text.splitlines(keepends=True)
        text = "".join(line for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return {labels: value for (_, labels), value in parse_samples(text).items()}

    def value(self, family: str, **labels: str) -> float | None:
        """The value of the one sample with at least these labels; None when there is none."""
        found = [
            value for pairs, value in self.family(family).items() if labels.items() <= set(pairs)
        ]
        assert len(found) <= 1, f"{family}{labels} is ambiguous: {found}"
        return found[0] if found else None

    def log(self) -> str:
        """Everything the agent has logged."""
        return self.log_file.read_text()

    def tree(self) -> dict[int, str]:
        """The agent's descendants with their process status."""
        found: dict[int, str] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found[child.pid] = child.status()
        return found

    def fork_server(self) -> psutil.Process:
        """The agent's fork server: its newest child; older ones are adopted workers."""
        children: list[psutil.Process] = wait_until(psutil.Process(self.process.pid).children)
        return max(children, key=lambda child: child.create_time())
