"""The cluster of the demo: a hub and eight agents in network namespaces, behind one port.

`python -m demo.cluster FOLDER DESCRIPTOR` runs in namespaces of its own, which end with it, and
relays what arrives at the listening socket of that descriptor, of the machine's network, to the
hub. In: `slow NODE` and `heal NODE` as lines; the end of the input ends it. Out: `ready`, or why
not, in one line.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.hubcluster import LINK_RATE, SLOW_RATE, HubCluster

SLOW_NODE = "gpu-7"
PIECE = 1 << 16
LONGEST_CONNECTION_SECONDS = 600.0


def relay(listener: socket.socket, port: int) -> None:
    """Connect each client to a port of this network."""
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", port), 10)
        except OSError:
            client.close()
            continue
        for source, target in ((client, server), (server, client)):
            source.settimeout(LONGEST_CONNECTION_SECONDS)
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(PIECE):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main() -> int:
    """Run until the input ends."""
    folder, listener = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    host, port = listener.getsockname()
    settings: dict[str, Any] = {"access": {"anonymous": "run"}}
    settings["external_url"] = f"http://{host}:{port}"
    try:
        with HubCluster(folder, slow=SLOW_NODE, **settings) as cluster:
            arguments = (listener, cluster.hub.port)
            threading.Thread(target=relay, args=arguments, daemon=True).start()
            print("ready", flush=True)
            for line in sys.stdin:
                order, _, node = line.strip().partition(" ")
                cluster.fabric.slow(node, SLOW_RATE if order == "slow" else LINK_RATE)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(" ".join(str(error).split())[-300:], flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
