"""A public trace of faults, replayed: what people would have been notified of, and how soon.

`python -m tests.bench replay` plays every situation of the trace and writes the table into
docs/alerts.md; tests/e2e/test_replay.py plays one fault of each kind.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testbed.alerting import trace_repeats
from testbed.alerting.replay import Plan, Played, plan_runs, play
from testbed.alerting.trace import (
    FLEET_DAYS,
    FLEET_FAULTS,
    FLEET_SERVERS,
    Fault,
    days_since_return,
    faults,
)
from testbed.alerting.trace_kinds import KINDS
from testbed.node import ROOT

PAGE = ROOT / "docs/alerts.md"
BEGIN, END = "<!-- replay -->\n", "<!-- end of replay -->\n"
SHIFTS_PER_DAY = 2
SHIFT_LIMIT = 2
Results = dict[Fault, Played]
INTRODUCTION = """
Made by `python -m tests.bench replay`: {faults} faults of a fleet of {servers} GPU servers in
{days} days ([origin and licence](../tests/data/server-faults/README.md)), with the rules and
routes as shipped. `tests/testbed/alerting/trace_kinds.py` has what a node exposes for each kind;
where the trace leaves that open, it is the lesser. {shown} of the faults are of kinds that the
agent can show.

They are played in {runs} runs, each on one of {nodes} nodes of a cluster of its own. Faults of one
kind and length (in fives of minutes, at most {longest:.0f}) share up to {phases} runs, which begin
at different places between two scrapes and two runs of the probe. A repair that needs a reboot is
marked as planned work. All rules are evaluated every 15 s, with each scrape: in a real Prometheus,
a notification comes up to 15 s later.

`page`, `ticket`, `neither`: faults whose first notification is that one; `median` and `95th
percentile`: from the fault to it, with the alert's own wait; `pages` and `tickets` per fault.
"""


def main(folder: Path) -> None:
    """Print the section and write it into the page."""
    began = time.monotonic()
    found, plan = faults(), Plan()
    runs = plan_runs(found, plan)
    distinct = list(dict.fromkeys(runs.values()))
    played = dict(zip(distinct, play(distinct, plan, folder), strict=True))
    results = {fault: played[run] for fault, run in runs.items()}
    confirmed = [fault for fault, one in results.items() if one.counted]
    marked = trace_repeats.marked(confirmed, folder / "repeats")
    section = "\n".join(
        [
            *_introduction(found, results, list(played.values()), plan),
            *_table(found, results),
            *_summary(found, results, list(played.values()), plan),
            *_repeats(found, confirmed, marked),
        ]
    )
    print(section)
    for one in played.values():
        for title in one.elsewhere:
            print(f"in the quiet rest: {': '.join(one.run.kind)}: {title}")
    print(f"{time.monotonic() - began:.0f} s of wall time\n")
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + begin + section + "\n" + END + rest.partition(END)[2])


def _introduction(
    found: Sequence[Fault], results: Results, played: Sequence[Played], plan: Plan
) -> Iterator[str]:
    yield INTRODUCTION.format(
        faults=len(found),
        servers=FLEET_SERVERS,
        days=FLEET_DAYS,
        shown=len(results),
        runs=len(played),
        nodes=plan.nodes,
        longest=plan.longest,
        phases=plan.phases,
    )


def _table(found: Sequence[Fault], results: Results) -> Iterator[str]:
    by_kind: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for one in found:
        by_kind[one.kind].append(one)
    yield (
        "| fault | number | shown by | page | ticket | neither | median | 95th percentile "
        "| pages | tickets |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    ordered = sorted(by_kind, key=lambda kind: (not KINDS[kind].play, -len(by_kind[kind])))
    for kind in (one for one in ordered if KINDS[one].play):
        yield _row(": ".join(kind), KINDS[kind].text, [results[one] for one in by_kind[kind]])
    yield _row("**all that can be shown**", "", list(results.values()))
    yield "\nCannot be shown by the agent:\n\n| fault | number | why not |\n|---|---:|---|"
    for kind in (one for one in ordered if not KINDS[one].play):
        yield f"| {': '.join(kind)} | {len(by_kind[kind])} | {KINDS[kind].text} |"


def _row(name: str, text: str, played: Sequence[Played]) -> str:
    first = Counter(_first(one) for one in played)
    seconds = sorted(one.seconds for one in played if one.seconds is not None)
    times = ["", ""]
    if seconds:
        times = [f"{value:.0f} s" for value in (statistics.median(seconds), _high(seconds))]
    pages, tickets = (
        f"{statistics.mean(counts):.2g}"
        for counts in ([one.pages for one in played], [one.tickets for one in played])
    )
    cells = (name, len(played), text, first["page"], first["ticket"], first["neither"])
    return "| " + " | ".join(map(str, (*cells, *times, pages, tickets))) + " |"


def _first(one: Played) -> str:
    if not one.titles:
        return "neither"
    return min(one.titles, key=lambda title: float(title.split()[2])).split()[0]


def _high(seconds: Sequence[float]) -> float:
    """The 95th percentile, by nearest rank."""
    return seconds[math.ceil(0.95 * len(seconds)) - 1]


def _summary(
    found: Sequence[Fault], results: Results, played: Sequence[Played], plan: Plan
) -> Iterator[str]:
    pages = sum(one.pages for one in results.values())
    notified = sum(bool(one.titles) for one in results.values())
    most = max(one.pages for one in played)
    shifts = Counter[int]()
    for fault, one in results.items():
        shifts[int(fault.start_day * SHIFTS_PER_DAY)] += one.pages
    busy = sum(count > SHIFT_LIMIT for count in shifts.values())
    rate = pages / FLEET_DAYS / SHIFTS_PER_DAY
    hours = sum(plan.nodes * plan.seconds - one.run.moment.seconds for one in played) / 3600
    share = f"{100 * notified / len(results):.0f} % of those of kinds that can be shown"
    yield f"\n- Notified: {notified} of {len(found)} faults, {share}."
    yield f"- Pages per fault: {pages / len(results):.2g} on average, at most {most}."
    quiet = Counter(title.split()[0] for one in played for title in one.elsewhere)
    yield (
        "- In the quiet rest (before each fault, from ten minutes after its return, on its "
        f"neighbours; {hours:.0f} node-hours): {quiet['page']} pages, {quiet['ticket']} tickets."
    )
    yield (
        f"- Pages per 12-hour shift at this fleet's rate: {rate:.2f}, at most "
        f"{max(shifts.values())}; more than {SHIFT_LIMIT} (the limit of Google's SRE book) in "
        f"{busy} of {FLEET_DAYS * SHIFTS_PER_DAY} shifts. The file has {len(found)} of the "
        f"{FLEET_FAULTS} faults of the trace; at the same rate, all of them make "
        f"{rate * FLEET_FAULTS / len(found):.2f} pages per shift."
    )


def _repeats(
    found: Sequence[Fault], confirmed: Iterable[Fault], marked: set[Fault]
) -> Iterator[str]:
    gaps = days_since_return(list(confirmed))
    at_once = [one for one, days in gaps.items() if days < 1 / 24]
    later = [one for one in gaps if one not in at_once]
    yield (
        f"- Repeats: {len(days_since_return(list(found)))} faults follow another one on the same "
        f"server within a week of its return; in {len(gaps)} of these pairs, the agent shows both "
        f"and they take the node out of service. {len(at_once)} return within an hour, as the same "
        f"fault. Of the other {len(later)}, {sum(one in marked for one in later)} have a ticket "
        f"RepeatedFaults beside their own notification; of all other faults, "
        f"{len(marked - set(gaps))} (a week is counted from an hour after the return)."
    )
