"""CPU time of an agent while a lease lasts: `network` and eight RDMA ports, each second.

The same agent, first at its default intervals and scraped every 15 s, then under a lease and
scraped every second for these probes.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bench.idle import parts
from bench.measure import Scraper, table
from testbed.loopback import Loopback
from testbed.nics import Machine as NicMachine
from testbed.node import Node, wait_until
from testbed.ordering import HUB_NAME, HUB_TOKEN, OrderClient

SECONDS = 45.0
SETTLE_SECONDS = 8.0
NAME = "127.0.0.2"


def main(folder: Path) -> None:
    """Print the table."""
    (folder / "hub-token").write_text(HUB_TOKEN + "\n")
    hub = {"token_file": str(folder / "hub-token"), "names": [HUB_NAME]}
    with Loopback(folder, 1, hub=hub, tests=[], interval="5s", timeout="5s", slot="10m") as made:
        made.issue(HUB_NAME)
        NicMachine(folder / NAME / "sys", mlx5_infiniband=8)
        node = made.nodes[NAME]
        config = made.config(NAME)
        config["probes"].update({"rdma": {"enabled": "auto"}, "network": {"enabled": "auto"}})
        node.write({**config, "history": {}})
        node.start()
        success = "nodevitals_probe_success"
        wait_until(lambda: node.value(success, probe="rdma"))
        wait_until(lambda: node.value("nodevitals_fabric_members") == 1, 40)
        time.sleep(SETTLE_SECONDS)
        rows = [["default intervals", *_measured(node, 15.0, None)]]
        client = OrderClient(
            NAME, made.proxies[NAME].port, folder / "ca.pem", folder / HUB_NAME, token=HUB_TOKEN
        )
        rows.append(["under a lease", *_measured(node, 1.0, client)])
        runs = [
            node.value("nodevitals_probe_duration_seconds", probe=probe)
            for probe in ("rdma", "network")
        ]
    print(f"CPU time per second over {SECONDS:.0f} s, as a share of one core; scrapes included.")
    print(f"A run of rdma takes {runs[0] or 0:.4f} s, of network {runs[1] or 0:.4f} s.\n")
    table(["agent", "all", "main", "fork server", "runs", "residents"], rows)


def _measured(node: Node, every: float, client: OrderClient | None) -> list[str]:
    body: dict[str, Any] = {"node": NAME, "probes": ["rdma", "network"], "seconds": 60}
    if client is not None:
        status, reply = client.request("PUT", "/fabric/v1/lease", json.dumps(body).encode())
        assert (status, set(reply["states"].values())) == (200, {"active"}), reply
    scraper = Scraper(node.port)
    before, began = parts(node.process.pid), time.monotonic()
    renewed = began
    while time.monotonic() - began < SECONDS:
        scraper.scrape()
        if client is not None and time.monotonic() - renewed > 15:
            client.request("PUT", "/fabric/v1/lease", json.dumps(body).encode())
            renewed = time.monotonic()
        time.sleep(every)
    took, after = time.monotonic() - began, parts(node.process.pid)
    scraper.close()
    used = {part: after[part] - before[part] for part in after}
    return [f"{value / took:.2%}" for value in (sum(used.values()), *used.values())]
