"""Tests through the hub: the node's own checks, and a pair test with a peer."""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Iterator

from nodevitals.checks.model import CheckRequest
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, printable
from nodevitals.commands.hub_client import HubClient, HubError, NoAnswerError, client_of

POLL_SECONDS = 1.0
_STATES = {"ok": OK, "bad": PROBLEM, "unknown": UNKNOWN}


def deep_findings(
    options: argparse.Namespace, node: str, peer: str, deadline: float
) -> Iterator[Finding]:
    """A finding per check. What is not finished at the deadline is canceled."""
    client = client_of(options)
    requests = {"node check": CheckRequest(kind="node", nodes=(node,), note="preflight")}
    if peer:
        requests["pair test"] = CheckRequest(
            kind="pair", nodes=(node, peer), preset=options.preset, note="preflight"
        )
    for name, request in requests.items():
        yield _run(client, name, request, deadline)


def _run(client: HubClient, name: str, request: CheckRequest, deadline: float) -> Finding:
    identity = ""
    try:
        identity = client.submit(request, str(uuid.uuid4())).id
        while time.monotonic() < deadline:
            verdict = client.get(identity).check.verdict
            if verdict is not None:
                text = printable(verdict.message or verdict.outcome)
                return Finding(name, _STATES[verdict.outcome], text, client.link(identity))
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0.01)))
        client.cancel(identity)
    except NoAnswerError as error:
        return Finding(name, UNKNOWN, printable(str(error)), "check --hub")
    except HubError as error:
        return Finding(name, UNKNOWN, printable(str(error)), "check --hub and --token-file")
    return Finding(
        name, UNKNOWN, "not finished in time", f"raise --timeout; {client.link(identity)}"
    )
