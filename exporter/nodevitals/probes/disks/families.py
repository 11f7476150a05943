"""The families of the probe `disks`."""

from __future__ import annotations

from nodevitals.probe import Families

TRANSPORTS = ("pcie", "ata", "sas", "usb", "fc", "iscsi", "network", "virtio", "other")
OPERATIONS = ("read", "write", "discard", "flush")
TRANSFERS = ("read", "write", "discard")
# Bits 0 to 5 of the byte Critical Warning: NVM Express Base Specification, SMART / Health
# Information log page.
WARNINGS = (
    "spare_low",
    "temperature",
    "reliability_degraded",
    "read_only",
    "backup_failed",
    "memory_region_read_only",
)
# Bits 4 to 7 of the exit status, smartctl(8).
FINDINGS = ("attribute_failing", "attribute_failed_before", "errors_logged", "self_test_failed")
SECTORS = ("reallocated", "pending", "offline_uncorrectable", "grown_defects")
REASONS = (
    "permission",
    "tool_missing",
    "device_file_missing",
    "timeout",
    "hung",
    "gone",
    "io_error",
    "malformed",
)
# https://docs.kernel.org/admin-guide/md.html
ARRAY_STATES = (
    "clear",
    "inactive",
    "suspended",
    "readonly",
    "read-auto",
    "clean",
    "active",
    "write-pending",
    "active-idle",
    "broken",
)
SYNC_ACTIONS = ("idle", "resync", "recover", "check", "repair", "reshape", "frozen")
MEMBER_STATES = (
    "faulty",
    "in_sync",
    "writemostly",
    "blocked",
    "spare",
    "write_error",
    "want_replacement",
    "replacement",
    "journal",
    "failfast",
    "external_bbl",
)
MAPPINGS = ("lvm", "crypt", "multipath", "other")

counts = Families("disks")
PRESENT = counts.gauge(
    "present", "Number of local disks that the kernel lists: NVMe over PCIe, SATA, SAS."
)
EXPECTED = counts.gauge(
    "expected",
    "Number of local disks that the configuration expects, or else the highest since boot.",
)

metrics = Families("disk", "device")
INFO = metrics.gauge(
    "info",
    "Always 1; model, serial number, firmware and transport of the disk or NVMe controller.",
    "model",
    "serial",
    "firmware",
    transport=TRANSPORTS,
)
MISSING = metrics.gauge(
    "missing", "Always 1; a local disk that was there in this boot and is gone.", "serial"
)
NAMESPACES = metrics.gauge("namespaces", "Number of namespaces of the NVMe controller.")
SIZE = metrics.gauge("size_bytes", "Size of the block device.")

# Block I/O, https://docs.kernel.org/block/stat.html
IO_BYTES = metrics.counter(
    "transferred_bytes_total", "Number of bytes read, written or discarded.", operation=TRANSFERS
)
IO_OPERATIONS = metrics.counter(
    "operations_total", "Number of completed requests.", operation=OPERATIONS
)
IO_SECONDS = metrics.counter(
    "operation_seconds_total",
    "Seconds that completed requests took, from queue to end, added up.",
    operation=OPERATIONS,
)
BUSY = metrics.counter("busy_seconds_total", "Seconds with at least one request in flight.")
IN_FLIGHT = metrics.gauge("requests_in_flight", "Number of requests in flight.")

# SMART
UNREADABLE = metrics.gauge(
    "unreadable",
    "Always 1; why the last try to read the health of the disk failed.",
    reason=REASONS,
)
STANDBY = metrics.gauge("standby", "Whether the disk sleeps; it is not woken to read its health.")
PASSED = metrics.gauge("smart_passed", "Whether the disk's own overall assessment is good.")
WARNING = metrics.gauge(
    "critical_warning", "Whether the NVMe controller reports this warning.", warning=WARNINGS
)
FINDING = metrics.gauge(
    "smart_finding",
    "Whether smartctl finds an attribute at its threshold now or before, or errors in a log.",
    finding=FINDINGS,
)
SPARE = metrics.gauge("spare_ratio", "Share of the spare blocks that is left.")
SPARE_THRESHOLD = metrics.gauge(
    "spare_threshold_ratio", "Share of spare blocks below which the disk warns."
)
USED = metrics.gauge(
    "used_ratio", "Share of the rated endurance that is used, as the disk estimates; may exceed 1."
)
MEDIA_ERRORS = metrics.counter(
    "media_errors_total", "Number of errors in the disk's life that it could not correct."
)
SECTOR_COUNT = metrics.gauge("sectors", "Number of bad sectors of this kind.", kind=SECTORS)
CRC_ERRORS = metrics.counter(
    "interface_crc_errors_total", "Number of transfers with a wrong checksum: cable or connector."
)
NON_MEDIUM_ERRORS = metrics.counter(
    "non_medium_errors_total", "Number of errors of a SAS disk that are not of its medium."
)
ERROR_LOG_ENTRIES = metrics.counter(
    "error_log_entries_total",
    "Number of entries ever made in the disk's error log; unsupported commands make entries, too.",
)
UNSAFE_SHUTDOWNS = metrics.counter(
    "unsafe_shutdowns_total", "Number of losses of power without a shutdown of the disk."
)
POWER_ON = metrics.counter("power_on_seconds_total", "Time that the disk was powered in its life.")
LIFETIME = metrics.counter(
    "lifetime_bytes_total",
    "Number of bytes read from or written to the disk in its life.",
    operation=("read", "write"),
)
TEMPERATURE = metrics.gauge("temperature_celsius", "Temperature of the disk.")
TEMPERATURE_LIMIT = metrics.gauge(
    "temperature_limit_celsius", "Temperature at which the disk itself warns."
)

# Arrays and mappings
ARRAY_INFO = metrics.gauge("array_info", "Always 1; level of the md array.", "level")
ARRAY_STATE = metrics.gauge("array_state", "Always 1; state of the md array.", state=ARRAY_STATES)
ARRAY_MEMBERS = metrics.gauge("array_members", "Number of members of the complete array.")
ARRAY_DEGRADED = metrics.gauge("array_degraded", "Number of members that the array lacks.")
ARRAY_ACTION = metrics.gauge(
    "array_sync_action", "Always 1; what the array does in the background.", action=SYNC_ACTIONS
)
ARRAY_PROGRESS = metrics.gauge(
    "array_sync_progress_ratio", "Share of the background action that is done; missing when idle."
)
ARRAY_MISMATCHES = metrics.gauge(
    "array_mismatched_sectors", "Number of sectors that differed in the last check or repair."
)
ARRAY_MEMBER = metrics.gauge(
    "array_member_state", "Always 1; a state of this member.", "member", state=MEMBER_STATES
)
MAPPING_INFO = metrics.gauge(
    "mapping_info", "Always 1; name and kind of the device-mapper device.", "name", kind=MAPPINGS
)
MAPPING_SUSPENDED = metrics.gauge(
    "mapping_suspended", "Whether the device-mapper device is suspended: all I/O waits."
)
PATHS = metrics.gauge("multipath_paths", "Number of paths of the multipath device.")
PATHS_RUNNING = metrics.gauge(
    "multipath_paths_running", "Number of paths whose SCSI device or NVMe controller is running."
)
