"""Every family that the exporter can expose, and every probe that fills them.

The one source for the rendered headers, docs/METRICS.md and the contract tests. Families of the
probes stand beside the code that fills them; here are only those of the agent itself.
"""

from __future__ import annotations

from nodevitals import probes
from nodevitals.probe import OUTCOMES, Family, Probe
from nodevitals.probes.fabric.families import PUSHED
from nodevitals.state.history import HistoryProbe

_TARGET = ("probe", "target")

PROBE_SUCCESS = Family(
    name="nodevitals_probe_success",
    kind="gauge",
    help="Whether the last run of the probe succeeded and its samples are fresh.",
    labels=_TARGET,
)
PROBE_DURATION = Family(
    name="nodevitals_probe_duration_seconds",
    kind="gauge",
    help="How long the last finished run took.",
    labels=_TARGET,
)
PROBE_INTERVAL = Family(
    name="nodevitals_probe_interval_seconds",
    kind="gauge",
    help="How often the probe is meant to run.",
    labels=_TARGET,
)
PROBE_LAST_SUCCESS = Family(
    name="nodevitals_probe_last_success_timestamp_seconds",
    kind="gauge",
    help="When the probe last succeeded; missing when it never did.",
    labels=_TARGET,
)
PROBE_STUCK = Family(
    name="nodevitals_probe_stuck_seconds",
    kind="gauge",
    help="Since when a run has been past its deadline, counted from its begin; else 0.",
    labels=_TARGET,
)
PROBE_RUNS = Family(
    name="nodevitals_probe_runs_total",
    kind="counter",
    help="Ended runs by how they ended.",
    labels=(*_TARGET, "outcome"),
    closed={"outcome": OUTCOMES},
)
NODE_INFO = Family(
    name="nodevitals_node_info",
    kind="gauge",
    help="Always 1; its labels are those of the configuration (rack, rail_group, pool, ...).",
)
BUILD_INFO = Family(
    name="nodevitals_build_info",
    kind="gauge",
    help="Always 1; the exporter's and the interpreter's version.",
    labels=("version", "python_version"),
)
CONFIG_RELOAD_SUCCESSFUL = Family(
    name="nodevitals_config_last_reload_successful",
    kind="gauge",
    help="Whether the last attempt to load the configuration succeeded.",
)
CONFIG_RELOAD_TIMESTAMP = Family(
    name="nodevitals_config_last_reload_success_timestamp_seconds",
    kind="gauge",
    help="When the configuration in use was loaded.",
)
WORKER_PROCESSES = Family(
    name="nodevitals_worker_processes",
    kind="gauge",
    help="Worker processes now; stuck ones could not be killed and are not replaced.",
    labels=("state",),
    closed={"state": ("live", "stuck")},
)
FORK_SERVER_RESTARTS = Family(
    name="nodevitals_fork_server_restarts_total",
    kind="counter",
    help="How often the fork server died or fell silent and was replaced.",
)
LOG_DROPPED = Family(
    name="nodevitals_log_messages_dropped_total",
    kind="counter",
    help="Log messages dropped because nothing took them off the queue.",
)
HISTORY_DROPPED = Family(
    name="nodevitals_history_rows_dropped_total",
    kind="counter",
    help="History rows dropped because the state directory took none for too long.",
)
WEB_EVICTED = Family(
    name="nodevitals_web_connections_evicted_total",
    kind="counter",
    help="Connections closed early: over the cap, or past the deadline of a request.",
    labels=("reason",),
    closed={"reason": ("cap", "deadline")},
)
PROCESS_CPU = Family(
    name="process_cpu_seconds_total",
    kind="counter",
    help="CPU time of the exporter and of all its ended workers.",
)
PROCESS_RESIDENT = Family(
    name="process_resident_memory_bytes",
    kind="gauge",
    help="Resident memory of the exporter's main process.",
)
PROCESS_START = Family(
    name="process_start_time_seconds",
    kind="gauge",
    help="When the exporter started.",
)

AGENT_FAMILIES = (
    PROBE_SUCCESS,
    PROBE_DURATION,
    PROBE_INTERVAL,
    PROBE_LAST_SUCCESS,
    PROBE_STUCK,
    PROBE_RUNS,
    NODE_INFO,
    BUILD_INFO,
    CONFIG_RELOAD_SUCCESSFUL,
    CONFIG_RELOAD_TIMESTAMP,
    WORKER_PROCESSES,
    FORK_SERVER_RESTARTS,
    LOG_DROPPED,
    HISTORY_DROPPED,
    WEB_EVICTED,
    PROCESS_CPU,
    PROCESS_RESIDENT,
    PROCESS_START,
)


def probe_class(name: str) -> type[Probe]:
    """The probe of that name, the history's writer included. Raises KeyError."""
    return HistoryProbe if name == HistoryProbe.name else probes.registered()[name]


def _kinds() -> list[type[Probe]]:
    return [*probes.registered().values(), HistoryProbe]


def all_families() -> dict[str, Family]:
    """Every family by name. Raises ValueError when two probes declare one name differently."""
    found: dict[str, Family] = {}
    owned = (family for kind in _kinds() for family in kind.families)
    for family in (*AGENT_FAMILIES, *PUSHED, *owned):
        if found.setdefault(family.name, family) != family:
            raise ValueError(f"family {family.name} is declared twice, differently")
    return dict(sorted(found.items()))


def preload() -> None:
    """Import what workers need, so that a fork has it."""
    all_families()
    for kind in probes.registered().values():
        kind.preload()


def markdown() -> str:
    """docs/METRICS.md."""
    owners: dict[str, str] = {family.name: "agent" for family in AGENT_FAMILIES}
    owners |= {family.name: "fabric collective --push" for family in PUSHED}
    for kind in _kinds():
        for family in kind.families:
            known = owners.get(family.name)
            owners[family.name] = f"{known}, {kind.name}" if known else kind.name
    lines = [
        "# Metrics",
        "",
        "Made by `nodevitals metrics --format markdown`; do not edit.",
        "Braces give the values a label may take; other labels are open.",
        "",
        "| family | kind | labels | by | help |",
        "|---|---|---|---|---|",
    ]
    for name, family in all_families().items():
        labels = ", ".join(_label_text(family, label) for label in family.labels)
        lines.append(f"| `{name}` | {family.kind} | {labels} | {owners[name]} | {family.help} |")
    return "\n".join(lines) + "\n"


def _label_text(family: Family, label: str) -> str:
    values = family.closed.get(label)
    choices = r" \| ".join(values or ())
    return f"{label} {{{choices}}}" if values else label
