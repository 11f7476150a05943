"""An HTTP or mail server on loopback that answers as badly as a test wants."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress

BYTES_AT_ONCE = 1 << 16


class BadServer:
    """It runs inside the with block. `answer` is given a function that sends bytes; it is called
    once the head of a request has come, or at once where `greets`.
    """

    def __init__(
        self, answer: Callable[[Callable[[bytes], None]], None], greets: bool = False
    ) -> None:
        self.heads: list[bytes] = []
        """What was asked."""
        self.sent = 0
        """Bytes that a client has taken, or that wait in buffers."""
        self.ending = threading.Event()
        outer = self

        class Session(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # the client has gone
                    head = b""
                    while not greets and b"\r\n\r\n" not in head:
                        data = self.request.recv(BYTES_AT_ONCE)
                        if not data:
                            return
                        head += data
                    outer.heads.append(head)
                    answer(self.send)

            def send(self, data: bytes) -> None:
                self.request.sendall(data)
                outer.sent += len(data)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> BadServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> None:
        """Send nothing."""
        self.ending.wait()

    def trickle(self, send: Callable[[bytes], None], byte: bytes = b"x") -> None:
        """Send one byte after the other, for ever."""
        while not self.ending.wait(0.05):
            send(byte)
