"""The systemd unit: how much it exposes, and that each restriction says why it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.confinement import parse_service
from testbed.node import ROOT
from testbed.seccomp import systemd_analyze

UNIT = ROOT / "exporter/packaging/nodevitals.service"
SERVICE = parse_service(UNIT.read_text())
THRESHOLD = 40  # tenths of systemd's exposure level
NO_RESTRICTIONS = {
    *("ExecStart", "ExecReload", "StateDirectory", "Restart", "RestartSec", "KillMode"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    *("TimeoutStopSec", "ProtectHome"),
}
CLOSES_DEVICES = ("DeviceAllow", "DevicePolicy", "PrivateDevices", "ProtectClock")
HIDES_THE_NODE = ("PrivateNetwork", "IPAddressDeny", "PrivateUsers", "ProcSubset", "ProtectProc")


def test_exposure_is_below_four() -> None:
    done = systemd_analyze("security", "--offline=true", f"--threshold={THRESHOLD}", str(UNIT))
    print(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """The program is another one: nodevitals need not be installed here."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/nodevitals", "/bin/true"))
    done = systemd_analyze("verify", str(copy))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("setting", [*CLOSES_DEVICES, *HIDES_THE_NODE, "ProtectKernelLogs"])
def test_setting_that_blinds_probes_is_absent(setting: str) -> None:
    assert setting not in SERVICE


def test_every_restriction_has_a_reason() -> None:
    """A comment above it, or above the settings that it is one of: what is lost without it."""
    groups = re.findall(r"((?:^#.*\n)+)((?:^[A-Z]\w+=.*\n)+)", UNIT.read_text(), re.MULTILINE)
    reasons = {line.partition("=")[0]: text for text, lines in groups for line in lines.split("\n")}
    for key in set(SERVICE) - NO_RESTRICTIONS:
        assert "ithout" in reasons[key], key
