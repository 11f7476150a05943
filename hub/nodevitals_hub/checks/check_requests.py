"""The checks of the hub: what the pages, the REST API, resources, schedules and alerts call.

In: requests. Out: checks, their progress and their results. One instance per hub; all methods run
in the event loop and never block it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Literal

import msgspec

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, Kind, Requester

RefusalKind = Literal["invalid", "forbidden", "not_found", "conflict", "busy", "unavailable"]
"""invalid: HTTP 422. forbidden: 403. not_found: 404. conflict: 409, nodes are in use, or the check
has ended. busy: 429, the queue is full. unavailable: 503, the store cannot be written or read."""


class RefusedError(Exception):
    """A request was refused; the text says why and what to do, in one line."""

    def __init__(self, kind: RefusalKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that checks can be run on: its labels, and the address of its agent's fabric API."""

    name: str
    host: str
    port: int
    labels: dict[str, str] = {}


class Checks:
    """All checks of this hub."""

    def members(self) -> Sequence[Member]:
        """The nodes on the lists, by name."""
        raise NotImplementedError

    async def estimate(
        self, request: CheckRequest, requester: Requester, without: Collection[str] = ()
    ) -> Check:
        """The check as it would be started, with its cost, and without some of the nodes that the
        request names or chooses. Raises RefusedError.
        """
        raise NotImplementedError

    async def submit(
        self,
        request: CheckRequest,
        requester: Requester,
        key: str = "",
        without: Collection[str] = (),
    ) -> Check:
        """Store and queue a check. With the same `key` (an idempotency key) it is started once, and
        the same check is returned. Raises RefusedError.
        """
        raise NotImplementedError

    async def cancel(self, identity: str, requester: Requester) -> Check:
        """End a check that is queued or running. Raises RefusedError."""
        raise NotImplementedError

    async def get(self, identity: str) -> CheckDetail:
        """One check with its results. Raises RefusedError."""
        raise NotImplementedError

    async def check(self, identity: str) -> Check:
        """One check without its results, which may be many. Raises RefusedError."""
        raise NotImplementedError

    async def list(
        self,
        limit: int = 100,
        before: str = "",
        kind: Kind | None = None,
        node: str = "",
        outcome: str = "",
    ) -> Sequence[Check]:
        """The newest checks first, from before an identity on."""
        raise NotImplementedError

    def changes(self) -> AsyncIterator[Check]:
        """Each change of a check from now on: phase, progress, verdict."""
        raise NotImplementedError
