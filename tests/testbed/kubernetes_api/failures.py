"""How an answer goes wrong: the one way in which tests break the API server.

A failure is the code of a Status, the name of a document, or what happens to the connection; with
`after ` before it, the request is executed first.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler

from testbed.kubernetes_api.answers import SUCCESS, Answer, Object, document, failure

AFTER = "after "
HANG, AFTER_HANG = "hang", "after hang"
LATE = "late"
"""The request is executed when the test delivers it; its connection is closed at once."""
DEAF = "deaf"
"""A watch that begins, and then sends nothing."""
BODIES = {
    "garbage": Answer(200, b'{"items": [{"metadata": "\xff'),
    "html": Answer(200, b"<html>Sign in</html>", "text/html"),
    "html_404": Answer(404, b"<html>not here</html>", "text/html"),
    "empty": Answer(200),
    "null": Answer(200, b"null"),
    "other_kind": document(200, SUCCESS),
}
TROUBLES = (
    *("401", "403", "404", "409", "410", "422", "429", "500", "503"),
    *("reset", "after reset", *BODIES, "other_object", "other_shape"),
)
"""Those that end at once."""
WRITES = ("patch", "create", "delete", "update")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EXPIRED = "The provided continue parameter is too old"


def wrong_answer(how: str, other: Object) -> Answer | None:
    """The answer of a failure, None where there is none; `other` is another object of the kind."""
    if how.isdigit():
        code = int(how)
        return document(code, failure(code, EXPIRED) if code == 410 else failure(code))
    if how == "other_object":
        return document(200, other)
    if how == "other_shape":
        metadata = {**other.get("metadata", {}), "annotations": "x"}
        items = {"items": [{"metadata": 7}]}
        return document(200, {**other, "metadata": metadata, "spec": "x", **items})
    return Answer(200, b" " * (17 << 20)) if how == "huge" else BODIES.get(how)


def disturb(handler: BaseHTTPRequestHandler, how: str, *ends: threading.Event) -> None:
    """What happens to a connection; a hanging one is closed once one of `ends` is set."""
    handler.close_connection = True
    if how in (HANG, DEAF):
        if how == DEAF:
            handler.wfile.write(HEAD + b"Connection: close\r\n\r\n")
        while not any(one.wait(0.05) for one in ends):
            pass
    elif how == "trickle":  # for as long as the client waits
        handler.wfile.write(HEAD + b"Connection: close\r\n\r\n")
        while not ends[-1].wait(0.05):
            handler.wfile.write(b" ")
    elif how == "cut":
        handler.wfile.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
    else:
        assert how in ("reset", LATE), how
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.connection.close()


def failing(
    how: str, verbs: Collection[str], resource: str, names: Collection[str], times: int
) -> Callable[[str, str, str], str]:
    """The failure of a request by verb, resource and name; '' for none."""
    left = times

    def found(verb: str, of: str, name: str) -> str:
        nonlocal left
        does = verb in (verbs or (verb,)) and name in (names or (name,))
        if not does or resource not in ("", of) or not left:
            return ""
        left -= 1
        return how

    return found
