"""`make proof`: all benchmarks, as tables."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import (
    ascend,
    backtest,
    clusters,
    compression,
    dashboards,
    everything,
    fabric,
    first_hour,
    guesses,
    hub,
    hubweb,
    idle,
    isolation,
    latency,
    lease,
    lock_race,
    messages,
    misbehaviour,
    mount_race,
    mutation,
    notifications,
    nvidia,
    pages,
    parsers,
    ports,
    prediction,
    preflight,
    prometheus3,
    python39,
    quiet,
    rendered,
    replay,
    resources,
    rules,
    scenarios,
    scrape,
    targets,
)

if __name__ == "__main__":
    wanted = sys.argv[1:]
    for benchmark in (
        scrape,
        idle,
        everything,
        latency,
        lease,
        lock_race,
        misbehaviour,
        targets,
        guesses,
        mount_race,
        notifications,
        nvidia,
        ascend,
        ports,
        prediction,
        preflight,
        prometheus3,
        python39,
        compression,
        dashboards,
        clusters,
        fabric,
        hub,
        hubweb,
        isolation,
        resources,
        quiet,
        rules,
        rendered,
        replay,
        scenarios,
        backtest,
        mutation,
        messages,
        parsers,
        first_hour,
        pages,
    ):
        name = benchmark.__name__.rpartition(".")[2]
        if not wanted or name in wanted:
            print(f"\n## {name}\n", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                benchmark.main(Path(folder))
