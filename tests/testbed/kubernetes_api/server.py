"""The API server: HTTP or HTTPS, a kubeconfig, and every failure.

In: a folder, the kinds that are installed and what the account may do. Out: a server that runs in
its with block; tests let it fail with `fail`, and end that with `heal`.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import trustme
import yaml

from testbed.kubernetes_api import failures
from testbed.kubernetes_api.answers import Answer
from testbed.kubernetes_api.api import Api, Call
from testbed.kubernetes_api.failures import AFTER, LATE
from testbed.kubernetes_api.store import Kind


class KubernetesApi(Api):
    """The server; tests change its fields."""

    def __init__(
        self,
        folder: Path,
        kinds: Iterable[Kind],
        role: Iterable[tuple[str, str]],
        tls_name: str = "",
    ) -> None:
        super().__init__(kinds, role)
        self.retry_after = "1"
        """Of answers with 429."""
        self.trouble: Callable[[Call], str] = _none
        """How the answer to a request is wrong: a failure, or ''."""
        self.failures = 0
        """Number of requests that failed as the test wants."""
        self.hanging: Callable[[], object] = int
        """Called when a request begins to hang."""
        self.late: list[Call] = []
        """Requests that `deliver` executes."""
        self._healed = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"{'https' if tls_name else 'http'}://127.0.0.1:{self._http.server_port}"
        self.ca_file = folder / "ca.crt"
        if tls_name:
            self._encrypt(tls_name)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(self._kubeconfig())

    def _encrypt(self, name: str) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    def _kubeconfig(self) -> str:
        authority = {"certificate-authority": str(self.ca_file)}
        cluster = {"server": self.url, **(authority if self.url.startswith("https") else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "current-context": "c",
        }
        return yaml.safe_dump(config)

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with self.changed:
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # ---- what tests do ---------------------------------------------------------------------------

    def fail(
        self,
        how: int | str,
        *verbs: str,
        resource: str = "",
        names: Iterable[str] = (),
        times: int = 1_000_000,
    ) -> None:
        """Let requests fail, of these verbs, this resource and these names, or all; what failed
        before does not any more.
        """
        self.heal()
        found = failures.failing(str(how), verbs, resource, tuple(names), times)
        self.trouble = lambda call: found(call.verb, call.resource, call.name)

    def heal(self) -> None:
        """No request fails any more; those that hang end without an answer."""
        with self.lock:
            self.trouble = _none
            self._healed.set()
            self._healed = threading.Event()

    def deliver(self) -> list[int]:
        """Execute what was late, as a slow API server does: the codes, which no client reads."""
        with self.lock:
            late, self.late = self.late, []
            return [self.answer(one).code for one in late]

    # ---- the server ------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Connection(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a head and a body are two packets

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with contextlib.suppress(OSError):
                    api.serve(self, body)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Connection

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        call = self.call_of(handler.command, handler.path, handler.headers, body)
        with self.lock:
            self.requests[call.verb, call.resource] += 1
            how = self.trouble(call)
            healed, self.failures = self._healed, self.failures + bool(how)
            if how == LATE:
                self.late.append(call)
            executed = not how or how.startswith(AFTER)
            answer: Answer | None = self.answer(call) if executed else None
            how = how.removeprefix(AFTER)
            if how:
                others = self.objects[call.resource.partition("/")[0]].values()
                answer = failures.wrong_answer(how, next(reversed(others), {}))
            if how == failures.HANG:
                self.hanging()
        if answer is None:
            failures.disturb(handler, how, healed, self.ended)
        else:
            self._send(handler, answer)

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.send_response(answer.code)
        handler.send_header("Content-Type", answer.media)
        if answer.code == 429:
            handler.send_header("Retry-After", self.retry_after)
        if answer.stream is None:
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            handler.wfile.write(answer.body)
            return
        handler.close_connection = True
        handler.send_header("Connection", "close")
        handler.end_headers()
        for part in answer.stream:
            handler.wfile.write(part)
            handler.wfile.flush()


def _none(_: Call) -> str:
    return ""
