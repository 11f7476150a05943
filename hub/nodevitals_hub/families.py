"""The families of the hub: what checks have found, and how the hub itself does.

`pool` is the pool, or the other labels, by which the nodes of a check were chosen, and empty where
they were named. A series is that of the newest check of its labels.
"""

from __future__ import annotations

from nodevitals.families import Families

KINDS = ("pair", "matrix", "collective", "node")
REASONS = ("hardware", "threshold", "harness", "workload")

checks = Families("check", "pool", "tool", "operation", "device", kind=KINDS)
BANDWIDTH = checks.gauge(
    "bandwidth_bytes_per_second",
    "Median bandwidth in the newest check, of the bus for collectives; missing where it failed.",
    "message_bytes",
)
BANDWIDTH_BASELINE = checks.gauge(
    "baseline_bandwidth_bytes_per_second",
    "Median of up to eight such checks before the newest one that gave a result.",
    "message_bytes",
)
LATENCY = checks.gauge(
    "latency_seconds",
    "Median latency in the newest check; missing where it failed.",
    "message_bytes",
)
LATENCY_BASELINE = checks.gauge(
    "baseline_latency_seconds",
    "Median of up to eight such checks before the newest one that gave a result.",
    "message_bytes",
)
OUTCOME = checks.gauge(
    "outcome",
    "Always 1; outcome of the newest check, and its reason where that is not ok.",
    outcome=("ok", "bad", "unknown"),
    reason=("", *REASONS),
)
PAGE = checks.gauge(
    "page_info",
    "Always 1; address of the newest check's page. Missing where the hub has no external_url.",
    "page",
)
END = checks.gauge("end_timestamp_seconds", "Unix time at which the newest check ended.")
DURATION = checks.gauge("duration_seconds", "Duration of the newest check.")
FINDING = checks.gauge(
    "finding_ratio",
    "Figure of a node, a link or a rail that the newest check found bad, over the usual one; "
    "0 where there is no figure. At most 32 per check.",
    "subject",
    level=("node", "link", "rail"),
    reason=REASONS,
)

totals = Families("check")
ENDED = totals.counter(
    "ended_total",
    "Number of checks that have ended since the hub was started, by kind, outcome and reason.",
    kind=KINDS,
    outcome=("ok", "bad", "unknown", "canceled"),
    reason=("", *REASONS),
)

schedules = Families("check_schedule", "schedule")
SCHEDULE_INTERVAL = schedules.gauge("interval_seconds", "Configured time between two starts.")
SCHEDULE_LONGEST = schedules.gauge(
    "longest_interval_seconds", "Longest time between two starts, by interval and window."
)
SCHEDULE_ENABLED = schedules.gauge(
    "enabled_timestamp_seconds", "Unix time since which the hub has the schedule with its interval."
)
SCHEDULE_SUCCESS = schedules.gauge(
    "last_success_timestamp_seconds",
    "Unix time at which the last check of the schedule with a result ended; missing before it.",
)
SCHEDULE_NEXT = schedules.gauge(
    "next_timestamp_seconds", "Unix time of the next start, where it is known."
)

hub = Families("hub")
BUILD = hub.gauge("build_info", "Always 1; version of the hub.", "version")
ADDRESS = hub.gauge(
    "address_info",
    "Always 1; address of the hub's pages. Missing where the hub has no external_url.",
    "url",
)
CHECKS = hub.gauge("checks", "Number of checks that wait or run.", phase=("queued", "running"))
NODES = hub.gauge("nodes", "Number of nodes on the hub's lists.")
STORE_BYTES = hub.gauge("store_bytes", "Size of the hub's store on disk.")
LEASED = hub.gauge(
    "leased_nodes",
    "Number of nodes with second-level monitoring; of those that are not reached, the agent did "
    "not reply.",
    state=("active", "refused", "unreachable"),
)

respond = Families("hub")
NOTIFICATION_OUTCOMES = ("sent", "failed", "dropped", "superseded")
NOTIFICATIONS = respond.counter(
    "notifications_total",
    "Number of notifications since the hub was started; failed counts attempts, superseded those "
    "whose place a newer one took before they were sent.",
    "channel",
    outcome=NOTIFICATION_OUTCOMES,
)
NOTIFICATIONS_WAITING = respond.gauge(
    "notifications_waiting", "Number of notifications that wait to be delivered.", "channel"
)
NOTIFICATIONS_OLDEST = respond.gauge(
    "notifications_oldest_timestamp_seconds",
    "Unix time at which the oldest notification that waits, or one whose place it took, was "
    "created; missing where none waits.",
    "channel",
)
MESSAGES = respond.counter(
    "messages_total",
    "Number of messages of Alertmanager for people since the hub was started.",
    outcome=("accepted", "repeated", "refused"),
)
ASIDE_KINDS = (
    *("file", "message", "delivery", "incident", "drill", "isolation", "repair", "fact"),
)
SET_ASIDE = respond.gauge(
    "set_aside",
    "Number of files and records of the hub that it could not read or process, and keeps aside.",
    what=ASIDE_KINDS,
)
SET_ASIDE_NEWEST = respond.gauge(
    "set_aside_timestamp_seconds",
    "Unix time at which the hub set aside the newest of them; missing where there is none.",
    what=ASIDE_KINDS,
)
SEVERITIES = ("critical", "warning", "info")
INCIDENTS = respond.gauge(
    "incidents",
    "Number of incidents that are not resolved.",
    severity=SEVERITIES,
    state=("open", "acknowledged"),
)
INCIDENTS_OPENED = respond.counter(
    "incidents_opened_total",
    "Number of incidents opened since the hub was started; drills are not counted.",
    severity=SEVERITIES,
)
INCIDENTS_ACKNOWLEDGED = respond.counter(
    "incidents_acknowledged_total",
    "Number of incidents acknowledged since the hub was started.",
    severity=SEVERITIES,
)
INCIDENTS_RESOLVED = respond.counter(
    "incidents_resolved_total",
    "Number of incidents resolved since the hub was started.",
    severity=SEVERITIES,
)
INCIDENTS_MARKED = respond.counter(
    "incidents_marked_total",
    "Number of incidents that people marked as a false alarm, or as none, since the hub was "
    "started; one whose mark is changed counts again.",
    severity=SEVERITIES,
    false_alarm=("true", "false"),
)
ACKNOWLEDGE_SECONDS = respond.counter(
    "incident_acknowledge_seconds_total",
    "Sum of the times from the opening to the acknowledgement of incidents.",
    severity=SEVERITIES,
)
REPAIR_SECONDS = respond.counter(
    "incident_repair_seconds_total",
    "Sum of the times from the opening to the end of incidents.",
    severity=SEVERITIES,
)
TARGETS_MISSED = respond.counter(
    "incident_targets_missed_total",
    "Number of incidents acknowledged or resolved later than the site's target.",
    severity=SEVERITIES,
    target=("acknowledge", "repair"),
)
drills = Families("hub", "node", "fault", "component", severity=SEVERITIES)
DRILL = drills.gauge(
    "drill", "Always 1; a drill that lasts: a fault that is raised in alerts only."
)

isolations = Families("hub")
ISOLATIONS = isolations.gauge(
    "isolations",
    "Number of nodes that the hub takes out of service, or has refused to, by pool of the nodes' "
    "lists.",
    "pool",
    state=("waiting", "refused", "isolated", "testing", "kept"),
    dry_run=("true", "false"),
)
ISOLATION_DECISIONS = isolations.counter(
    "isolation_decisions_total",
    "Number of decisions about nodes since the hub was started, by the state that they led to.",
    outcome=("isolated", "kept", "refused", "returned", "canceled", "ended"),
    dry_run=("true", "false"),
)
ISOLATION_BREAKER = isolations.gauge(
    "isolation_breaker_open",
    "1 while no node is taken out of service because many nodes have got a fault; else 0. In a "
    "dry run, only that of dry_run=true is ever 1.",
    dry_run=("true", "false"),
)
ISOLATION_PROBLEMS = isolations.gauge(
    "isolation_problems",
    "Number of isolations that wait for the scheduler, by why; the search for marks counts as one. "
    "foreign_mark: number of nodes with a mark that no isolation of this hub has.",
    reason=("unreachable", "refused", "conflict", "foreign_mark"),
)
ISOLATION_ANSWER_AGE = isolations.gauge(
    "isolation_answer_age_seconds",
    "Time since Prometheus' last answer by which the hub could decide, or since the hub's start.",
)
ACTIONS = ("none", "investigate", "restart_app", "reset_device", "reboot_node", "replace")
REPAIRS = isolations.counter(
    "repairs_total",
    "Number of repairs of nodes out of service since the hub was started, by action of the fault; "
    "each is counted when it is started, and when it ends.",
    action=ACTIONS,
    outcome=("started", "succeeded", "failed", "timed_out", "unknown", "canceled", "dry_run"),
)
REPAIRS_RUNNING = isolations.gauge(
    "repairs_running", "Number of repairs that run, or are to be started.", action=ACTIONS
)
REPAIRS_FAILED = isolations.gauge(
    "repairs_failed",
    "Number of nodes that are still out of service after a repair that failed, did not end in time "
    "or whose end is unknown.",
    action=ACTIONS,
)

HUB_FAMILIES = (*checks, *totals, *schedules, *hub, *respond, *drills, *isolations)
