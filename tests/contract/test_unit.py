"""The systemd units: how much they expose, and that each restriction says why it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodevitals.linux.capabilities import VARIABLE, parse_kept
from nodevitals.probes import registered
from testbed.confinement import capabilities, parse_service
from testbed.node import ROOT
from testbed.seccomp import systemd_analyze

UNIT = ROOT / "exporter/packaging/nodevitals.service"
DROP_IN = ROOT / "exporter/packaging/nodevitals-hardware-health.conf"
HUB_UNIT = ROOT / "hub/nodevitals-hub.service"
SERVICE = parse_service(UNIT.read_text())
# Tenths of systemd's exposure level.
THRESHOLDS = {UNIT: 40, HUB_UNIT: 15}
NO_RESTRICTIONS = {
    *("ExecStart", "ExecReload", "StateDirectory", "Restart", "RestartSec", "KillMode"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    *("TimeoutStopSec", "ProtectHome"),
    *("User", "StateDirectoryMode"),
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
    copy.write_text(re.sub(r"(?<=^ExecStart=)\S+", "true", unit.read_text(), flags=re.MULTILINE))
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


def test_hardware_health_is_a_drop_in_that_grants_what_the_unit_does_not() -> None:
    """Each capability with its reason, kept by the probes that the unit's workers run."""
    added = parse_service(DROP_IN.read_text())
    granted = capabilities(added)
    assert granted == {"SYS_ADMIN", "SYS_RAWIO", "NET_ADMIN"}
    assert not granted & capabilities(SERVICE)
    [text] = added["Environment"]
    name, _, kept = text.strip('"').partition("=")
    assert name == VARIABLE
    assert set().union(*parse_kept(kept).values()) == granted
    assert parse_kept(kept).keys() <= registered().keys()
    assert added.keys() == {"CapabilityBoundingSet", "Environment", "SystemCallFilter"}
    groups = re.findall(r"((?:^#.*\n)+)((?:^[A-Z]\w+=.*\n)+)", DROP_IN.read_text(), re.MULTILINE)
    assert len(groups) == 4
    assert all("ithout" in reason for reason, _ in groups)


def test_systemd_understands_the_unit_with_the_drop_in(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/nodevitals", "/bin/true"))
    folder = tmp_path / f"{UNIT.name}.d"
    folder.mkdir()
    (folder / "hardware-health.conf").write_text(DROP_IN.read_text())
    done = systemd_analyze("verify", str(copy))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # The level of root with all rights is 9.6; the filters of the unit still hold.
    done = systemd_analyze("security", "--offline=true", "--threshold=50", str(copy))
    assert done.returncode == 0, done.stdout
