"""The commands of the pages on installing and operating, as typed, on fresh machines.

What first_hour does for a new user's pages: these take their own machines, and its time is not
theirs. Writes a transcript to dist/pages.txt. Needs what first_hour needs.
"""

from __future__ import annotations

from pathlib import Path

from bench.first_hour import ROOT, planned, run_machines
from bench.pagesteps import Step, fences

# Each row is one machine: its pages run one after the other.
MACHINES = (
    ("docs/install.md", "docs/hub.md", "docs/operate.md"),
    ("docs/install.md", "docs/own-alert.md"),
    ("docs/air-gapped.md",),
)
PAGES = tuple(page for pages in MACHINES for page in pages)
TRANSCRIPT = ROOT / "dist/pages.txt"
# What a page takes for granted on the machine: the server of docs/first-alert.md.
SERVER = """\
apt-get install -y --no-install-recommends prometheus prometheus-alertmanager
cp -r --backup=numbered site/prometheus/. site/alertmanager/. /etc/prometheus/
systemctl restart prometheus prometheus-alertmanager
sleep 30
"""
# The configuration that docs/hub.md shows, written by an editor.
HUB = """\
cat >/etc/nodevitals/hub.yaml <<'END'
{}END
"""
BEFORE = {"docs/operate.md": SERVER, "docs/own-alert.md": SERVER, "docs/hub.md": HUB}


def plan(pages: tuple[str, ...]) -> list[Step]:
    """Return the steps of one machine."""
    found: list[Step] = []
    for page in pages:
        if page in BEFORE:
            commands = BEFORE[page].format(_hub_configuration())
            found.append(Step(page, "(what is there before)", "sh", commands, not_run=False))
        found += planned(page)
    return found


def _hub_configuration() -> str:
    text = (ROOT / "docs/hub.md").read_text()
    [one] = [one.text for one in fences("docs/hub.md", text) if one.text.startswith("cluster: ")]
    return one


def main(folder: Path) -> None:
    """Run all of them."""
    run_machines(folder, [plan(pages) for pages in MACHINES], TRANSCRIPT)
