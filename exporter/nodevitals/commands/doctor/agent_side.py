"""The agent and its node: what is asked, and which findings follow."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Iterator

from nodevitals import probes
from nodevitals.commands.doctor import agent_findings, local
from nodevitals.commands.doctor.asking import Answer, Endpoint, Jobs, ask, late
from nodevitals.commands.doctor.findings import PROBLEM, UNKNOWN, Finding
from nodevitals.commands.doctor.permissions import permission_findings
from nodevitals.commands.doctor.samples import Samples, parse_samples
from nodevitals.commands.doctor.targets import from_metrics, from_results, target_findings
from nodevitals.commands.options import host_of
from nodevitals.config import Config
from nodevitals.linux.host import node_name

# For the end of the processes that a run of the probes has started.
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
        """Ask the agent and read the node's files, each in a thread: both may hang."""
        server, deadline, options = self.server, self._deadline, self._options
        paths = {"metrics": server.path or "/metrics", "healthz": "/healthz", "readyz": "/readyz"}
        for name, path in paths.items():
            self._jobs.start(name, lambda path=path: ask(server, path, deadline))  # type: ignore[misc]
        if self._is_local:
            self._jobs.start("configuration", lambda: local.configuration(options.config))
            port, procfs = server.port, options.procfs
            self._jobs.start("permissions", lambda: list(permission_findings(procfs, port)))

    def names(self, other: str) -> set[str]:
        """The names and addresses of the agent's node, as another server may know it."""
        if not self._is_local:
            return {self.server.host}
        found = {node_name(), os.uname().nodename}
        if other in _LOOPBACK:
            return found | set(_LOOPBACK)
        try:  # the address from which this node reaches the other; nothing is sent
            family, _, _, _, address = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as connection:
                connection.connect(address)
                found.add(connection.getsockname()[0])
        except OSError:
            pass
        return found

    def findings(self) -> Iterator[Finding]:
        """What is found out about the agent and its node."""
        answer, now = self._answer("metrics"), time.time()
        config, about_file = self._configuration()
        samples = self._samples(answer)
        if samples is None:
            if not answer.problem:
                text = "not the metrics of nodevitals"
                answer = Answer(answer.status, problem=text, state=UNKNOWN)
            yield agent_findings.unreachable(self.server, answer, local=self._is_local)
            yield from about_file
            if self._is_local and not answer.status and config is not None and _refused(answer):
                yield from self._run_here(config)
            return
        self.started = samples.value("process_start_time_seconds")
        health, ready = self._answer("healthz"), self._answer("readyz")
        yield from agent_findings.agent_findings(self.server, samples, health, ready, now)
        yield from about_file
        history: dict[local.Key, tuple[str, str]] = {}
        problem = "the agent is on another machine"
        if self._is_local:
            self._jobs.start("history", lambda: local.last_reasons(config))
            history, problem = self._jobs.result("history", (history, "no answer from its disk"))
        states = from_metrics(samples, history, now)
        off = local.disabled(config)
        if problem and any(one.state == "failing" for one in states):
            yield agent_findings.no_history(f"the reasons of failed runs cannot be read: {problem}")
        yield from target_findings(states, off, probes.registered())
        if self._is_local:
            late_finding = Finding("permissions", UNKNOWN, "procfs does not answer")
            yield from self._jobs.result("permissions", [late_finding])
        yield from agent_findings.right_findings(samples)
        yield from agent_findings.clock_findings(samples)

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
        """Where no agent runs: each probe once, from here, with this user's permissions."""
        seconds = self._deadline - time.monotonic() - END_SECONDS
        if seconds <= 0:
            text = "no time is left to run the probes"
            yield Finding("probes", UNKNOWN, text, "raise --timeout")
            return
        host = host_of(self._options)
        body, results = local.run_probes(host, config, seconds)
        states = from_results(results, local.planned(config), seconds)
        yield from target_findings(states, local.disabled(config), probes.registered())
        samples = parse_samples(body)
        yield from agent_findings.right_findings(samples)
        yield from agent_findings.clock_findings(samples)


def _refused(answer: Answer) -> bool:
    return answer.problem in ("Connection refused", "Name or service not known")
