"""The families of the probe `scripts`."""

from __future__ import annotations

from nodevitals.probe import Families

STATUSES = ("ok", "warning", "critical", "unknown")
FAILURES = ("timeout", "signal", "status", "output")
UNITS = ("none", "seconds", "ratio", "bytes")
FILE_STATES = ("run", "new", "removed", "not_executable", "refused")
TEXTFILE_STATES = ("read", "stale", "unreadable", "refused")
REFUSALS = ("name", "invalid", "duplicate", "limit")

metrics = Families("scripts")
STATUS = metrics.gauge(
    "status",
    "Whether the last run of the script ended with this status.",
    "script",
    status=STATUSES,
)
FAILURES_TOTAL = metrics.counter(
    "failures_total",
    "Number of runs without a status of the script's own: ended at the deadline (timeout) or by a "
    "signal, an exit status that means nothing (status), or a failure without its line (output).",
    "script",
    reason=FAILURES,
)
VALUE = metrics.gauge(
    "value", "Value of the script's performance data, in base units.", "script", "label", unit=UNITS
)
COUNT = metrics.counter(
    "count_total", "Counter of the script's performance data (unit c).", "script", "label"
)
UNREADABLE = metrics.counter(
    "unreadable_values_total",
    "Number of items of performance data that are not valid, or too many.",
    "script",
)
DISCARDED = metrics.gauge(
    "discarded_bytes", "Bytes of the last run's output beyond what is read.", "script"
)
FILES = metrics.gauge(
    "files",
    "Number of files in the folder of scripts: run, added since the configuration was loaded "
    "(new), removed since then, not executable, or refused for their name or number.",
    "folder",
    state=FILE_STATES,
)

TEXTFILES = metrics.gauge(
    "textfiles",
    "Number of text files in the folder: read, older than max_age (stale), unreadable, or refused "
    "because there are too many.",
    "folder",
    state=TEXTFILE_STATES,
)
TEXTFILE_REFUSED = metrics.gauge(
    "textfile_refused_lines",
    "Number of lines of the folder's text files that are not exposed: a name without an allowed "
    "prefix, not valid, twice, or over max_series.",
    "folder",
    reason=REFUSALS,
)
TEXTFILE_VALUE = metrics.open_gauge(
    "textfile_value", "Value of a text file, with the labels that it has there.", "metric"
)

# Metrics of the NCCL Inspector, per GPU (one per rank): https://github.com/NVIDIA/nccl/tree/master/plugins
RANK_LABELS = (
    "uuid",
    "gpu",
    "host",
    "slurm_job",
    "communicator",
    "nodes",
    "ranks",
    "message_size",
)
COLLECTIVE_LABELS = (*RANK_LABELS, "collective", "algorithm")
P2P_LABELS = (*RANK_LABELS, "operation")
BUS_BANDWIDTH = metrics.gauge(
    "nccl_bus_bandwidth_bytes_per_second",
    "Bus bandwidth of collectives as NCCL Inspector measures it on this GPU: geometric mean.",
    *COLLECTIVE_LABELS,
)
COLLECTIVE_SECONDS = metrics.gauge(
    "nccl_collective_seconds",
    "Mean duration of collectives on this GPU, its waiting for other ranks included; shortest on "
    "the rank that the others wait for.",
    *COLLECTIVE_LABELS,
)
P2P_BANDWIDTH = metrics.gauge(
    "nccl_p2p_bandwidth_bytes_per_second",
    "Bandwidth of sends and receives as NCCL Inspector measures it on this GPU: geometric mean.",
    *P2P_LABELS,
)
P2P_SECONDS = metrics.gauge(
    "nccl_p2p_seconds",
    "Mean duration of sends and receives on this GPU, its waiting for the other side included.",
    *P2P_LABELS,
)
