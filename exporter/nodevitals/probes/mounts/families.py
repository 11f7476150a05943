"""The families of the probe `mounts`."""

from __future__ import annotations

from nodevitals.probe import Families

STEPS = ("statvfs", "create", "write", "fsync", "open", "read", "list", "delete")
METHODS = ("direct", "dropped", "cached")

metrics = Families("mount", "mountpoint", "fstype", "source")
PRESENT = metrics.gauge(
    "present", "Whether a file system is mounted at the configured mount point."
)
AS_EXPECTED = metrics.gauge(
    "as_expected", "Whether the file system type and the source are the configured ones."
)
READ_ONLY = metrics.gauge("read_only", "Whether the mount or its file system is read-only.")
WRITABLE = metrics.gauge(
    "writable", "Whether the last write, fsync and delete of the probe's own file succeeded."
)
READABLE = metrics.gauge("readable", "Whether the last read or directory listing succeeded.")
CONTENT_INTACT = metrics.gauge(
    "content_intact", "Whether the data that was read back equals the data that was written."
)
MISMATCHES = metrics.counter(
    "content_mismatches_total",
    "Number of runs in which the data that was read back differed from the data written.",
)
WRITE_SECONDS = metrics.gauge(
    "write_seconds", "Time to create, write and fsync the probe's own file."
)
READ_SECONDS = metrics.gauge(
    "read_seconds", "Time to open and read a file, or to list the directory."
)
STEP_SECONDS = metrics.gauge(
    "step_seconds", "Duration of each step that the last run completed.", step=STEPS
)
READ_METHOD = metrics.gauge(
    "read_method_info",
    "Always 1; how the read bypassed the page cache: O_DIRECT (direct), by dropping the file's "
    "pages (dropped), or not at all (cached).",
    method=METHODS,
)
SIZE = metrics.gauge("size_bytes", "Size of the file system.")
FREE = metrics.gauge("free_bytes", "Space available to unprivileged users.")
INODES = metrics.gauge(
    "inodes", "Number of inodes of the file system; missing where it has no fixed number."
)
INODES_FREE = metrics.gauge("inodes_free", "Number of free inodes.")
