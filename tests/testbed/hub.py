"""A hub as a process: `python -m testbed.hub --config.file FILE`, with a socket for tests.

With `--simulated`, runs are simulated: each pair has 10 GB/s, on ports of 12.5 GB/s; a node named
in $SLOW (`gpu-3,gpu-7`) has 40 % of that with all partners, and each run takes $RUN_SECONDS
(default 0.2); one with a node named in $HELD does not end. $WAITS are the waits for the API server
(resource_objects.Waits).

$REQUEST_SECONDS, $STALLED_SECONDS and $REST_SECONDS replace the times of hub/web/limits.py,
$HEAD_SECONDS and $HANDSHAKE_SECONDS those of hub/web/server.py, $EVERY_SECONDS and $SETTLE_SECONDS
those of hub/node_watch.py, $ASK_SECONDS and $VANISHED_SECONDS those of
incidents/incident_intake.py, $STOP_SECONDS, $TASKS_SECONDS and $AGAIN_SECONDS those of
hub/stopping.py.

$STUCK is what does not end: `task` ignores that it is canceled, `once` the first time, `loop` holds
the event loop then, `thread` waits for what never comes.

The socket, `driver` in the state directory, takes one JSON object per line and returns one: the
methods of hub/checks.py by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, Requester, RunResult
from nodevitals.commands.cli import main
from nodevitals.commands.hub import command
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from nodevitals_hub import service, stopping
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.runners import PlannedRun, Runner
from nodevitals_hub.context import Hub
from nodevitals_hub.incidents import incident_intake
from nodevitals_hub.launch import node_watch
from nodevitals_hub.store.check_store import Issued
from nodevitals_hub.triggers import resources
from nodevitals_hub.triggers.resource_objects import Waits
from nodevitals_hub.web import limits, server
from testbed.node import ROOT, SOURCES, free_port, wait_until

USUAL_BYTES_PER_SECOND = 10e9
PORT_BYTES_PER_SECOND = 12.5e9
SOCKET = "driver"


class SimulatedRunner(Runner):
    """Reports figures after a while, without any agent."""

    def __init__(
        self, seconds: float, slow: frozenset[str], held: frozenset[str] = frozenset()
    ) -> None:
        self.seconds = seconds
        self.slow = slow
        self.held = held

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Wait, and return one row per run."""
        await asyncio.sleep(3600 if self.held & set(run.nodes) else self.seconds)
        rate = USUAL_BYTES_PER_SECOND * (0.4 if self.slow & set(run.nodes) else 1.0)
        kind = check.request.kind
        ports = (PORT_BYTES_PER_SECOND,) * 2 if kind in ("pair", "matrix") else None
        row = ResultRow(
            operation=check.request.test.operation or None,
            message_bytes=65536,
            bandwidth_bytes_per_second=rate,
            bus_bandwidth_bytes_per_second=rate if kind == "collective" else None,
        )
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=(Report(outcome="ok", rows=(row,)),),
            started=time.time() - self.seconds,
            seconds=self.seconds,
            ports_bytes_per_second=(ports,),
            outputs=(f"simulated: {rate:g} bytes per second\n",),
            versions={"simulated": "1"},
        )


def simulated_runner() -> SimulatedRunner:
    """The runner that the environment describes."""
    slow, held = (
        frozenset(filter(None, os.environ.get(name, "").split(","))) for name in ("SLOW", "HELD")
    )
    return SimulatedRunner(float(os.environ.get("RUN_SECONDS", "0.2")), slow, held)


async def drive(hub: Hub) -> None:
    """Serve the socket."""
    path = Path(hub.settings.state_directory, SOCKET)
    path.unlink(missing_ok=True)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await _answer(hub, json.loads(await reader.readline()))
        writer.write(msgspec.json.encode(answer) + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(connected, path, limit=2**24)
    await server.serve_forever()


async def stuck(hub: Hub) -> None:
    """Do not end, in the way that $STUCK names."""
    what = os.environ["STUCK"]
    if what == "thread":
        await asyncio.to_thread(lambda: time.sleep(3600))
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if what == "loop":
                time.sleep(3600)
            if what == "once":
                os.environ["STUCK"] = what = "never"
            elif what == "never":
                raise


async def _answer(hub: Hub, call: dict[str, Any]) -> Any:
    checks = hub.checks
    asker = Requester(trigger="rest", name="test", role=call.get("role", "run"))
    try:
        if call["do"] in ("submit", "estimate"):
            request = msgspec.convert(call["request"], CheckRequest)
            if call["do"] == "estimate":
                return await checks.estimate(request, asker)
            return await checks.submit(request, asker, call.get("key", ""))
        if call["do"] == "cancel":
            return await checks.cancel(call["id"], asker)
        if call["do"] == "get":
            return await checks.get(call["id"])
        return await checks.list(**call.get("with", {}))
    except RefusedError as error:
        return {"refused": error.kind, "text": str(error)}


class RefusedCallError(Exception):
    """The hub refused a call."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class HubProcess:
    """A hub that tests start, kill and start again; it ends with the with block."""

    def __init__(self, folder: Path, simulated: bool = False, **config: Any) -> None:
        self.folder = folder
        self.state = folder / "hub"
        self.state.mkdir(exist_ok=True)
        self.config = folder / "hub.yaml"
        self.config.write_text(yaml.safe_dump({"state_directory": str(self.state), **config}))
        self.log = folder / "hub.log"
        self.port = free_port()
        self.simulated = simulated
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.options: list[str] = []

    def __enter__(self) -> HubProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def argv(self) -> list[str]:
        """The command line."""
        more = ["--simulated"] if self.simulated else []
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        own = [sys.executable, "-m", "testbed.hub", f"--config.file={self.config}", listen]
        return ["setpriv", "--pdeathsig", "KILL", "--", *own, *more, *self.options]

    def start(self, wait: bool = True) -> None:
        """Start it, and wait until it takes calls."""
        (self.state / SOCKET).unlink(missing_ok=True)
        paths = f"{SOURCES}:{ROOT / 'tests'}"
        environment = {**os.environ, "PYTHONPATH": paths, **self.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv(), stdout=log, stderr=log, env=environment)
        if wait:
            wait_until(self._is_up, 30, f"the hub; its log: {self.log}")

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.call("list")
        except OSError:
            return False
        return True

    def kill(self, number: int = signal.SIGKILL) -> int | None:
        """Send a signal and wait for the end; its status."""
        if self.process is None:
            return None
        self.process.send_signal(number)
        return self.process.wait(120)

    def call(self, do: str, **more: Any) -> Any:
        """Call a method. Raises RefusedCallError and OSError."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(40)
            sock.connect(str(self.state / SOCKET))
            sock.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            text = sock.makefile("rb").read()
        if not text:
            raise ConnectionResetError("the hub ended")
        answer = json.loads(text)
        if isinstance(answer, dict) and "refused" in answer:
            raise RefusedCallError(answer["refused"], answer["text"])
        return answer

    def submit(self, key: str = "", role: str = "run", **request: Any) -> Check:
        """Start a check."""
        answer = self.call("submit", request=request, key=key, role=role)
        return msgspec.convert(answer, Check)

    def list(self, **conditions: Any) -> list[Check]:
        """The newest checks first."""
        return msgspec.convert(self.call("list", **{"with": conditions}), list[Check])

    def detail(self, identity: str) -> CheckDetail:
        """One check."""
        return msgspec.convert(self.call("get", id=identity), CheckDetail)

    def cancel(self, identity: str) -> Check:
        """End a check."""
        return msgspec.convert(self.call("cancel", id=identity), Check)

    def ended(self, identity: str, seconds: float = 60) -> CheckDetail:
        """A check, once it has ended."""
        wait_until(lambda: self.detail(identity).check.ended is not None, seconds, identity)
        return self.detail(identity)


if __name__ == "__main__":
    assert command
    for module, names in (
        (limits, ("REQUEST_SECONDS", "STALLED_SECONDS", "REST_SECONDS")),
        (server, ("HEAD_SECONDS", "HANDSHAKE_SECONDS")),
        (node_watch, ("EVERY_SECONDS", "SETTLE_SECONDS")),
        (incident_intake, ("ASK_SECONDS", "VANISHED_SECONDS")),
        (stopping, ("STOP_SECONDS", "TASKS_SECONDS", "AGAIN_SECONDS")),
    ):
        for name in names:
            setattr(module, name, float(os.environ.get(name, getattr(module, name))))
    arguments = [one for one in sys.argv[1:] if one != "--simulated"]
    if len(arguments) < len(sys.argv) - 1:
        service.default_runner = lambda *_: simulated_runner()
    service.default_extras = (drive, stuck) if "STUCK" in os.environ else (drive,)
    if "WAITS" in os.environ:
        resources.default_waits = Waits(*map(float, os.environ["WAITS"].split(",")))
    sys.exit(main(["hub", *arguments]))
