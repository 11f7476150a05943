"""The agent itself: its answers in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nodevitals import __version__
from nodevitals.commands.doctor.asking import Answer, Endpoint
from nodevitals.commands.doctor.findings import OFF, OK, PROBLEM, UNKNOWN, Finding, ago, printable
from nodevitals.commands.doctor.samples import Samples
from nodevitals.commands.rights import lacks

START = "start it: systemctl enable --now nodevitals; journalctl -u nodevitals | tail"
_CREDENTIALS = "name its CA, user and password: --http.config.file FILE (basic_auth, tls_config)"


def unreachable(server: Endpoint, answer: Answer, *, local: bool) -> Finding:
    """No metrics from the agent."""
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
    """The agent answers: its version, its health, its configuration."""
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
    """Not ready is what an agent is in its first seconds."""
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
    """What the probes cannot read without capabilities that are off unless someone grants them."""
    found = ((name, *one) for name, rows in samples.values.items() for one in rows)
    for lack in lacks(found):
        yield Finding(f"rights of {lack.probe}", OFF, lack.text, lack.remedy)


def offset_findings(answer: Answer, server_time: float | None) -> Iterator[Finding]:
    """The clock of Prometheus against this machine's; known to half the time of the question."""
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
    """The reasons of failed runs cannot be read."""
    remedy = "run doctor as root on the node, with the agent's --config.file"
    return Finding("reasons", OFF, text, remedy)
