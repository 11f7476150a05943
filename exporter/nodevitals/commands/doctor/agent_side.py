"""The findings about the agent and its node.

If the agent answers, its samples are used. The configuration and the reasons of failed runs are
read from the node's files. Where no agent runs, each probe is run once.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import time
from collections.abc import Iterator

from nodevitals import __version__, agent, probes
from nodevitals.commands.doctor.findings import (
    OFF,
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    Samples,
    ago,
    parse_samples,
    printable,
)
from nodevitals.commands.doctor.http import Answer, Endpoint, Jobs, ask, late
from nodevitals.commands.doctor.permissions import permission_findings
from nodevitals.commands.doctor.targets import from_metrics, from_results, target_findings
from nodevitals.commands.options import host_of
from nodevitals.commands.rights import lacks
from nodevitals.config import Config, load
from nodevitals.document import DocumentError
from nodevitals.engine.configuration import plan_targets
from nodevitals.linux.host import Host, node_name
from nodevitals.state import database, tables
from nodevitals.wire import ProbeResult

START = "start it: systemctl enable --now nodevitals; journalctl -u nodevitals | tail"
_CREDENTIALS = "name its CA, user and password: --http.config.file FILE (basic_auth, tls_config)"


def unreachable(server: Endpoint, answer: Answer, *, local: bool) -> Finding:
    """The finding where there are no metrics from the agent."""
    if answer.status in (401, 403) or "ertificate" in answer.problem:
        remedy = _CREDENTIALS
    elif local and answer.status == 0:
        remedy = START
    else:
        remedy = f"check that the agent listens there: curl -v {server.shown}"
    return Finding("agent", answer.state, f"{server.shown}: {answer.problem}", remedy)


def agent_findings(
    server: Endpoint, samples: Samples, health: Answer, ready: Answer, now: float
) -> Iterator[Finding]:
    """The findings about an agent that answers: its version, health and configuration."""
    version = printable(samples.label("nodevitals_build_info", "version"), 40)
    yield Finding("agent", OK, f"{server.shown} answers; version {version}")
    if version != __version__:
        text = f"the agent has version {version}, this command {__version__}"
        yield Finding("version", PROBLEM, text, "restart the agent: systemctl restart nodevitals")
    yield _status(
        "health", health, "journalctl -u nodevitals | tail -50; systemctl restart nodevitals"
    )
    yield _ready(ready)
    yield from _configuration(samples, now)


def _status(check: str, answer: Answer, remedy: str) -> Finding:
    if _is_ok(answer):
        return Finding(check, OK, "/healthz answers ok")
    if answer.status == 503:
        text = printable(answer.body[:400].decode("utf-8", "replace"))
        return Finding(check, PROBLEM, f"/healthz: {text}", remedy)
    problem = answer.problem or "not an answer of nodevitals"
    return Finding(check, answer.state or UNKNOWN, f"/healthz: {problem}", remedy)


def _is_ok(answer: Answer) -> bool:
    return answer.status == 200 and not answer.problem and answer.body.strip() == b"ok"


def _ready(answer: Answer) -> Finding:
    """The finding about readiness: in its first seconds, an agent is not ready."""
    if _is_ok(answer):
        return Finding("readiness", OK, "/readyz: every target has ended a run")
    if answer.status == 503:
        text = printable(answer.body[:400].decode("utf-8", "replace"))
        return Finding("readiness", UNKNOWN, f"/readyz: {text}", "wait for the first runs to end")
    remedy = "journalctl -u nodevitals | tail -50"
    problem = answer.problem or "not an answer of nodevitals"
    return Finding("readiness", answer.state or UNKNOWN, f"/readyz: {problem}", remedy)


def _configuration(samples: Samples, now: float) -> Iterator[Finding]:
    loaded = samples.value("nodevitals_config_last_reload_success_timestamp_seconds")
    successful = samples.value("nodevitals_config_last_reload_successful")
    if loaded is None or successful is None:
        text = "the agent does not expose whether it was loaded"
        yield Finding("configuration", UNKNOWN, text, "journalctl -u nodevitals | grep reload")
        return
    age = ago(now - loaded)
    if successful:
        yield Finding("configuration", OK, f"loaded {age} ago")
        return
    text = f"the last reload was refused; the configuration of {age} ago is still in use"
    remedy = "nodevitals check-config /etc/nodevitals/nodevitals.yaml; systemctl reload nodevitals"
    yield Finding("configuration", PROBLEM, text, remedy)


def clock_findings(samples: Samples) -> Iterator[Finding]:
    """Whether a time daemon synchronizes the node's clock."""
    synchronized = samples.value("nodevitals_node_clock_synchronized")
    if synchronized is None:
        yield Finding("clock", UNKNOWN, "the probe node has not read it", "timedatectl")
    elif synchronized:
        yield Finding("clock", OK, "synchronized by a time daemon")
    else:
        text = "not synchronized: times of alerts and of the history are wrong"
        yield Finding("clock", PROBLEM, text, "timedatectl set-ntp true; chronyc tracking")


def right_findings(samples: Samples) -> Iterator[Finding]:
    """The values that probes cannot read without capabilities that are not granted by default."""
    series = ((name, *row) for name, rows in samples.values.items() for row in rows)
    for lack in lacks(series):
        yield Finding(f"rights of {lack.probe}", OFF, lack.text, lack.remedy)


def offset_findings(answer: Answer, server_time: float | None) -> Iterator[Finding]:
    """The offset of Prometheus' clock from this machine's, exact to half the request's time."""
    if server_time is None:
        return
    if not math.isfinite(server_time):
        text = f"Prometheus answers that its time is {server_time}"
        yield Finding("clock offset", UNKNOWN, text, "check the URL of Prometheus")
        return
    margin = (answer.received - answer.sent) / 2
    offset = server_time - (answer.sent + margin)
    if abs(offset) - margin > MAX_OFFSET_SECONDS:
        side = "ahead of" if offset > 0 else "behind"
        text = f"the clock of Prometheus is {abs(offset):.1f} s {side} this machine's"
        yield Finding("clock offset", PROBLEM, text, "chronyc tracking, here and on Prometheus")
    else:
        yield Finding("clock offset", OK, f"within {abs(offset) + margin:.1f} s of Prometheus")


MAX_OFFSET_SECONDS = 1.0


def no_history(text: str) -> Finding:
    """The finding where the reasons of failed runs cannot be read."""
    remedy = "run doctor as root on the node, with the agent's --config.file"
    return Finding("reasons", OFF, text, remedy)


DEFAULT_CONFIG = "/etc/nodevitals/nodevitals.yaml"
Key = tuple[str, str]


def configuration(path: str | None) -> tuple[Config | None, Finding]:
    """The configuration of a file or of the default path, None where it is wrong; and a finding."""
    if path is None and os.path.exists(DEFAULT_CONFIG):
        path = DEFAULT_CONFIG
    try:
        config = load(path, probes.registered())
    except DocumentError as error:
        text = "; ".join(problem.within(str(path)) for problem in error.problems)
        remedy = f"correct it: nodevitals check-config {path}"
        return None, Finding("configuration file", PROBLEM, printable(text), remedy)
    if path is None:
        return config, Finding("configuration file", OK, "none; every setting has its default")
    return config, Finding("configuration file", OK, f"{path}: no error")


def disabled(config: Config | None) -> list[str]:
    """The probes that a configuration turns off."""
    settings = {} if config is None else config.probes
    return [name for name, setting in settings.items() if setting.enabled is False]


def last_reasons(config: Config | None) -> tuple[dict[Key, tuple[str, str]], str]:
    """The last state of each target or device, and its detail; or why it cannot be read."""
    directory = None if config is None else config.state_directory
    if directory is None:
        return {}, "state_directory is null" if config else "the configuration cannot be read"
    try:
        with tables.open_for_reading(directory) as connection:
            rows = database.latest(connection)
    except tables.ERRORS as error:
        return {}, printable(f"{directory}/{tables.FILE_NAME}: {error}")
    return {(row.probe, row.device): (row.state, row.detail) for row in rows}, ""


def planned(config: Config) -> list[Key]:
    """Every target of a configuration."""
    return [spec.key for spec in plan_targets(config, only=probes.registered())]


def run_probes(host: Host, config: Config, seconds: float) -> tuple[bytes, dict[Key, ProbeResult]]:
    """Run each target once, within some seconds: the exposition, and the results so far."""
    text, results = agent.run_probes(host, config, probes.registered(), seconds)
    return text.encode(), results


# Time to end the processes that a run of the probes has started.
END_SECONDS = 3.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class AgentSide:
    """The agent at one address, which may be on this machine."""

    def __init__(
        self, options: argparse.Namespace, server: Endpoint, jobs: Jobs, deadline: float
    ) -> None:
        self.server = server
        self.started: float | None = None
        """The agent's start time, which identifies it in Prometheus; None where it is unknown."""
        self._options = options
        self._jobs = jobs
        self._deadline = deadline
        self._is_local = server.host in (*_LOOPBACK, node_name(), os.uname().nodename)

    def start(self) -> None:
        """Query the agent and read the node's files, each in a thread: both may hang."""
        server, deadline, options = self.server, self._deadline, self._options
        paths = {"metrics": server.path or "/metrics", "healthz": "/healthz", "readyz": "/readyz"}
        for name, path in paths.items():
            self._jobs.start(name, lambda path=path: ask(server, path, deadline))  # type: ignore[misc]
        if self._is_local:
            self._jobs.start("configuration", lambda: configuration(options.config))
            port, procfs = server.port, options.procfs
            self._jobs.start("permissions", lambda: list(permission_findings(procfs, port)))

    def names(self, other: str) -> set[str]:
        """The names and addresses under which another server may know the agent's node."""
        if not self._is_local:
            return {self.server.host}
        names = {node_name(), os.uname().nodename}
        if other in _LOOPBACK:
            return names | set(_LOOPBACK)
        try:  # the address from which this node reaches the other; nothing is sent
            family, _, _, _, address = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as connection:
                connection.connect(address)
                names.add(connection.getsockname()[0])
        except OSError:
            pass
        return names

    def findings(self) -> Iterator[Finding]:
        """The findings about the agent and its node."""
        answer, now = self._answer("metrics"), time.time()
        config, about_file = self._configuration()
        samples = self._samples(answer)
        if samples is None:
            if not answer.problem:
                text = "not the metrics of nodevitals"
                answer = Answer(answer.status, problem=text, state=UNKNOWN)
            yield unreachable(self.server, answer, local=self._is_local)
            yield from about_file
            if self._is_local and not answer.status and config is not None and _refused(answer):
                yield from self._run_here(config)
            return
        self.started = samples.value("process_start_time_seconds")
        health, ready = self._answer("healthz"), self._answer("readyz")
        yield from agent_findings(self.server, samples, health, ready, now)
        yield from about_file
        history: dict[Key, tuple[str, str]] = {}
        problem = "the agent is on another machine"
        if self._is_local:
            self._jobs.start("history", lambda: last_reasons(config))
            history, problem = self._jobs.result("history", (history, "no answer from its disk"))
        states = from_metrics(samples, history, now)
        off = disabled(config)
        if problem and any(state.state == "failing" for state in states):
            yield no_history(f"the reasons of failed runs cannot be read: {problem}")
        yield from target_findings(states, off, probes.registered())
        if self._is_local:
            late_finding = Finding("permissions", UNKNOWN, "procfs does not answer")
            yield from self._jobs.result("permissions", [late_finding])
        yield from right_findings(samples)
        yield from clock_findings(samples)

    def _answer(self, name: str) -> Answer:
        return self._jobs.result(name, late(self._deadline - time.monotonic()))

    def _configuration(self) -> tuple[Config | None, list[Finding]]:
        if not self._is_local:
            return None, []
        text = "no answer from the disk of the configuration file"
        slow = Finding("configuration file", PROBLEM, text, "dmesg -T | tail -50")
        config, finding = self._jobs.result("configuration", (None, slow))
        return config, [finding]

    def _samples(self, answer: Answer) -> Samples | None:
        if answer.problem:
            return None
        try:
            samples = parse_samples(answer.body)
        except ValueError:
            return None
        return samples if "nodevitals_build_info" in samples.values else None

    def _run_here(self, config: Config) -> Iterator[Finding]:
        """Where no agent runs, run each probe once here, with this user's permissions."""
        seconds = self._deadline - time.monotonic() - END_SECONDS
        if seconds <= 0:
            text = "no time is left to run the probes"
            yield Finding("probes", UNKNOWN, text, "raise --timeout")
            return
        host = host_of(self._options)
        body, results = run_probes(host, config, seconds)
        states = from_results(results, planned(config), seconds)
        yield from target_findings(states, disabled(config), probes.registered())
        samples = parse_samples(body)
        yield from right_findings(samples)
        yield from clock_findings(samples)


def _refused(answer: Answer) -> bool:
    return answer.problem in ("Connection refused", "Name or service not known")
