"""Leases of the hub: probes run every second while the hub asks for that at least once a minute.

The hub sends `PUT /fabric/v1/lease` every 15 s, and `DELETE` to end it at once. In: requests, in
the threads of the server. Out: a Lease for the agent with the next run of the probe, and the
agent's reply, which the request waits for.
"""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from typing import Annotated, Optional, Union

import msgspec

from nodevitals.probes.fabric.orders import OrderRefused
from nodevitals.probes.fabric.protocol import parse
from nodevitals.wire import MAX_LEASE_SECONDS, MAX_LEASED_PROBES, Lease, LeaseReply, LeaseState

LEASE_PATH = "/fabric/v1/lease"
REPLY_SECONDS = 12.0
"""The probe runs every 5 s, and the agent's reply comes with the run after that."""
ProbeName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lease that the hub wants on one node; it replaces the last one."""

    node: str
    """Name of the node that this message is for."""
    probes: Annotated[
        tuple[ProbeName, ...], msgspec.Meta(min_length=1, max_length=MAX_LEASED_PROBES)
    ]
    seconds: Annotated[float, msgspec.Meta(ge=1, le=MAX_LEASE_SECONDS)]


class LeaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a lease by probe; empty if the agent has not replied in time."""

    states: dict[str, LeaseState]


Response = tuple[HTTPStatus, Union[LeaseStatus, OrderRefused]]


class LeaseMailbox:
    """Passes leases from the server's threads to the runs of the probe. The newest request
    counts.
    """

    def __init__(self) -> None:
        self.name = ""
        """The name of this node on the lists; '' where it is not known yet."""
        self._changed = threading.Condition()
        self._lease = Lease((), 0.0)
        self._ends = 0.0
        self._sent = True
        self._reply = LeaseReply(0, {})

    def respond(self, body: bytes, wait_seconds: float) -> Response:
        """The response to a request of the hub: the agent's reply."""
        try:
            request = parse(body, LeaseRequest)
        except ValueError as error:
            refused = OrderRefused(refusal="invalid", message=str(error)[:300])
            return HTTPStatus.CONFLICT, refused
        if request.node != self.name:
            text = f"this is {self.name}" if self.name else "the lists of peers are not read yet"
            return HTTPStatus.CONFLICT, OrderRefused(refusal="not_this_node", message=text)
        return HTTPStatus.OK, self.put(request.probes, request.seconds, wait_seconds)

    def put(self, probes: tuple[str, ...], seconds: float, wait_seconds: float) -> LeaseStatus:
        """Ask the agent for a lease, and wait for its reply. No probes: the lease ends."""
        with self._changed:
            number = self._lease.number + 1
            self._lease = Lease(probes, seconds, number)
            self._ends = time.monotonic() + seconds
            self._sent = False
            self._changed.wait_for(lambda: self._reply.number >= number, wait_seconds)
            return LeaseStatus(states=self._reply.states if self._reply.number == number else {})

    def unsent(self) -> Optional[Lease]:
        """The lease that was requested since the last call, with its remaining time."""
        with self._changed:
            if self._sent:
                return None
            self._sent = True
            left = max(0.0, self._ends - time.monotonic())
            return msgspec.structs.replace(self._lease, seconds=left)

    def replied(self, reply: LeaseReply) -> None:
        """Record the reply of the agent."""
        with self._changed:
            self._reply = reply
            self._changed.notify_all()
