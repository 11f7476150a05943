"""A program `scontrol` that keeps nodes in a file, and fails as the file asks.

The file is JSON: `nodes` by name with `state`, `reason` and `cpus`; `fail` is a failure by name;
`calls` has the arguments of each start.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FAILURES = {
    "down": "slurm_load_node error: Unable to contact slurm controller (connect failure)",
    "denied": "slurm_update error: Access/permission denied",
    "name": "slurm_update error: Invalid node name specified",
    "exit": "scontrol: something else",
    "state": "slurm_update error: Invalid node state specified",
}
# Of 22.05.8.
LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=8  CPUAlloc={cpus} CPUEfctv=16 CPUTot=16"
    " CPULoad=0.10 AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:8 NodeAddr={name}"
    " NodeHostName={name} Version=22.05.8 OS=Linux 6.1.0-37-amd64 #1 SMP PREEMPT_DYNAMIC Debian "
    " RealMemory=1 AllocMem=0 FreeMem=17428 Sockets=2 Boards=1 State={state} ThreadsPerCore=1"
    " TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=all  BootTime=2026-11-22T00:31:24"
    " SlurmdStartTime=2026-11-22T01:38:14 LastBusyTime=2026-11-22T01:38:14"
    " CfgTRES=cpu=16,mem=1M,billing=16 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0"
    " ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason}"
)


def main(_: str, path: str) -> None:
    """One start of `scontrol`."""
    words = sys.argv[1:]
    with kept_in(Path(path)) as kept:  # the hub starts several at a time
        kept["calls"].append(words)
    fail = kept.get("fail", "")
    if fail == "hang":
        time.sleep(600)
    if fail == "garbage":
        print("\x00<html>Sign in")
        return
    if fail in FAILURES:
        print(FAILURES[fail], file=sys.stderr)
        sys.exit(1)
    if words[:2] == ["show", "node"] and words[3:] == ["--oneliner"]:
        _show(words[2], kept["nodes"])
    elif words[:1] == ["update"] and words[1].startswith("NodeName="):
        with kept_in(Path(path)) as kept:
            _update(words[1][len("NodeName=") :], words[2:], kept["nodes"])
    else:
        print(f"invalid keyword: {words}", file=sys.stderr)
        sys.exit(1)


@contextmanager
def kept_in(file: Path) -> Iterator[dict[str, Any]]:
    """The content of the file, written back in the end; one program at a time."""
    with file.open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        kept = json.load(stream)
        yield kept
        stream.seek(0)
        stream.truncate()
        json.dump(kept, stream)


def _show(name: str, nodes: dict[str, Any]) -> None:
    if name not in nodes:
        print(f"Node {name} not found")
        sys.exit(1)
    node = nodes[name]
    reason = f" Reason={node['reason']} [root@2026-11-23T03:00:00]" if node["reason"] else ""
    print(LINE.format(name=name, cpus=node["cpus"], state=node["state"], reason=reason))


def _update(name: str, words: list[str], nodes: dict[str, Any]) -> None:
    values = dict(word.split("=", 1) for word in words)
    assert set(values) <= {"State", "Reason"}, words
    reason = values.get("Reason", "")
    assert not set(reason) & set('"\n'), reason
    if name not in nodes:
        print(FAILURES["name"], file=sys.stderr)
        sys.exit(1)
    node = nodes[name]
    if values.get("State") == "DRAIN":
        assert values["Reason"], "You must specify a reason"
        node["state"] = node["state"].partition("+")[0] + "+DRAIN"
    elif values.get("State") == "RESUME":
        if "+" not in node["state"] and not node["state"].startswith("DOWN"):
            print(FAILURES["state"], file=sys.stderr)
            sys.exit(1)
        node["state"], node["reason"] = "IDLE", ""
    else:
        assert "State" not in values, words
    node["reason"] = values.get("Reason", node["reason"])
