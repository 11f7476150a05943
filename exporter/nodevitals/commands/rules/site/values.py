"""The values file of `nodevitals rules render`: YAML text in, typed values out.

Its scrape job and the URL of the runbooks are inserted into the text of rules and tests.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Optional, cast

import msgspec

from nodevitals.document import Problem, SettingsDocument, convert
from nodevitals.quantities import Spelling, parse_duration, shown

JOB = "nodevitals"
RUNBOOK_BASE = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks/"


def _parse_wait(text: object) -> float:
    """Seconds from `5m` and from `0s`, which is no wait. Raises ValueError."""
    if text == "0s":
        return 0.0
    seconds = parse_duration(text)
    if round(seconds * 1000) != seconds * 1000:
        raise ValueError(f"{shown(text)} is not a whole number of milliseconds")
    return seconds


Wait = Annotated[float, Spelling(_parse_wait)]


class AlertValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs for one alert; what is not named stays as shipped."""

    enabled: bool = True
    """Whether the alert exists."""
    severity: Optional[Literal["critical", "warning", "info"]] = None
    """critical notifies the on-call, warning makes a ticket, info is context: no
    notification."""
    wait: Optional[Wait] = None
    """Time that the condition must hold before the alert fires (`for`); 0s: none."""
    keep_firing_for: Optional[Wait] = None
    """Time that the alert continues to fire after the condition; 0s: none."""
    labels: dict[str, str] = {}
    """Additional labels of this alert."""


class PoolValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs for the nodes of one pool."""

    thresholds: dict[str, float] = {}
    """Thresholds of the pool's nodes."""


class Values(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    job: str = JOB
    """Name of the scrape job of the agents."""
    runbook_base: str = RUNBOOK_BASE
    """URL that the names of the runbooks (NodeCpuHigh.md) are added to."""
    profile: Literal["small", "large"] = "small"
    """`small`: critical faults of devices and nodes notify the on-call. `large`: critical alerts of
    single devices and nodes are tickets (severity warning), and automation acts on the node;
    incidents of the fleet notify the on-call."""
    labels: dict[str, str] = {}
    """Additional labels of every alert. Example: `{team: ai-platform}`"""
    thresholds: dict[str, float] = {}
    """Thresholds that differ from those in thresholds.yaml. Example: `{cpu_share: 0.95}`"""
    pools: dict[str, PoolValues] = {}
    """Thresholds of the nodes of a pool, by the label `pool` in the agents' configuration.
    Thresholds for pools: see the list below.
    Example: `{inference: {thresholds: {memory_share: 0.95}}}`"""
    alerts: dict[str, AlertValues] = {}
    """Changes by the name of the alert, or by NAME/SEVERITY where alerts of one name have
    different severities. Keys: enabled, severity (critical, warning, info), wait, keep_firing_for,
    labels.
    Example: `{NodeCpuHigh: {severity: warning, wait: 30m}, OomKill: {enabled: false}}`"""


def convert_values(document: SettingsDocument, problems: list[Problem]) -> Values | None:
    """The values of a document; None where its shape is wrong, with what is added to `problems`."""
    return cast("Values | None", convert(document.values(), Values, "", problems))


# job="nodevitals", or =~"|nodevitals" for this job or none; also in a YAML string with escaped
# quotes.
_MATCHER = re.compile(rf'\bjob(\s*(?:=~|!~|!=|=)\s*\\?"\|?)(?:{JOB})(\\?")')
_KEY = re.compile(rf'\bjob: "?{JOB}"?(?=[,}}\s])')
_PHRASE = re.compile(rf"\b(job must be named ){JOB}\b")


def with_names(text: str, values: Values) -> str:
    """The text with the site's job and runbooks."""
    if values.job != JOB:
        text = _MATCHER.sub(lambda match: f"job{match[1]}{_job(match[1], values)}{match[2]}", text)
        text = _KEY.sub(lambda _: f'job: "{values.job}"', text)
        text = _PHRASE.sub(lambda match: f"{match[1]}{values.job}", text)
    return text.replace(RUNBOOK_BASE, f"{values.runbook_base.rstrip('/')}/")


def _job(operator: str, values: Values) -> str:
    """The job as the operator reads it: a dot matches any character in a regular expression."""
    return values.job.replace(".", "[.]") if "~" in operator else values.job
