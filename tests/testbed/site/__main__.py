"""`python -m testbed.site --rules rules --port 19091`: a simulated fleet in a real Prometheus."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from testbed.site import Site


def main() -> None:
    """Start, print the address, and stop after some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=Path, help="folder of rules; none without it")
    parser.add_argument("--port", type=int, default=19090)
    parser.add_argument("--step", type=int, default=15, help="scrape interval in seconds")
    parser.add_argument("--minutes", type=float, default=50)
    for option in ("faults", "pods", "cluster"):
        parser.add_argument(f"--{option}", action=argparse.BooleanOptionalAction, default=True)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Site(
            Path(folder),
            rules=given.rules and given.rules.resolve(),
            port=given.port,
            step=given.step,
            faults=given.faults,
            pods=given.pods,
            cluster=given.cluster,
        ) as site,
    ):
        print(site.url, flush=True)
        time.sleep(given.minutes * 60)


if __name__ == "__main__":
    main()
