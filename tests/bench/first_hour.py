"""A new user's first hour: the commands of README.md and docs/first-alert.md, timed.

Each page has a fresh Debian of its own. Writes a transcript to dist/first-hour.txt. Needs root,
/dev/net/tun, a Debian mirror and PyPI, and half an hour: the rules wait, and so does the run.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench.measure import table
from bench.pagesteps import Step, missing, steps
from testbed.freshdebian import FreshDebian, RefusedError

ROOT = Path(__file__).parents[2]
TRANSCRIPT = ROOT / "dist/first-hour.txt"
# The root file system is made once; remove the folder for one with newer packages.
CACHE = Path(tempfile.gettempdir()) / "nodevitals-fresh-debian"
PAGES = ("README.md", "docs/first-alert.md")
STEP_SECONDS = 1800
# Of each step's output, in the transcript.
SHOWN_LINES, HEAD_LINES = 70, 10
HOME = "https://github.com/nodevitals/nodevitals"
MARK = "-- first hour: exit status"


@dataclass
class Done:
    """A step that ran."""

    step: Step
    seconds: float
    status: int
    output: str

    @property
    def absent(self) -> list[str]:
        """Lines that the page shows and the output lacks."""
        return missing(self.step.expected, self.output)


class Session:
    """A shell on a machine in which one step after another runs: folder and variables remain."""

    def __init__(self, machine: FreshDebian) -> None:
        self._machine = machine
        self._shell = machine.shell()
        self._steps = 0
        self._say("set -e; [ ! -d ~/nodevitals ] || cd ~/nodevitals")

    def run(self, step: Step) -> Done:
        """Run the commands of a step as far as the first that fails."""
        script = f"/tmp/first-hour-{self._steps}"
        self._steps += 1
        (self._machine.root / script[1:]).write_text(step.commands)
        started = time.monotonic()
        timer = threading.Timer(STEP_SECONDS, self._shell.kill)
        timer.start()
        self._say(f"source {script} </dev/null; echo; echo '{MARK}' $?")
        try:
            output, status = self._read()
        finally:
            timer.cancel()
        return Done(step, time.monotonic() - started, status, output)

    def _say(self, line: str) -> None:
        assert self._shell.stdin
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _read(self) -> tuple[str, int]:
        assert self._shell.stdout
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(MARK):
                return "".join(lines).removesuffix("\n"), int(line.rpartition(" ")[2])
            lines.append(line)
        return "".join(lines), self._shell.wait()


def planned(page: str) -> list[Step]:
    """Return the steps of a page in the order in which a new user takes them."""
    return list(steps(page, (ROOT / page).read_text()))


def main(folder: Path) -> None:
    """Run the pages of a first hour."""
    run_machines(folder, [planned(page) for page in PAGES], TRANSCRIPT)


def run_machines(folder: Path, plans: list[list[Step]], transcript: Path) -> None:
    """Run each plan on a machine of its own, and print what each step took.

    The first step that fails, or shows other lines, is an error.
    """
    transcript.parent.mkdir(exist_ok=True)
    transcript.write_text("")
    done: list[Done] = []
    try:
        for number, plan in enumerate(plans):
            with FreshDebian(folder / str(number), CACHE) as machine:
                _offer_checkout(machine, plan)
                done += _run(machine, plan, transcript)
    except RefusedError as refusal:
        print(f"not run: {refusal}")
        return
    rows = [[one.step.page, one.step.heading, f"{one.seconds:.1f} s"] for one in done]
    rows.append(["", "in all", f"{sum(one.seconds for one in done):.0f} s"])
    table(["page", "step", "time"], rows)
    print(f"\nTranscript: {transcript}")


def _run(machine: FreshDebian, plan: list[Step], path: Path) -> list[Done]:
    session, done = Session(machine), []
    with path.open("a") as transcript:
        transcript.write(_head(machine))
        for step in plan:
            if step.not_run:
                transcript.write(f"\n=== {step.page}: {step.heading}: not run\n{step.commands}")
                continue
            one = session.run(step)
            done.append(one)
            transcript.write(_report(one))
            transcript.flush()
            if one.status or one.absent:
                raise AssertionError(_report(one))
    return done


def _head(machine: FreshDebian) -> str:
    system = machine.run(
        "sh", "-c", ". /etc/os-release; echo $PRETTY_NAME $(cat /etc/debian_version)"
    )
    packages = machine.run("sh", "-c", "dpkg-query -W | wc -l").strip()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, text=True, capture_output=True
    )
    return (
        f"{system.strip()}, {packages} packages, systemd as process 1; the checkout of commit\n"
        f"{commit.stdout.strip()}; one shell of root for all steps.\n"
    )


def _report(one: Done) -> str:
    lines = [f"\n=== {one.step.page}: {one.step.heading}: {one.seconds:.1f} s, exit {one.status}"]
    lines += [f"# {line}" for line in one.step.commands.splitlines()]
    lines += _shortened(one.output.splitlines())
    lines += [f"--- not in the output: {line}" for line in one.absent]
    return "\n".join(lines) + "\n"


def _shortened(lines: list[str]) -> list[str]:
    """Without the middle, where a package manager reports each package."""
    left = len(lines) - SHOWN_LINES
    if left <= 0:
        return lines
    return [*lines[:HEAD_LINES], f"[… {left} lines …]", *lines[HEAD_LINES - SHOWN_LINES :]]


def _offer_checkout(machine: FreshDebian, plan: list[Step]) -> None:
    """Serve HEAD under the address that a page clones, or put it where pages expect it."""
    if any(f"git clone {HOME}" in step.commands for step in plan):
        repository = machine.root / "srv/nodevitals.git"
        clone = [
            "git",
            "clone",
            "--quiet",
            "--bare",
            "--depth=1",
            f"file://{ROOT}",
            str(repository),
        ]
        subprocess.run(clone, check=True)
        configuration = f'[url "/srv/nodevitals.git"]\n\tinsteadOf = {HOME}\n'
        (machine.root / "etc/gitconfig").write_text(configuration)
        return
    target = machine.root / "root/nodevitals"
    target.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-C", target, "-x"], check=True, input=archive.stdout)
