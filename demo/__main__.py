"""The whole pipeline on this machine: agents, Prometheus, Alertmanager, a webhook, and faults.

In: nothing but this checkout. Out: a table of the faults and of the alerts that reached the
webhook. All files are in .demo/, all servers listen on loopback, all mounts are in a private mount
namespace, and everything ends with this process. `--once`: one scripted tour.
Exit status: 0 every alert arrived and resolved, 1 one did not, 2 the demo cannot run here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from demo import ending


def run(once: bool) -> int:
    """Run the tour, then the menu unless `once`; 0 when every alert arrived."""
    from demo.faults import all_faults
    from demo.menu import interact
    from demo.report import print_addresses, print_verdict
    from demo.start import started
    from demo.tour import tour

    with started() as pipeline:
        print_addresses(pipeline)
        faults = all_faults(pipeline)
        missing = tour(faults, pipeline.receiver)
        print_verdict(missing, once)
        if not once:
            interact(faults, pipeline)
        return 1 if missing else 0


def main() -> int:
    """Run the demo; whatever ends it, no process and no file of it is left."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--once", action="store_true", help="run one scripted tour and exit")
    once = parser.parse_args().once
    with ending.complete():
        try:
            return run(once)
        except ending.DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2
        except ending.Signal as received:
            print(f"\ndemo: ended by {received.name}", file=sys.stderr)
            return 128 + received.number
        except BrokenPipeError:  # as with `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
