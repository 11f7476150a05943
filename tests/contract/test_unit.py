"""The systemd units: how much they expose, and that each restriction says why it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.confinement import parse_service
from testbed.node import ROOT
from testbed.seccomp import systemd_analyze

UNIT = ROOT / "exporter/packaging/nodevitals.service"
HUB_UNIT = ROOT / "exporter/packaging/nodevitals-hub.service"
SERVICE = parse_service(UNIT.read_text())
# Tenths of systemd's exposure level.
THRESHOLDS = {UNIT: 40, HUB_UNIT: 15}
NO_RESTRICTIONS = {
    *("ExecStart", "ExecReload", "StateDirectory", "Restart", "RestartSec", "KillMode"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    *("TimeoutStopSec", "ProtectHome"),
    *("DynamicUser", "LoadCredential", "StateDirectoryMode"),
}
by_unit = pytest.mark.parametrize("unit", THRESHOLDS, ids=lambda unit: unit.name)
CLOSES_DEVICES = ("DeviceAllow", "DevicePolicy", "PrivateDevices", "ProtectClock")
HIDES_THE_NODE = ("PrivateNetwork", "IPAddressDeny", "PrivateUsers", "ProcSubset", "ProtectProc")


@by_unit
def test_exposure_is_below_a_limit(unit: Path) -> None:
    threshold = f"--threshold={THRESHOLDS[unit]}"
    done = systemd_analyze("security", "--offline=true", threshold, str(unit))
    print(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout


@by_unit
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    """The program is another one: nodevitals need not be installed here."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/usr/bin/nodevitals", "/bin/true"))
    done = systemd_analyze("verify", str(copy))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("setting", [*CLOSES_DEVICES, *HIDES_THE_NODE, "ProtectKernelLogs"])
def test_setting_that_blinds_probes_is_absent(setting: str) -> None:
    assert setting not in SERVICE


@by_unit
def test_every_restriction_has_a_reason(unit: Path) -> None:
    """A comment above it, or above the settings that it is one of: what is lost without it."""
    groups = re.findall(r"((?:^#.*\n)+)((?:^[A-Z]\w+=.*\n)+)", unit.read_text(), re.MULTILINE)
    reasons = {line.partition("=")[0]: text for text, lines in groups for line in lines.split("\n")}
    for key in set(parse_service(unit.read_text())) - NO_RESTRICTIONS:
        assert "ithout" in reasons[key], key
