"""Every family that the exporter can expose, and every probe that fills them.

The rendered headers, docs/METRICS.md and the contract tests are made from it. The families of a
probe are declared beside the code that fills them; only those of the agent itself are here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

from nodevitals import probes
from nodevitals.probe import Families, Family, Probe
from nodevitals.probes.fabric.families import PUSHED
from nodevitals.state.history import HistoryProbe
from nodevitals.wire import OUTCOMES

_probe = Families("probe", "probe", "target")
PROBE_SUCCESS = _probe.gauge(
    "success", "Whether the last run of the probe succeeded and its samples are fresh."
)
PROBE_DURATION = _probe.gauge("duration_seconds", "Duration of the last run that ended.")
PROBE_INTERVAL = _probe.gauge("interval_seconds", "Configured time between two runs.")
PROBE_LEASE_INTERVAL = _probe.gauge(
    "lease_interval_seconds", "Time between two runs under a lease; missing without one."
)
PROBE_LAST_SUCCESS = _probe.gauge(
    "last_success_timestamp_seconds", "Unix time of the last successful run; missing before it."
)
PROBE_STUCK = _probe.gauge(
    "stuck_seconds", "Seconds since the overdue run started, 0 if no run is overdue."
)
PROBE_UNANSWERED = _probe.gauge(
    "unanswered_seconds",
    "Seconds since the first of two or more timeouts in a row began, else 0; a run that SIGKILL "
    "does not end counts as two.",
)
PROBE_RUNS = _probe.counter("runs_total", "Number of ended runs by outcome.", outcome=OUTCOMES)

_agent = Families("")
NODE_INFO = _agent.gauge(
    "node_info", "Always 1; has the labels of the configuration (rack, rail_group, pool, ...)."
)
BUILD_INFO = _agent.gauge(
    "build_info",
    "Always 1; version of the exporter and of Python.",
    "version",
    "python_version",
)
CONFIG_RELOAD_SUCCESSFUL = _agent.gauge(
    "config_last_reload_successful", "Whether the last configuration load succeeded."
)
CONFIG_RELOAD_TIMESTAMP = _agent.gauge(
    "config_last_reload_success_timestamp_seconds",
    "Unix time of the last successful configuration load.",
)
WORKER_PROCESSES = _agent.gauge(
    "worker_processes",
    "Number of worker processes; stuck ones survived SIGKILL and are not replaced.",
    state=("live", "stuck"),
)
FORK_SERVER_RESTARTS = _agent.counter(
    "fork_server_restarts_total",
    "Number of times the fork server died or stopped responding and was replaced.",
)
LOG_DROPPED = _agent.counter(
    "log_messages_dropped_total", "Number of log messages dropped because the queue was full."
)
HISTORY_DROPPED = _agent.counter(
    "history_rows_dropped_total",
    "Number of history rows dropped because they could not be written in time.",
)
WEB_EVICTED = _agent.counter(
    "web_connections_evicted_total",
    "Number of connections closed over the connection limit or past the request deadline.",
    reason=("cap", "deadline"),
)
PROCESS_CPU = Family(
    name="process_cpu_seconds_total",
    kind="counter",
    help="CPU time of the main process and of all its ended children.",
)
PROCESS_RESIDENT = Family(
    name="process_resident_memory_bytes",
    kind="gauge",
    help="Resident memory of the main process.",
)
PROCESS_START = Family(
    name="process_start_time_seconds", kind="gauge", help="Unix time at which the exporter started."
)

AGENT_FAMILIES = (*_probe, *_agent, PROCESS_CPU, PROCESS_RESIDENT, PROCESS_START)


def probe_class(name: str) -> type[Probe]:
    """The probe of that name, the history's writer included. Raises KeyError."""
    return HistoryProbe if name == HistoryProbe.name else probes.registered()[name]


def _kinds() -> list[type[Probe]]:
    return [*probes.registered().values(), HistoryProbe]


def all_families() -> dict[str, Family]:
    """Every family by name. Raises ValueError where two probes declare a name differently."""
    families: dict[str, Family] = {}
    owned = (family for kind in _kinds() for family in kind.families)
    for family in (*AGENT_FAMILIES, *PUSHED, *owned):
        if families.setdefault(family.name, family) != family:
            raise ValueError(f"family {family.name} is declared twice, differently")
    return dict(sorted(families.items()))


def hub_families() -> dict[str, Family]:
    """The families of the hub by name; none where its package is not installed."""
    if importlib.util.find_spec("nodevitals_hub") is None:
        return {}
    module = importlib.import_module("nodevitals_hub.families")
    return {family.name: family for family in module.HUB_FAMILIES}


def state_types() -> dict[str, Any]:
    """The States of the persistent probes, by the probe's name."""
    return {kind.name: kind.State for kind in _kinds() if kind.persistent and not kind.unusable}


def preload() -> None:
    """Import what workers need, except a site's own probes, so that forks share it."""
    all_families()
    for name in ("ascii", "idna"):  # for files of the kernel; for each look-up of a host name
        importlib.import_module(f"encodings.{name}")
    _preload(kind for kind in probes.registered().values() if probes.is_own(kind))


def preload_of_site() -> bool:
    """Import what a site's own probes need, never in the agent. Returns whether there are any."""
    kinds = [kind for kind in probes.registered().values() if not probes.is_own(kind)]
    _preload(kinds)
    return bool(kinds)


def _preload(kinds: Iterable[type[Probe]]) -> None:
    for kind in kinds:
        # A probe that cannot preload fails in its own worker, with a traceback.
        with contextlib.suppress(Exception):
            kind.preload()


def owners(of_the_hub: Iterable[str]) -> dict[str, list[str]]:
    """What exposes each family: probes in backticks, the agent, a command, the hub."""
    owners: dict[str, list[str]] = {family.name: ["the agent"] for family in AGENT_FAMILIES}
    owners |= {family.name: ["`fabric collective --push`"] for family in PUSHED}
    owners |= {name: ["the hub"] for name in of_the_hub}
    for kind in _kinds():
        for family in kind.families:
            owners.setdefault(family.name, []).append(f"`{kind.name}`")
    return owners


def markdown(of_the_hub: dict[str, Family]) -> str:
    """docs/METRICS.md: a table per probe, one for what several probes share, and the hub's."""
    owned = owners(of_the_hub)
    sections: dict[str, list[Family]] = {}
    for name, family in sorted({**all_families(), **of_the_hub}.items()):
        sections.setdefault(", ".join(owned[name]), []).append(family)
    lines = [
        "# Metrics",
        "",
        "Made by `nodevitals metrics --format markdown`; do not edit. Braces hold the values that",
        "a label may take; other labels are open.",
    ]
    for owner, families in sorted(sections.items()):
        lines += ["", f"## Exposed by {owner}", "", "| family | kind | labels | help |"]
        lines.append("|---|---|---|---|")
        for family in families:
            names = [label_text(label, family.closed) for label in family.labels]
            labels = ", ".join([*names, "those of the configuration"] if family.open else names)
            lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def label_text(label: str, closed: Mapping[str, tuple[str, ...]]) -> str:
    """A label, with the values that it may take where the list is closed."""
    values = closed.get(label)
    choices = r" \| ".join(values or ())
    return f"{label} {{{choices}}}" if values else label
