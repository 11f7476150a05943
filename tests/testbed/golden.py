"""The golden exposition: every series of `testbed.wholenode`, in tests/data/golden.prom. It covers
the probes that run there; `make golden` names the others.

A line is a series and its value; `*` where the value is a moment, a duration or this machine's.
`make golden` writes the file: `git diff` shows what a change exposes more, less or otherwise.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from nodevitals import probes
from testbed.node import ROOT, Node, wait_until
from testbed.wholenode import runs, whole_node

FILE = ROOT / "tests/data/golden.prom"
# Each target runs so many times more before a difference is a failure: on a busy machine a run may
# miss its deadline.
MORE_RUNS = 3
# Moments and durations; counts of what the agent does; what the machine of the test has.
MOVING = re.compile(
    r"nodevitals_("
    r"\w*_timestamp_seconds|probe_duration_seconds|peer_(round_trip|login)_seconds|node_time_seconds"
    r"|mount_(read|write|step)_seconds|ascend_tool_seconds_total"
    r"|probe_runs_total|kubernetes_requests_total|history_rows|worker_processes"
    r"|node_clock_\w+|node_cpus|node_threads_maximum|node_file_descriptors_maximum"
    r"|mount_(size|free)_bytes|mount_inodes(_free)?"
    r")|process_\w+"
)
# Labels that differ from machine to machine.
LABELS = (
    (re.compile(r"-8333-[0-9a-f]{12}"), "-8333-000000000000"),
    (re.compile(r'(peer="127\.0\.0\.1",port)="\d+"'), r'\1="*"'),
    (re.compile(r'(namespace="slurm",owner)="[^"]*"'), r'\1="*"'),
)
# Families of which one kind of label does.
LABELS_OF = {
    "nodevitals_build_info": re.compile(r'(version)="[^"]*"'),
    "nodevitals_profile_check_info": re.compile(r'(found)="[^"]*"'),
}
Exposition = dict[str, list[str]]


def exposition(node: Node) -> Exposition:
    """The lines of each family that is exposed now."""
    found: Exposition = defaultdict(list)
    for (name, pairs), value in node.samples().items():
        labels = ",".join(f'{label}="{text}"' for label, text in sorted(pairs))
        labels = labels.replace(str(node.folder), "/machine")
        for pattern, replacement in LABELS:
            labels = pattern.sub(replacement, labels)
        if name in LABELS_OF:
            labels = LABELS_OF[name].sub(r'\1="*"', labels)
        shown = "*" if MOVING.fullmatch(name) else f"{value:.12g}"
        found[name].append(f"{name}{{{labels}}} {shown}")
    return {name: sorted(lines) for name, lines in sorted(found.items())}


def read() -> Exposition:
    """The lines of each family in the file."""
    found: Exposition = defaultdict(list)
    for line in FILE.read_text().splitlines():
        found[line.partition("{")[0]].append(line)
    return dict(found)


def covered(exposed: Exposition) -> set[str]:
    """The names of the probes that ran."""
    text = "\n".join(exposed["nodevitals_probe_success"])
    return probes.registered().keys() & set(re.findall(r'probe="(\w+)"', text))


def differences(expected: Exposition, exposed: Exposition) -> dict[str, list[str]]:
    """What is missing (-) and what is new (+) of each family that differs."""
    return {
        name: [
            *(f"- {line}" for line in sorted(set(before) - set(after))),
            *(f"+ {line}" for line in sorted(set(after) - set(before))),
        ]
        for name in sorted({*expected, *exposed})
        for before, after in [(expected.get(name, []), exposed.get(name, []))]
        if before != after
    }


def settled_differences(node: Node) -> dict[str, list[str]]:
    """The differences from the file, once there are none or each target has run again."""
    expected = read()
    last = min(runs(node)) + MORE_RUNS

    def is_settled() -> bool:
        return not differences(expected, exposition(node)) or min(runs(node)) >= last

    with suppress(AssertionError):  # the differences say more
        wait_until(is_settled)
    return differences(expected, exposition(node))


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder, whole_node(Path(folder)) as node:
        last = min(runs(node)) + MORE_RUNS
        wait_until(lambda: min(runs(node)) >= last)
        exposed = exposition(node)
    FILE.write_text("".join(f"{line}\n" for lines in exposed.values() for line in lines))
    others = sorted(probes.registered().keys() - covered(exposed))
    print(f"{FILE.name} written, without the probes {', '.join(others)}: not in wholenode.py")


if __name__ == "__main__":
    main()
