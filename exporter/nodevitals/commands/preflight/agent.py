"""The agent's answer: is it there, are its results fresh, what do they say. Samples in, findings
out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nodevitals.commands.doctor.findings import OK, UNKNOWN, Finding, ago, printable
from nodevitals.commands.doctor.samples import Samples

MAX_AGE_INTERVALS = 3


def freshness_findings(samples: Samples, now: float) -> Iterator[Finding]:
    """Targets that failed or hang, and results that are old: what they look at is unknown. Not
    readable is neither healthy nor lost, and neither is a time that is missing or not a number.
    """
    success = samples.by_target("nodevitals_probe_success")
    last = samples.by_target("nodevitals_probe_last_success_timestamp_seconds")
    interval = samples.by_target("nodevitals_probe_interval_seconds")
    stuck = samples.by_target("nodevitals_probe_stuck_seconds")
    unanswered = samples.by_target("nodevitals_probe_unanswered_seconds")
    bad = 0
    for key in sorted(success):
        name = printable(" ".join(dict.fromkeys(key)), 80)
        age = now - last[key] if key in last else math.nan
        old = not age <= MAX_AGE_INTERVALS * interval.get(key, math.nan)
        problem = ""
        if stuck.get(key):
            problem = f"its process has hung for {ago(stuck[key])}: a driver or a mount"
        elif unanswered.get(key):
            problem = f"no run has ended in time for {ago(unanswered[key])}: a driver or a mount"
        elif old:
            known = math.isfinite(age)
            problem = f"its last good result is {ago(age)} old" if known else "it has no result yet"
        elif success[key] != 1:
            problem = "its last run failed"
        if problem:
            bad += 1
            remedy = f"nodevitals probe {key[0]}; nodevitals doctor"
            yield Finding("probe", UNKNOWN, f"{name}: {problem}", remedy)
    if not success:
        yield Finding("probe", UNKNOWN, "no results", "is it an agent? nodevitals doctor")
    elif not bad:
        yield Finding("probe", OK, f"{len(success)} targets have fresh results")


def profile_findings(samples: Samples) -> Iterator[Finding]:
    """Checks of the profile that are unknown."""
    unknown = [
        labels["check"]
        for labels, _ in samples.values.get("nodevitals_profile_check_info", ())
        if labels.get("wanted") and not labels.get("found")
    ]
    if unknown:
        text = f"unknown: {', '.join(sorted(unknown)[:5])}"
        remedy = "nodevitals profile show: is the driver loaded, is the agent root?"
        yield Finding("profile", UNKNOWN, printable(text), remedy)
