"""Prints the output of `nodevitals init`: the hardware, the files, and the next steps."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodevitals.commands.init.expected import Expected
from nodevitals.commands.init.outputs import Site
from nodevitals.commands.init.writer import Outcome
from nodevitals.commands.terminal import print_table

# prometheus.yml explains the flag.
_RESEND_DELAY = (
    'sed -i \'s/^ARGS=""$/ARGS="--rules.alert.resend-delay=3m"/\' /etc/default/prometheus'
)
_TEXTS = {"written": "written", "kept": "kept, the same", "differs": "kept, differs"}


def print_found(expected: Sequence[Expected]) -> None:
    """Print the node's hardware."""
    if expected:
        print_table(("HARDWARE", "FOUND"), [(entry.title, entry.summary) for entry in expected])
        print()


def print_files(folder: str, outcomes: Mapping[str, Outcome], warnings: Iterable[str]) -> None:
    """Print the files by folder, the files that differ, and the warnings."""
    places: dict[str, Counter[str]] = {}
    for path, outcome in outcomes.items():
        top, _, name = path.rpartition("/")
        single = name in ("prometheus.yml", "nodevitals.yml", "alertmanager.yml") or not top
        places.setdefault(path if single else f"{top}/", Counter())[outcome] += 1
    rows = [
        (
            os.path.join(folder, place),
            ", ".join(
                f"{count} {_TEXTS[outcome]}" if place.endswith("/") else _TEXTS[outcome]
                for outcome, count in counts.items()
            ),
        )
        for place, counts in sorted(places.items())
    ]
    print_table(("FILE", "RESULT"), rows)
    differing = [
        os.path.join(folder, path) for path, outcome in outcomes.items() if outcome == "differs"
    ]
    print()
    for path in differing:
        print(f"Differs: {path} is kept; to have that of this run, move it away and run init again")
    for warning in warnings:
        print(f"Warning: {warning}")
    if differing or list(warnings):
        print()


def print_steps(folder: str, site: Site, *, packaged: bool, groups: bool) -> None:
    """Print the commands that lead from these files to a first alert."""
    here, manager = shlex.quote(folder), f"http://{site.alertmanager}"
    print(f"Next steps, as root. On each node, with a copy of {here}:")
    print("  mkdir -p /etc/nodevitals")
    print(f"  cp --backup=numbered {here}/nodevitals.yaml /etc/nodevitals/")
    if not packaged:  # the package has installed it
        print(f"  cp {here}/nodevitals.service /etc/systemd/system/")
    if groups:
        print(f"  cp -r {here}/nodevitals.service.d /etc/systemd/system/")
    print("  systemctl daemon-reload")
    print("  systemctl enable nodevitals && systemctl restart nodevitals")
    print("Health of disks and of network modules needs powerful capabilities, which are off:")
    print(f"  {here}/nodevitals-hardware-health.conf says how to grant them")
    print("On the server with Debian's prometheus and prometheus-alertmanager; prometheus.yml and")
    print("alertmanager.yml are replaced, and those that were there are kept as FILE.~1~:")
    print(f"  cp -r --backup=numbered {here}/prometheus/. /etc/prometheus/")
    print(f"  cp -r --backup=numbered {here}/alertmanager/. /etc/prometheus/")
    print(f"  {_RESEND_DELAY}")
    print("  promtool check config /etc/prometheus/prometheus.yml")
    print("  amtool check-config /etc/prometheus/alertmanager.yml")
    print("  systemctl restart prometheus prometheus-alertmanager")
    print("On a node, whether all of it works, and which alerts fire:")
    print(f"  nodevitals doctor --prometheus {site.prometheus} --alertmanager {manager}")
    print(f"  amtool --alertmanager.url={manager} alert query")
    if not site.webhook:
        print("Messages: none is sent until the receiver `operators`, at the end of")
        print("/etc/prometheus/alertmanager.yml, has an address (mail or webhook). Then:")
        print("  systemctl reload prometheus-alertmanager")
    print("More nodes: list them in /etc/prometheus/targets/nodevitals.yml. Grafana's dashboards:")
    print(f"  cp -r {here}/grafana/. /etc/grafana/ && systemctl restart grafana-server")
