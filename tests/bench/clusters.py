"""Series that a cluster sends to a central Prometheus: of the simulated fleet, by kind.

The fleet has twelve nodes with GPUs and four with NPUs, of which a dozen have faults.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.clusters import STEP, ask, latest, travelling
from testbed.node import ROOT
from testbed.site import Site
from testbed.site.names import GPU_NODES, NPU_NODES

sys.path.insert(0, str(ROOT))
from dashboards import central

_NODES = GPU_NODES + NPU_NODES


def main(folder: Path) -> None:
    """Count and print."""
    print("| series | healthy | per node | with faults | per node |\n|---|---:|---:|---:|---:|")
    counts = [_counted(folder / name, name == "faulty") for name in ("healthy", "faulty")]
    for title in counts[0]:
        cells = [f"{one[title]:,} | {one[title] / _NODES:.1f}" for one in counts]
        print(f"| {title} | {' | '.join(cells)} |")


def _counted(folder: Path, faults: bool) -> dict[str, int]:
    site = Site(folder, ROOT / "rules", step=STEP, cluster=False, faults=faults)
    with site:
        now = site.prometheus.filled_until
        sent = travelling("east", latest(site.url, '{__name__!=""}', now))
        names = [dict(labels)["__name__"] for labels in sent]
        every = ask(site.url, 'count({__name__!=""})', now)[0]["value"][1]
    found = {kind.title: sum(name in kind.names for name in names) for kind in central.KINDS}
    return found | {"all that is sent": len(names), "in the cluster's server": int(every)}
