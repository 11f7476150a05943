"""Draws the picture of docs/hub.md: a check of all pairs, as a browser shows it.

`python -m demo.hub_picture [FILE]` starts the cluster of the demo, a check of it, and a browser of
.tools, which `make setup` fetches.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import requests

from demo import ROOT, hub
from testbed.browser import Browser

IDENTITY = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{6}")
WIDTH, HEIGHT = 1100, 900


def main() -> int:
    """Draw it."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures/hub.png"
    with tempfile.TemporaryDirectory() as folder, hub.begun(Path(folder) / "hub") as cluster:
        if cluster is None or not cluster.ready() or not cluster.check():
            return 1
        with Browser(WIDTH, HEIGHT) as browser:
            listed = requests.get(f"{cluster.url}/api/v1/checks?limit=1", timeout=10)
            identity = IDENTITY.search(listed.text)
            assert identity is not None, listed.text
            browser.open(f"{cluster.url}/checks/{identity[0]}")
            browser.picture(path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
