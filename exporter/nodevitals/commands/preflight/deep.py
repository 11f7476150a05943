"""Runs tests through the hub: the node's own checks, and a pair test with a peer.

In: a client of the hub. Out: findings. No test continues after preflight: it cancels its checks,
also one that the hub may not have received. In addition, each check has its own time limit, in case
preflight is killed or the hub cannot be reached any more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.checks.model import Check, CheckRequest
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, printable
from nodevitals.commands.hub.client import HubClient, HubError, NoAnswerError

POLL_SECONDS = 1.0
CANCEL_SECONDS = 3.0
_STATES = {"ok": OK, "bad": PROBLEM, "unknown": UNKNOWN}
_FULL = 429
_REMEDIES = {
    401: "check --token-file",
    403: "preflight needs a token of the role run: check --token-file",
    409: "end the jobs on these nodes: tests need idle nodes",
    422: "check --node, --nodes and --preset",
    _FULL: "try again later",
}


class DeepTests:
    """The tests of one preflight. Results after `deadline` are ignored; at `end` the tests must
    have been canceled.
    """

    def __init__(self, client: HubClient, deadline: float, end: float) -> None:
        self._client = client
        self._deadline, self._end = deadline, end
        self._open: dict[str, CheckRequest] = {}
        """What may be queued or running on the hub: requests by idempotency key."""
        self._known: dict[str, str] = {}
        """The checks of those that the hub has answered."""
        self._answers = True

    def findings(self, node: str, peer: str, preset: str) -> Iterator[Finding]:
        """A finding per check."""
        yield self._run("node check", CheckRequest(kind="node", nodes=(node,)))
        self.cancel()
        if peer and self._answers:
            pair = CheckRequest(kind="pair", nodes=(node, peer), preset=preset)
            yield self._run("pair test", pair)
            self.cancel()

    def cancel(self) -> None:
        """Cancel the checks that may still be queued or running. Raises nothing. The hub ends a
        check at once, and answers when it has ended.
        """
        self._client.deadline = min(self._end, time.monotonic() + CANCEL_SECONDS)
        for key, request in list(self._open.items()):
            try:
                # The same key starts no second check: the answer identifies the first one.
                identity = self._known.get(key) or self._client.submit(request, key).id
                self._client.cancel(identity)
            except HubError:  # the check has ended, or its own time limit ends it
                pass
            self._open.pop(key, None)

    def _run(self, name: str, request: CheckRequest) -> Finding:
        left = self._deadline - time.monotonic()
        if left < 2 * POLL_SECONDS:
            return Finding(name, UNKNOWN, "no time was left to start it", "raise --timeout")
        request = msgspec.structs.replace(
            request, limit_seconds=max(1.0, round(left, 1)), note="preflight"
        )
        key = str(uuid.uuid4())
        self._open[key] = request
        self._client.deadline = self._deadline
        try:
            return self._finding(name, key, self._submitted(request, key))
        except HubError as error:
            if 400 <= error.http_status < 500 and key not in self._known:
                self._open.pop(key)  # refused: nothing was started
            self._answers = not isinstance(error, NoAnswerError)
            remedy = _REMEDIES.get(error.http_status, "check --hub")
            return Finding(name, UNKNOWN, printable(str(error)), remedy)

    def _submitted(self, request: CheckRequest, key: str) -> Check:
        """Submit the check; while the hub's queue is full, submit it again."""
        while True:
            try:
                return self._client.submit(request, key)
            except HubError as error:
                if error.http_status != _FULL or not self._waited():
                    raise

    def _finding(self, name: str, key: str, check: Check) -> Finding:
        """The finding of a check. While the hub restarts, the request is repeated."""
        self._known[key] = check.id
        link = printable(self._client.link(check.id))
        while True:
            problem: Optional[NoAnswerError] = None
            try:
                verdict = self._client.get(check.id).check.verdict
                if verdict is not None:
                    self._open.pop(key)
                    text = printable(verdict.message or verdict.outcome)
                    return Finding(name, _STATES[verdict.outcome], text, link)
            except NoAnswerError as error:
                problem = error
            if self._waited():
                continue
            if problem is not None:
                raise problem
            return Finding(name, UNKNOWN, "not finished in time", f"raise --timeout; {link}")

    def _waited(self) -> bool:
        """Wait before the next request; False where there is no time left for one."""
        if time.monotonic() + POLL_SECONDS >= self._deadline:
            return False
        time.sleep(POLL_SECONDS)
        return True
