"""The whole pipeline on this machine: agents, Prometheus, Alertmanager, a webhook, and faults.

In: nothing but this checkout. Out: a table of the faults and of the alerts that reached the
webhook. All files are in .demo/, all servers listen on loopback, all mounts are in a private mount
namespace, and everything ends with this process. `--once`: one scripted tour; exit 0 only if every
alert arrived and resolved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from contextlib import ExitStack

from demo import ROOT
from demo.faults import all_faults
from demo.pipeline import Pipeline
from demo.report import STARTING, print_addresses, print_verdict
from demo.tour import interact, tour

FOLDER = ROOT / ".demo"


def run(once: bool) -> int:
    """Run the tour, then the menu unless `once`; 0 when every alert arrived."""
    with ExitStack() as stack:
        print(STARTING, flush=True)
        pipeline = Pipeline(stack, FOLDER)
        print_addresses(pipeline)
        pipeline.wait_until_healthy()
        faults = all_faults(pipeline)
        complete = tour(faults, pipeline.receiver)
        print_verdict(complete)
        if not once:
            interact(faults, pipeline.receiver)
        return 0 if complete else 1


def main() -> int:
    """Run the demo and remove its files; 2 outside a private mount namespace."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--once", action="store_true", help="run one scripted tour and exit")
    once = parser.parse_args().once
    if "PRIVATE_MOUNTS" not in os.environ:
        print(
            "start it with `make demo`: it mounts over /mnt, in a mount namespace of its own",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        return run(once)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
