"""1,000 resources Check created at once: each is checked once, and says so."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from bench.measure import table
from testbed.hub import HubProcess
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import wait_until

COUNT = 1000
PAIRS = 64
LIMIT_SECONDS = 600.0


def main(folder: Path) -> None:
    """Print the table; a resource that is checked twice, or never, ends it with AssertionError."""
    nodes = [f"gpu-{number}" for number in range(2 * PAIRS)]
    with CheckApi(folder) as api:
        hub = HubProcess(
            folder,
            simulated=True,
            nodes={"static": [{"targets": nodes}]},
            resources={"enabled": True},
            limits={"queued": COUNT, "running": PAIRS},
        )
        hub.environment = {"KUBECONFIG": str(api.kubeconfig), "RUN_SECONDS": "0.01"}
        names = [f"check-{number}" for number in range(COUNT)]
        with hub:
            began = time.monotonic()
            for number, name in enumerate(names):
                pair = 2 * (number % PAIRS)
                spec = {"kind": "pair", "nodes": nodes[pair : pair + 2]}
                api.create(name, {**spec, "test": {"device": "mlx5_0"}})
            wait_until(lambda: set(api.phases()) == {"Done"}, LIMIT_SECONDS, "all verdicts")
            took = time.monotonic() - began
            checked = Counter(one.requester.name for one in hub.list(limit=COUNT + 1))
    assert checked == Counter(f"ops/{name}" for name in names)
    assert api.invalid == []
    rows = [
        ["until each has its verdict", f"{took:.1f} s"],
        ["writes of a status per resource", f"{api.count('patch') / COUNT:.1f}"],
        ["lists and watches", str(api.count("list") + api.count("watch"))],
    ]
    table([f"{COUNT} resources at once", "measured"], rows)
