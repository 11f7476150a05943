"""Starts all queries of preflight at the same time, and collects the findings in order."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError

from nodevitals.commands.doctor.findings import PROBLEM, UNKNOWN, Finding, Samples, parse_samples
from nodevitals.commands.doctor.http import (
    Answer,
    Endpoint,
    Jobs,
    ask,
    endpoint,
    late,
    read_http_config,
)
from nodevitals.commands.hub.client import client_of
from nodevitals.commands.preflight import holders
from nodevitals.commands.preflight.agent import (
    PATH,
    alert_findings,
    freshness_findings,
    profile_findings,
)
from nodevitals.commands.preflight.deep import DeepTests
from nodevitals.commands.preflight.defects import defect_findings
from nodevitals.commands.preflight.leftovers import chosen, in_use, leftover_findings
from nodevitals.commands.preflight.peers import (
    AT_A_TIME,
    PeerAnswer,
    dial,
    login,
    nodes_of_file,
    parse_nodes,
    peer_findings,
    short_name,
    ssh_options,
)
from nodevitals.commands.terminal import CommandError
from nodevitals.linux.host import node_name

MAX_METRICS_BYTES = 16 << 20
MAX_ANSWER_BYTES = 64 << 20
_LOOK_SECONDS = 3.0
_START = "start it: systemctl enable --now nodevitals; nodevitals doctor"


class Preflight:
    """One call of preflight. The constructor raises CommandError for unusable options."""

    def __init__(self, options: argparse.Namespace, deadline: float, end: float) -> None:
        """Answers after `deadline` are ignored; at `end` everything must have ended."""
        self._options = options
        self._deadline = deadline
        self._jobs = Jobs(deadline)
        self._node = options.node or node_name()
        self._names = frozenset((self._node, short_name(self._node)))
        config = read_http_config(options.url_http)
        self._agent = endpoint("--url", options.url, config, MAX_METRICS_BYTES)
        self._prometheus: Endpoint | None = None
        if options.prometheus:
            config = read_http_config(options.prometheus_http)
            self._prometheus = endpoint(
                "--prometheus", options.prometheus, config, MAX_ANSWER_BYTES
            )
        names = parse_nodes(options.nodes)
        if options.nodes_file:
            names += nodes_of_file(options.nodes_file)
        names = list(dict.fromkeys(names))
        self._peers = [name for name in names if short_name(name) not in self._names]
        self._ssh = ssh_options(options.ssh_option)
        self._deep: DeepTests | None = None
        if options.deep:
            if self._peers and not options.preset:
                text = "a pair test needs --preset NAME: a preset of the hub, for pairs"
                raise CommandError(f"--deep with --nodes: {text}")
            self._deep = DeepTests(client_of(options), deadline, end)

    def findings(self) -> Iterator[Finding]:
        """All findings."""
        started = holders.start_search(
            self._options.path, self._options.write, max(self._left(), 0.1)
        )
        self._holders = holders.start(self._options.procfs, max(self._left(), 0.1))
        half = time.monotonic() + self._left() / 2
        self._jobs.start("agent", lambda: self._ask(self._agent, self._agent.path or "/metrics"))
        if self._prometheus is not None:
            server = self._prometheus
            self._jobs.start("alerts", lambda: self._ask(server, server.path + PATH))
        pool, asked = self._ask_peers()
        yield from self._of_agent()
        yield from holders.place_findings(started, half)
        if self._prometheus is not None:
            answer = self._jobs.result("alerts", late(self._left()))
            yield from alert_findings(answer, self._names, self._options.cluster)
        if asked:
            what = "by ssh, clocks agree" if self._options.ssh else f"on {self._options.port}"
            state = UNKNOWN if self._options.this_node else PROBLEM
            yield from peer_findings(self._peer_answers(asked), what, state)
        pool.shutdown(wait=False)
        if self._deep is not None:
            peer = self._peers[0] if self._peers else ""
            yield from self._deep.findings(self._node, peer, self._options.preset)

    def stop(self) -> None:
        """End early: cancel the checks at the hub."""
        if self._deep is not None:
            self._deep.cancel()

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
        devices = chosen(self._options.devices)
        used = in_use(samples, devices)
        bus_ids = {
            use.device[1]: use.bus_id for use in used if use.device[0] == "nvidia" and use.bus_id
        }
        seconds = min(_LOOK_SECONDS, self._left() / 2)
        processes = holders.descriptions(self._holders, bus_ids, time.monotonic() + seconds)
        yield from leftover_findings(samples, devices, used, processes)

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
