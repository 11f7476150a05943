"""The health that a disk reports, by any tool that reads it."""

from __future__ import annotations

from typing import Optional

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.disks import families


class HealthError(Exception):
    """The health of a disk could not be read: `reason` is one of `families.REASONS`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """SMART data. None, or a key missing from a mapping, means unknown."""

    standby: Optional[bool] = None
    passed: Optional[bool] = None
    warnings: dict[str, bool] = {}
    findings: dict[str, bool] = {}
    spare: Optional[float] = None
    spare_threshold: Optional[float] = None
    used: Optional[float] = None
    media_errors: Optional[float] = None
    sectors: dict[str, float] = {}
    crc_errors: Optional[float] = None
    non_medium_errors: Optional[float] = None
    error_log_entries: Optional[float] = None
    unsafe_shutdowns: Optional[float] = None
    power_on_seconds: Optional[float] = None
    read_bytes: Optional[float] = None
    written_bytes: Optional[float] = None
    temperature: Optional[float] = None
    temperature_limit: Optional[float] = None
    model: str = ""
    serial: str = ""
    firmware: str = ""


def report(health: Health, device: str, readings: Readings) -> None:
    """Add the samples of the known values."""
    for family, value in (
        (families.STANDBY, health.standby),
        (families.PASSED, health.passed),
        (families.SPARE, health.spare),
        (families.SPARE_THRESHOLD, health.spare_threshold),
        (families.USED, health.used),
        (families.MEDIA_ERRORS, health.media_errors),
        (families.CRC_ERRORS, health.crc_errors),
        (families.NON_MEDIUM_ERRORS, health.non_medium_errors),
        (families.ERROR_LOG_ENTRIES, health.error_log_entries),
        (families.UNSAFE_SHUTDOWNS, health.unsafe_shutdowns),
        (families.POWER_ON, health.power_on_seconds),
        (families.TEMPERATURE, health.temperature),
        (families.TEMPERATURE_LIMIT, health.temperature_limit),
    ):
        readings.add(family, value, device)
    for name, active in health.warnings.items():
        readings.add(families.WARNING, active, device, name)
    for name, is_reported in health.findings.items():
        readings.add(families.FINDING, is_reported, device, name)
    for name, count in health.sectors.items():
        readings.add(families.SECTOR_COUNT, count, device, name)
    readings.add(families.LIFETIME, health.read_bytes, device, "read")
    readings.add(families.LIFETIME, health.written_bytes, device, "write")
