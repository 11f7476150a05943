"""What follows an alert: people are notified, the node is taken out of service and comes back.

`python -m demo.respond FOLDER` runs a hub with one GPU node, and prints a table of what happened.
The node is another one than those of the tour, with a Prometheus and an Alertmanager of its own, so
it runs at the same time; the API server and the chats are simulated. In: an empty folder; the end
of the input ends it. Out: `ready`, or why not, in one line; the table; then FOLLOWED or not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import chapter
from demo.report import Table
from testbed.respondcluster import BROKEN, NODE, OWNER, PERSON, RespondCluster

NAME = "what the hub does about alerts"
STARTING = "what the hub does about an alert on another GPU node, begun with the tour"
FOLLOWED, NOT_FOLLOWED = "-- followed", "-- not followed"
CONDITION = "NodevitalsOutOfService"
CHAT = "chat"
_TIMES = ("acknowledged", "resolved")
# Clean, its checks are good, returned.
_STEPS_OF_RETURN = 3


class Response:
    """The chapter, from the side of the demo."""

    def __init__(self, begun: chapter.Chapter) -> None:
        self._chapter = begun

    def show(self) -> bool | None:
        """Print its lines to the end; whether everything happened in time, None where it could not
        start.
        """
        if not self._chapter.ready(STARTING):
            return None
        print(f"{self._chapter.line()}\n", flush=True)
        while (line := self._chapter.line()) not in (FOLLOWED, NOT_FOLLOWED):
            if not line:
                return False
            print(line, flush=True)
        print(flush=True)
        return line == FOLLOWED


@contextmanager
def begun(folder: Path) -> Iterator[Response]:
    """Begin it."""
    with chapter.begun(NAME, "demo.respond", folder) as started:
        yield Response(started)


class Story:
    """The steps, each printed when it is seen."""

    def __init__(self, cluster: RespondCluster) -> None:
        self._cluster = cluster
        self._table = Table()

    def show(self) -> bool:
        """All of it; whether everything happened in time."""
        try:
            for step in (self._notify, self._rehearse, self._isolate, self._return, self._drill):
                step()
        except (AssertionError, OSError) as error:
            self._table.row("MISSING", "", " ".join(str(error).split())[:300])
            return False
        return True

    def _message(self, channel: str, *words: str) -> str:
        title, text = self._cluster.message(channel, *words)
        self._table.row("message", channel, title)
        return text

    def _notify(self) -> None:
        self._table.row("fault", NODE, f"GPU {BROKEN} is lost; a job runs on it")
        self._cluster.gpus.lose(BROKEN)
        text = self._message(CHAT, "lost")
        action = next(line.strip() for line in text.splitlines() if "Action:" in line)
        self._table.row("", "", action.partition(";")[0])
        self._message(OWNER)

    def _rehearse(self) -> None:
        found = self._cluster.isolation("isolated", dry_run=True)
        self._table.row("hub", NODE, found["reason"])
        self._table.row("", "", f"at the API server: cordoned {self._cordoned()}")

    def _isolate(self) -> None:
        self._table.row("person", PERSON, "opens the link of the message, and acknowledges")
        self._cluster.acknowledge(self._cluster.message(CHAT, "lost")[1])
        self._table.row("person", "", "sets dry_run: false, and sends SIGHUP")
        self._cluster.end_dry_run()
        found = self._cluster.isolation("refused", dry_run=False)
        self._table.row("hub", NODE, f"not taken out by itself: {found['reason']}")
        self._table.row("person", "admin", "approves it on the page /isolations")
        self._cluster.approve(found["id"])
        found = self._cluster.isolation("isolated", dry_run=False)
        self._table.row("hub", NODE, found["reason"])
        self._print_node()
        for event in self._cluster.api.of_kind("events"):
            self._table.row("", "", f"Event {event['reason']}: {event['message']}")

    def _return(self) -> None:
        self._table.row("repaired", NODE, f"GPU {BROKEN} answers again")
        self._cluster.gpus.recover(BROKEN)
        self._message(CHAT, "[RESOLVED")
        incident = self._cluster.incident(resolved=True)
        opened = incident["opened"]
        times = [f"{word} after {incident[word] - opened:.0f} s" for word in _TIMES]
        self._table.row("incident", incident["node"], ", ".join(times))
        found = self._cluster.isolation("returned", dry_run=False)
        for step in found["steps"][-_STEPS_OF_RETURN:]:
            self._table.row("hub", NODE, step["text"])
        self._print_node()

    def _drill(self) -> None:
        self._table.row("person", "admin", f"begins a drill: accelerator_lost on {NODE}")
        drill = self._cluster.drill()
        self._message(CHAT, "[DRILL] [FIRING")
        self._table.row("person", "admin", "ends the drill")
        self._cluster.end_drill(drill)
        self._message(CHAT, "[DRILL] [RESOLVED")
        self._table.row("", "", f"at the API server: cordoned {self._cordoned()}")

    def _print_node(self) -> None:
        condition = f"condition {CONDITION} {self._cluster.api.condition(NODE, CONDITION)}"
        text = f"at the API server: cordoned {self._cordoned()}, {condition}"
        self._table.row("", "", text)

    def _cordoned(self) -> str:
        return ", ".join(self._cluster.api.cordoned()) or "no node"


def main() -> int:
    """Run until the input ends."""
    try:
        with RespondCluster(Path(sys.argv[1])) as cluster:
            print("ready", flush=True)
            url = cluster.hub.url
            print(f"  hub           {url}/incidents, /isolations, /notifications", flush=True)
            print(FOLLOWED if Story(cluster).show() else NOT_FOLLOWED, flush=True)
            sys.stdin.read()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(" ".join(str(error).split())[-300:], flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
