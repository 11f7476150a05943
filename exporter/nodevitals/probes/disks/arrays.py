"""md arrays and device-mapper devices in sysfs: https://docs.kernel.org/admin-guide/md.html.

In: /sys/block/md*/md and /sys/block/dm-*/dm. Out: samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import (
    exists,
    list_names,
    parse_integer,
    read_integer,
    read_label,
    read_text,
)
from nodevitals.probe import Readings
from nodevitals.probes.disks import families

_MEMBER = "dev-"
_LEVELS = (
    *("linear", "multipath", "container", "faulty"),
    *("raid0", "raid1", "raid4", "raid5", "raid6", "raid10"),
)
# The beginning of a mapping's uuid names the tool that made it.
_KINDS = {"LVM": "lvm", "CRYPT": "crypt", "mpath": "multipath"}
# States of a SCSI device, and of an NVMe controller.
_RUNNING = ("running", "live")
# The others that the kernel knows: sdev_states[] in drivers/scsi/scsi_sysfs.c, and those of NVMe.
_PATH_STATES = (
    *_RUNNING,
    *("created", "cancel", "deleted", "quiesce", "offline", "transport-offline", "blocked"),
    *("created-blocked", "new", "resetting", "connecting", "deleting", "dead"),
)


def parse_progress(text: str) -> Optional[float]:
    """The share in `sync_completed`, `SECTORS / TOTAL`; None while no sync runs."""
    done, slash, total = text.partition("/")
    sectors, all_sectors = parse_integer(done.strip()), parse_integer(total.strip())
    if not slash or sectors is None or not all_sectors:
        return None
    return min(sectors / all_sectors, 1.0)


def report_arrays(host: Host, names: Iterable[str], readings: Readings) -> None:
    """Add the samples of these md arrays."""
    for name in names:
        readings.at(name, "sysfs md")  # its files take the array's lock
        _report_array(host.sys(f"block/{name}/md"), name, readings)


def _report_array(directory: Path, name: str, readings: Readings) -> None:
    level, state = read_text(directory / "level"), read_text(directory / "array_state")
    if level in _LEVELS:
        readings.add(families.ARRAY_INFO, 1, name, level)
    if state in families.ARRAY_STATES:
        readings.add(families.ARRAY_STATE, 1, name, state)
        readings.condition(name, state, f"md {level or ''}")
    # A container for external metadata has no members.
    members = parse_integer((read_text(directory / "raid_disks") or "").partition(" ")[0])
    readings.add(families.ARRAY_MEMBERS, members or None, name)
    readings.add(families.ARRAY_DEGRADED, read_integer(directory / "degraded"), name)
    readings.add(families.ARRAY_MISMATCHES, read_integer(directory / "mismatch_cnt"), name)
    action = read_text(directory / "sync_action")
    if action in families.SYNC_ACTIONS:
        readings.add(families.ARRAY_ACTION, 1, name, action)
    progress = parse_progress(read_text(directory / "sync_completed") or "")
    readings.add(families.ARRAY_PROGRESS, progress, name)
    for entry in list_names(directory):
        if entry.startswith(_MEMBER):
            states = (read_text(directory / entry / "state") or "").split(",")
            for state in dict.fromkeys(states):
                if state in families.MEMBER_STATES:
                    member = entry[len(_MEMBER) :]
                    readings.add(families.ARRAY_MEMBER, 1, name, member, state)


def report_mappings(host: Host, names: Iterable[str], readings: Readings) -> None:
    """Add the samples of these device-mapper devices."""
    for name in names:
        directory = host.sys(f"block/{name}")
        if not exists(directory / "dm"):
            continue
        label = read_label(directory / "dm/name")
        kind = (read_text(directory / "dm/uuid") or "").partition("-")[0]
        if label is not None:
            known = _KINDS.get(kind, "other")
            readings.add(families.MAPPING_INFO, 1, name, label, known)
        readings.add(families.MAPPING_SUSPENDED, read_integer(directory / "dm/suspended"), name)
        if _KINDS.get(kind) == "multipath":
            _report_paths(directory, name, readings)


def _report_paths(directory: Path, name: str, readings: Readings) -> None:
    """Report the paths. A path that only multipathd's check has failed looks like a good one
    here.
    """
    paths = list_names(directory / "slaves")
    states = [read_text(directory / "slaves" / path / "device/state") for path in paths]
    readings.add(families.PATHS, len(paths), name)
    if all(state in _PATH_STATES for state in states):
        running = sum(state in _RUNNING for state in states)
        readings.add(families.PATHS_RUNNING, running, name)
