"""The whole pipeline on this machine: agents, Prometheus, Alertmanager, a webhook, and faults.

In: nothing but this checkout. Out: a table of the faults and of the alerts that reached the
webhook, what a hub does about one alert, and the verdict of a check between eight nodes. All files
are in .demo/, all servers listen on loopback, all mounts are in a private mount namespace, and
everything ends with this process. `--once`: one scripted tour. Exit status: 0 every alert arrived
and resolved, the hub did what it should, and the check named the slow node; 1 something is missing;
2 the demo, or a chapter of it, cannot run here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from demo import ending


def run(once: bool) -> int:
    """Run the tour and, at the same time, what follows an alert; then a check of the hub, then the
    menu unless `once`; 0 when every alert arrived, all followed, and the check named the slow node.
    """
    from demo import hub, respond
    from demo.faults import all_faults
    from demo.menu import interact
    from demo.report import print_addresses, print_more, print_plan, print_verdict
    from demo.start import FOLDER, started
    from demo.tour import tour

    print_plan(once)
    with started() as pipeline, respond.begun(FOLDER / "respond") as response:
        print_addresses(pipeline)
        faults = all_faults(pipeline)
        missing = tour(faults, pipeline.receiver)
        print_verdict(missing)
        with hub.begun(FOLDER / "hub") as cluster:
            followed = response.show()
            if followed is False:
                print("NOT complete: the hub did not do all that an alert asks for")
            running = cluster if cluster is not None and cluster.ready() else None
            found = None if running is None else running.check()
            if found is False:
                print("NOT complete: the check did not name the slow node")
            if once:
                print_more()
            else:
                interact(faults, pipeline, running)
    return exit_status(missing, followed, found)


def exit_status(missing: list[str], *chapters: bool | None) -> int:
    """The verdict, of alerts that are missing and of chapters, None where one is left out."""
    if missing or False in chapters:
        return 1
    return 2 if None in chapters else 0


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
