"""The families of the probe `services`."""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.services.processes import WAITS

# ActiveState of org.freedesktop.systemd1(5).
STATES = (
    "active",
    "reloading",
    "refreshing",
    "activating",
    "deactivating",
    "inactive",
    "failed",
    "maintenance",
)

FILESYSTEM = ("mountpoint", "fstype", "source")

units = Families("services")
ACTIVE = units.gauge("unit_active", "Whether the unit is active: started, or reloading.", "unit")
STATE = units.gauge("unit_state", "Always 1; state of the unit.", "unit", state=STATES)
ENABLED = units.gauge(
    "unit_enabled",
    "Whether the unit is started at boot; missing where its file says neither, as a static one's.",
    "unit",
)
EXPECTED = units.gauge(
    "unit_expected",
    "Whether the unit must be active: it is configured so, or enabled and its conditions are met.",
    "unit",
)
RESTARTS = units.counter(
    "unit_restarts_total",
    "Number of times systemd restarted the service by itself (Restart=) while the agent ran.",
    "unit",
)
FAILED = units.gauge("failed_units", "Number of units in state failed, without ignored ones.")

node = Families("node")
READ_ONLY = node.gauge(
    "filesystem_read_only",
    "Whether a local file system that was mounted for writing accepts no writes now: it is "
    "read-only, or the kernel stopped it after an error.",
    *FILESYSTEM,
)
ERRORS = node.gauge(
    "filesystem_errors",
    "Number of errors that a local ext4 file system has recorded since its last check by e2fsck.",
    *FILESYSTEM,
)
ZOMBIES = node.gauge(
    "zombie_processes",
    "Number of processes that ended and that their parents have not waited for, read every two "
    "minutes.",
)
HUNG = node.gauge(
    "hung_processes",
    "Number of processes whose main thread hardly left uninterruptible sleep for hung_after, by "
    "what it waits in; read every two minutes, and in each run while any process sleeps so.",
    wait=WAITS,
)
THREADS = node.gauge("threads", "Number of threads on the node.")
THREADS_MAXIMUM = node.gauge(
    "threads_maximum",
    "Maximum number of threads: the lower one of kernel.threads-max and kernel.pid_max.",
)
metrics = (*units, *node)
