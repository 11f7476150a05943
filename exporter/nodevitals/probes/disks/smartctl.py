"""Health of SATA and SAS disks, and of disks behind RAID controllers: `smartctl --json`.

In: the program's output and exit status, smartctl(8). Out: `Health`. One call reads one disk; a
disk that sleeps is not woken.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Optional

import msgspec

from nodevitals.linux import tool
from nodevitals.probe import ProbeError
from nodevitals.probes.disks.families import FINDINGS, WARNINGS
from nodevitals.probes.disks.health import Health, HealthError

# Bits of the exit status.
_USAGE, _NOT_OPENED, _DISK_FAILING, _FINDING = 1 << 0, 1 << 1, 1 << 3, 4
_ATTRIBUTES = {5: "reallocated", 197: "pending", 198: "offline_uncorrectable"}
_CRC_ATTRIBUTE = 199
# All vendors that use these names normalize the value from 100 (new) to 0.
_LIFE_LEFT = (
    "Media_Wearout_Indicator",
    "Wear_Leveling_Count",
    "SSD_Life_Left",
    "Percent_Lifetime_Remain",
)
_REFUSED = ("permission denied", "operation not permitted")
_NO_FILE = ("no such file",)
_GONE = ("no such device",)
_MAX_NUMBER = 1e30
_MAX_LABEL_CHARACTERS = 128
_SHOWN_CHARACTERS = 160
# If the program hangs in the kernel, it ends long after the call.
_TOOL_REASONS = {
    "missing": "tool_missing",
    "timeout": "timeout",
    "stuck": "hung",
    "too_long": "malformed",
}


def arguments(program: str, path: str, kind: str, sleeps: bool) -> list[str]:
    """The command for one disk; `kind` is the value of -d, '' for detection by smartctl; `sleeps`:
    the disk may sleep (NVMe disks do not).
    """
    argv = [program, "--json=c", "-a"]
    argv += ["-n", "standby"] if sleeps else []
    argv += ["-d", kind] if kind else []
    return [*argv, path]


def read_health(argv: Sequence[str], seconds: float) -> Optional[Health]:
    """The disk's health; None if it has no SMART data. Raises HealthError.

    Returns only after the program has ended, even if it cannot be killed: then the disk hangs, and
    another call would hang, too.
    """
    ended, alive = os.pipe()
    try:
        output = tool.run(argv, seconds, keep=(alive,))
    except ProbeError as error:
        os.close(alive)
        alive = -1
        os.read(ended, 1)  # returns after the last process that has the other end has ended
        raise HealthError(_TOOL_REASONS.get(error.reason, "io_error"), error.message) from None
    finally:
        os.close(ended)
        if alive >= 0:
            os.close(alive)
    return parse_health(output.text, output.status)


def parse_health(text: str, status: int) -> Optional[Health]:
    """The health in the output of `smartctl --json=c -a`; None if the disk has no SMART data.
    Raises HealthError.
    """
    # The text from standard error follows the line of JSON.
    line = next((line for line in text.splitlines() if line.startswith("{")), "")
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise HealthError("malformed", f"no JSON: {text[:_SHOWN_CHARACTERS]!r}") from None
    if not isinstance(document, dict) or status & _USAGE or "smartctl" not in document:
        raise HealthError("malformed", f"exit status {status}: {_messages(document)!r}")
    if status & _NOT_OPENED:
        return _unopened(document, status)
    supported = _get(document, "smart_support", "available") is not False
    if not supported or not _has_data(document):
        return None
    return _health(document, status)


def _unopened(document: dict[str, Any], status: int) -> Health:
    """Health of a disk that was not opened: it sleeps, or else HealthError is raised."""
    text = _messages(document)
    lower = text.lower()
    if "mode, exit" in lower:
        return Health(standby=True)
    for reason, words in (
        ("permission", _REFUSED),
        ("device_file_missing", _NO_FILE),
        ("gone", _GONE),
    ):
        if any(word in lower for word in words):
            raise HealthError(reason, text)
    raise HealthError("io_error", f"exit status {status}: {text}")


def _messages(document: object) -> str:
    """The messages of smartctl in one line."""
    messages = _get(document, "smartctl", "messages")
    texts = [_get(message, "string") for message in messages] if isinstance(messages, list) else []
    return "; ".join(text for text in texts if isinstance(text, str))[:_SHOWN_CHARACTERS]


def _has_data(document: dict[str, Any]) -> bool:
    return any(
        name in document
        for name in (
            "smart_status",
            "ata_smart_attributes",
            "scsi_error_counter_log",
            "scsi_grown_defect_list",
            "nvme_smart_health_information_log",
        )
    )


def _health(document: dict[str, Any], status: int) -> Health:
    nvme = _get(document, "nvme_smart_health_information_log")
    nvme = nvme if isinstance(nvme, dict) else {}
    attributes = _attributes(document)
    passed = _get(document, "smart_status", "passed")
    hours = _number(document, "power_on_time", "hours")
    return Health(
        standby=False if "ata_smart_attributes" in document else None,
        passed=False if status & _DISK_FAILING else passed if isinstance(passed, bool) else None,
        findings={name: bool(status >> (_FINDING + n) & 1) for n, name in enumerate(FINDINGS)},
        warnings=_warnings(nvme),
        spare=_share(nvme, "available_spare"),
        spare_threshold=_share(nvme, "available_spare_threshold"),
        used=_used(document, nvme),
        media_errors=_number(nvme, "media_errors") if nvme else _uncorrected(document),
        sectors=_sectors(document, attributes),
        crc_errors=_raw(attributes.get(_CRC_ATTRIBUTE)),
        non_medium_errors=_number(document, "scsi_error_counter_log", "non_medium_error_count"),
        error_log_entries=_error_log(document, nvme),
        unsafe_shutdowns=_number(nvme, "unsafe_shutdowns"),
        power_on_seconds=None if hours is None else hours * 3600,
        read_bytes=_product(_number(nvme, "data_units_read"), 512_000),
        written_bytes=_product(_number(nvme, "data_units_written"), 512_000),
        temperature=_number(document, "temperature", "current"),
        temperature_limit=_limit(document),
        model=_label(document, "model_name") or _label(document, "scsi_model_name"),
        serial=_label(document, "serial_number"),
        firmware=_label(document, "firmware_version") or _label(document, "scsi_revision"),
    )


def _attributes(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The ATA attributes by number."""
    table = _get(document, "ata_smart_attributes", "table")
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    return {row["id"]: row for row in rows if isinstance(row.get("id"), int)}


def _raw(attribute: object) -> Optional[float]:
    return _number(attribute, "raw", "value")


def _sectors(document: dict[str, Any], attributes: dict[int, dict[str, Any]]) -> dict[str, float]:
    counts = {name: _raw(attributes.get(number)) for number, name in _ATTRIBUTES.items()}
    counts["grown_defects"] = _number(document, "scsi_grown_defect_list")
    return {name: count for name, count in counts.items() if count is not None}


def _warnings(nvme: dict[str, Any]) -> dict[str, bool]:
    byte = _number(nvme, "critical_warning")
    if byte is None or byte > 255:
        return {}
    return {name: bool(int(byte) >> bit & 1) for bit, name in enumerate(WARNINGS)}


def _used(document: dict[str, Any], nvme: dict[str, Any]) -> Optional[float]:
    for percent in (
        _number(document, "endurance_used", "current_percent"),
        _number(nvme, "percentage_used"),
        _number(document, "scsi_percentage_used_endurance_indicator"),
    ):
        if percent is not None:
            return percent / 100
    for row in _attributes(document).values():
        left = _number(row, "value")
        if row.get("name") in _LIFE_LEFT and left is not None and left <= 100:
            return (100 - left) / 100
    return None


def _uncorrected(document: dict[str, Any]) -> Optional[float]:
    """Errors that a SAS disk could not correct, when it read, wrote or verified."""
    counts = [
        _number(document, "scsi_error_counter_log", way, "total_uncorrected_errors")
        for way in ("read", "write", "verify")
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _error_log(document: dict[str, Any], nvme: dict[str, Any]) -> Optional[float]:
    if nvme:
        return _number(nvme, "num_err_log_entries")
    logs = _get(document, "ata_smart_error_log")
    for kind in ("extended", "summary"):
        count = _number(logs, kind, "count")
        if count is not None:
            return count
    return None


def _limit(document: dict[str, Any]) -> Optional[float]:
    for keys in (
        ("nvme_composite_temperature_threshold", "warning"),
        ("temperature", "op_limit_max"),
        ("temperature", "drive_trip"),
    ):
        celsius = _number(document, *keys)
        if celsius:  # 0: not reported
            return celsius
    return None


def _share(document: dict[str, Any], name: str) -> Optional[float]:
    percent = _number(document, name)
    return percent / 100 if percent is not None and percent <= 100 else None


def _product(number: Optional[float], factor: float) -> Optional[float]:
    return None if number is None else number * factor


def _get(document: object, *keys: str) -> Any:
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def _number(document: object, *keys: str) -> Optional[float]:
    """A number of 0 or more; None for anything else."""
    value = _get(document, *keys)
    # Numbers over 64 bits are strings beside a rounded one; JSON has no NaN.
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if fits and 0 <= value < _MAX_NUMBER and math.isfinite(value) else None


def _label(document: dict[str, Any], name: str) -> str:
    value = _get(document, name)
    fits = isinstance(value, str) and value.isascii() and value.isprintable()
    return value.strip()[:_MAX_LABEL_CHARACTERS] if fits else ""
