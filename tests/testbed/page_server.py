"""A server of exposition pages of many targets, each at a path or an address of its own.

In: a function that makes the page of a target. Out: addresses and paths that Prometheus scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from testbed.http_server import HttpServer, Request, Response

EXPOSITION = {"Content-Type": "text/plain; version=0.0.4"}


class PageServer(HttpServer):
    """`page` gets a target and returns what it exposes, or None while it is down. The target is
    one of `names`, each of which has one of `addresses`, or else the path.
    `sent` is called with a target whose page was sent. Alerts for an Alertmanager are accepted.
    """

    def __init__(
        self,
        page: Callable[[str], str | None],
        names: Sequence[str] = (),
        sent: Callable[[str], object] = lambda target: None,
    ) -> None:
        super().__init__(self._respond, "0.0.0.0" if names else "127.0.0.1")
        self.addresses = {
            name: f"127.0.1.{number}:{self.port}" for number, name in enumerate(names, start=1)
        }
        self._names = {address: name for name, address in self.addresses.items()}
        self._page, self._sent = page, sent

    def _respond(self, request: Request) -> Response:
        if request.method != "GET":
            return Response()
        target = self._names.get(request.headers["Host"], request.path)
        page = self._page(target)
        if page is None:
            return Response(503)
        return Response(200, page.encode(), EXPOSITION, partial(self._sent, target))
