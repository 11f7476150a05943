"""The questions of preflight, all asked at once, and the findings in the order of a table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path

from nodevitals.commands.doctor.asking import Answer, Endpoint, Jobs, ask, endpoint, late
from nodevitals.commands.doctor.findings import UNKNOWN, Finding
from nodevitals.commands.doctor.http_config import read_http_config
from nodevitals.commands.doctor.samples import Samples, parse_samples
from nodevitals.commands.preflight import places
from nodevitals.commands.preflight.agent import freshness_findings, profile_findings
from nodevitals.commands.preflight.alerts import PATH, alert_findings
from nodevitals.commands.preflight.deep import deep_findings
from nodevitals.commands.preflight.defects import defect_findings, leftover_findings
from nodevitals.commands.preflight.peers import (
    AT_A_TIME,
    PeerAnswer,
    dial,
    login,
    parse_nodes,
    peer_findings,
)
from nodevitals.commands.terminal import CommandError
from nodevitals.linux.host import node_name

MAX_METRICS_BYTES = 16 << 20
MAX_ANSWER_BYTES = 64 << 20
_START = "start it: systemctl enable --now nodevitals; nodevitals doctor"


class Preflight:
    """One call of preflight. The constructor raises CommandError for unusable options."""

    def __init__(self, options: argparse.Namespace, deadline: float) -> None:
        self._options = options
        self._deadline = deadline
        self._jobs = Jobs(deadline)
        self._node = options.node or node_name()
        short = self._node.partition(".")[0]
        self._names = frozenset((self._node, short))
        config = read_http_config(options.url_http)
        self._agent = endpoint("--url", options.url, config, MAX_METRICS_BYTES)
        self._prometheus: Endpoint | None = None
        if options.prometheus:
            config = read_http_config(options.prometheus_http)
            self._prometheus = endpoint(
                "--prometheus", options.prometheus, config, MAX_ANSWER_BYTES
            )
        names = parse_nodes(_list(options.nodes))
        self._peers = [one for one in names if one.partition(".")[0] not in self._names]
        self._ssh = [f"-{one.lstrip('-').replace('=', ' ', 1)}" for one in options.ssh_option]

    def findings(self) -> Iterator[Finding]:
        """All findings."""
        started = places.start(self._options.path, self._options.write)
        half = time.monotonic() + self._left() / 2
        self._jobs.start("agent", lambda: self._ask(self._agent, self._agent.path or "/metrics"))
        if self._prometheus is not None:
            server = self._prometheus
            self._jobs.start("alerts", lambda: self._ask(server, server.path + PATH))
        pool, asked = self._ask_peers()
        yield from self._of_agent()
        yield from places.place_findings(started, half)
        if self._prometheus is not None:
            answer = self._jobs.result("alerts", late(self._left()))
            yield from alert_findings(answer, self._names, self._options.cluster)
        if asked:
            what = "by ssh, clocks agree" if self._options.ssh else f"on {self._options.port}"
            yield from peer_findings(self._peer_answers(asked), what)
        pool.shutdown(wait=False)
        if self._options.deep:
            peer = self._peers[0] if self._peers else ""
            yield from deep_findings(self._options, self._node, peer, self._deadline)

    def _of_agent(self) -> Iterator[Finding]:
        answer: Answer = self._jobs.result("agent", late(self._left()))
        samples = Samples({})
        problem = answer.problem
        if not problem:
            try:
                samples = parse_samples(answer.body)
            except ValueError as error:
                problem = str(error)
        if problem:
            yield Finding("agent", UNKNOWN, f"{self._agent.shown}: {problem}", _START)
            return
        yield from freshness_findings(samples, time.time())
        yield from defect_findings(samples)
        yield from profile_findings(samples)
        devices = frozenset(filter(None, self._options.devices.split(",")))
        yield from leftover_findings(samples, devices)

    def _ask_peers(self) -> tuple[ThreadPoolExecutor, dict[str, Future[PeerAnswer]]]:
        pool = ThreadPoolExecutor(AT_A_TIME)
        port, deadline = self._options.port, self._deadline
        if self._options.ssh:
            return pool, {
                name: pool.submit(login, name, port, self._ssh, deadline) for name in self._peers
            }
        return pool, {name: pool.submit(dial, name, port, deadline) for name in self._peers}

    def _peer_answers(self, asked: dict[str, Future[PeerAnswer]]) -> dict[str, PeerAnswer]:
        answers = {}
        for name, future in asked.items():
            try:
                answers[name] = future.result(max(self._left(), 0.01))
            except LateError:
                answers[name] = PeerAnswer("no answer in time")
        return answers

    def _ask(self, server: Endpoint, path: str) -> Answer:
        return ask(server, path, self._deadline)

    def _left(self) -> float:
        return self._deadline - time.monotonic()


def _list(text: str) -> str:
    """A list of nodes, or the content of @FILE: a line per node."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--nodes: {text[1:]} cannot be read: {error}") from None
