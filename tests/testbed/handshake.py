"""A TLS connection in memory between two Secrets of the chart, which verify each other."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any


def context(secret: dict[str, bytes], folder: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """The context of one side, which asks the other for a certificate."""
    folder.mkdir(exist_ok=True)
    for file, data in secret.items():
        (folder / file).write_bytes(data)
    made = ssl.create_default_context(purpose, cafile=folder / "ca.crt")
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return made


def connect(
    client: dict[str, bytes], server: dict[str, bytes], folder: Path, name: str
) -> dict[str, Any]:
    """The certificate of the client, as the server sees it. Raises SSLError where one refuses."""
    asking = context(client, folder / "client", ssl.Purpose.SERVER_AUTH)
    asked = context(server, folder / "server", ssl.Purpose.CLIENT_AUTH)
    upwards, downwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = asking.wrap_bio(downwards, upwards, server_hostname=name)
    far = asked.wrap_bio(upwards, downwards, server_side=True)
    waiting = [near, far]
    for _ in range(10):
        for one in list(waiting):
            try:
                one.do_handshake()
                waiting.remove(one)
            except ssl.SSLWantReadError:
                pass
    assert waiting == []
    near.write(b"x")
    assert far.read(1) == b"x"
    certificate = far.getpeercert()
    assert certificate
    return dict(certificate)
