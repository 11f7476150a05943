"""Where Alertmanager's notifications arrive: a webhook on loopback, or a mail server beside it."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple, Self

from testbed.http_server import HttpServer, Request, Response
from testbed.mailserver import MailServer


class Message(NamedTuple):
    """One request: when it arrived (monotonic clock), its path and its JSON body."""

    at: float
    path: str
    body: dict[str, Any]


class Receiver(HttpServer):
    """A webhook; the path of a request is the name of Alertmanager's receiver."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.messages: list[Message] = []

    def _respond(self, request: Request) -> Response:
        self.record(request.path.removeprefix("/"), json.loads(request.body))
        return Response()

    def record(self, receiver: str, body: dict[str, Any]) -> None:
        """Record one request."""
        self.messages.append(Message(time.monotonic(), receiver, body))

    @property
    def alerts(self) -> list[tuple[float, dict[str, Any]]]:
        """Each alert with the monotonic time of its arrival and its receiver's name."""
        return [
            (one.at, {**alert, "receiver": one.path})
            for one in list(self.messages)
            for alert in one.body["alerts"]
        ]

    def labels(self, receiver: str) -> list[dict[str, str]]:
        """Return the labels of the alerts that a receiver was notified of."""
        return [alert["labels"] for _, alert in self.alerts if alert["receiver"] == receiver]

    def arrived(
        self, status: str, since: float = 0.0, **labels: str
    ) -> tuple[float, dict[str, Any]] | None:
        """Return the first alert with these labels that arrived after `since`, and when."""
        for moment, alert in self.alerts:
            matches = labels.items() <= alert["labels"].items()
            if moment >= since and alert["status"] == status and matches:
                return moment, alert
        return None


class Inbox(Receiver):
    """A webhook for what a receiver may send, and a mail server."""

    def __init__(self) -> None:
        super().__init__()
        self._mailserver = MailServer()
        self.smarthost = self._mailserver.address
        self.mails = self._mailserver.mails
        """In the order of their arrival."""

    def __enter__(self) -> Self:
        self._mailserver.__enter__()
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._mailserver.__exit__(*exception)
