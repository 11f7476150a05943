"""Probe `services` and systemd over D-Bus: a real socket, on good days and on bad ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings, Timing
from nodevitals.probes.services.probe import (
    CONDITIONS,
    UNITS,
    ServicesProbe,
    ServicesSettings,
    ServicesState,
)
from testbed.node import environment
from testbed.systemd import NAME, Systemd, Unit, object_path

P = "nodevitals_services_"
Found = dict[tuple[str, ...], float]


def run(
    root: Path,
    state: ServicesState | None = None,
    readings: Readings | None = None,
    seconds: float = 10.0,
    **settings: object,
) -> Found:
    """One run on the units: the values by family and labels, with the counter's increments."""
    probe = ServicesProbe(
        Host(rootfs=str(root)),
        ServicesSettings(**settings),  # type: ignore[arg-type]
        UNITS,
        Timing(timeout_seconds=seconds),
    )
    probe.state = state or ServicesState()
    readings = readings or Readings(families=ServicesProbe.families)
    probe.run(readings)
    samples = [*readings.samples, *readings.increments]
    return {(one.family.removeprefix(P), *one.labels): one.value for one in samples}


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a short name: that of a socket has 107 characters at most."""
    return tmp_path_factory.mktemp("s")


@pytest.fixture
def systemd(short: Path) -> Iterator[Systemd]:
    with Systemd(short) as manager:
        manager.units["kubelet.service"] = Unit()
        yield manager
        assert manager.mistakes == []


def test_unit_that_runs_is_active_enabled_and_expected(systemd: Systemd, short: Path) -> None:
    assert run(short) == {
        ("unit_active", "kubelet.service"): 1,
        ("unit_state", "kubelet.service", "active"): 1,
        ("unit_enabled", "kubelet.service"): 1,
        ("unit_expected", "kubelet.service"): 1,
        ("unit_restarts_total", "kubelet.service"): 0,
        ("failed_units",): 0,
    }
    assert systemd.hellos == 1


def test_unit_that_is_not_there_is_left_out(systemd: Systemd, short: Path) -> None:
    assert not [key for key in run(short) if "slurmd.service" in key]


def test_no_call_changes_anything_or_loads_a_unit(systemd: Systemd, short: Path) -> None:
    run(short, expected=("slurmd.service",))
    allowed = {"ListUnitsByPatterns", "ListUnitsFiltered", "GetUnit", "Get"}
    assert {call.member for call in systemd.calls} <= allowed


@pytest.mark.parametrize("active", ["inactive", "failed", "activating", "deactivating"])
def test_enabled_unit_that_does_not_run_is_expected(
    systemd: Systemd, short: Path, active: str
) -> None:
    systemd.units["kubelet.service"] = Unit(active=active, sub="dead")
    found = run(short)
    assert found["unit_active", "kubelet.service"] == 0
    assert found["unit_expected", "kubelet.service"] == 1
    assert found["unit_state", "kubelet.service", active] == 1


@pytest.mark.parametrize(
    ("unit", "enabled"),
    [
        (Unit(active="inactive", file_state="disabled"), 0),
        (Unit(active="inactive", file_state="masked"), 0),
        (Unit(active="inactive", file_state="static"), None),
        (Unit(active="inactive", file_state=""), None),
        (Unit(active="inactive", condition=False), 1),
        (Unit(file_state="static"), None),
        (Unit(file_state="disabled"), 0),
    ],
    ids=["disabled", "masked", "static", "transient", "condition", "static-runs", "by-hand"],
)
def test_unit_that_nothing_requires_is_not_expected(
    systemd: Systemd, short: Path, unit: Unit, enabled: int | None
) -> None:
    systemd.units["kubelet.service"] = unit
    found = run(short)
    assert found["unit_expected", "kubelet.service"] == 0
    assert found.get(("unit_enabled", "kubelet.service")) == enabled


def test_enabled_unit_that_was_not_tried_since_boot_is_expected(
    systemd: Systemd, short: Path
) -> None:
    systemd.units["kubelet.service"] = Unit(active="inactive", condition=False, tried=0)
    assert run(short)["unit_expected", "kubelet.service"] == 1


def test_configured_unit_is_expected_also_where_it_is_not_installed(
    systemd: Systemd, short: Path
) -> None:
    found = run(short, expected=("weird\\x2dname.mount", "kubelet.service"))
    assert found["unit_active", "weird\\x2dname.mount"] == 0
    assert found["unit_expected", "weird\\x2dname.mount"] == 1
    assert found["unit_expected", "kubelet.service"] == 1


def test_configured_unit_with_an_escaped_name_is_found(systemd: Systemd, short: Path) -> None:
    systemd.units["weird\\x2dname.mount"] = Unit(file_state="generated")
    found = run(short, expected=("weird\\x2dname.mount",))
    assert found["unit_active", "weird\\x2dname.mount"] == 1
    assert ("unit_restarts_total", "weird\\x2dname.mount") not in found


def test_alias_is_the_unit_that_it_names(systemd: Systemd, short: Path) -> None:
    systemd.units["ssh.service"] = Unit(file_state="disabled", aliases=("sshd.service",))
    found = run(short, expected=("sshd.service", "ssh.service"))
    assert found["unit_expected", "ssh.service"] == 1
    assert not [key for key in found if "sshd.service" in key]


def test_ignored_units_are_left_out(systemd: Systemd, short: Path) -> None:
    systemd.units["user@1000.service"] = Unit(active="failed")
    systemd.units["backup.service"] = Unit(active="failed")
    assert run(short)["failed_units",] == 2
    found = run(short, ignored=("user@*.service", "kubelet.service"))
    assert found == {("failed_units",): 1}


def test_restarts_are_counted_over_a_start_by_hand(systemd: Systemd, short: Path) -> None:
    """Systemd counts from 0 again when a person starts the unit; the counter goes on."""
    state, increments = ServicesState(), []
    for restarts in (5, 5, 7, 1, 1):
        systemd.units["kubelet.service"].restarts = restarts
        increments.append(run(short, state)["unit_restarts_total", "kubelet.service"])
    assert increments == [0, 0, 2, 1, 0]


def test_unit_without_a_count_of_restarts_has_none(systemd: Systemd, short: Path) -> None:
    systemd.units["kubelet.service"].restarts = None  # before systemd 235
    found = run(short)
    assert found["unit_active", "kubelet.service"] == 1
    assert ("unit_restarts_total", "kubelet.service") not in found


def test_unknown_state_is_missing(systemd: Systemd, short: Path) -> None:
    systemd.units["kubelet.service"].active = "hibernating"
    found = run(short)
    assert not {"unit_active", "unit_state"} & {key[0] for key in found}


def test_unit_that_ends_between_two_calls_is_known_by_its_state_only(
    systemd: Systemd, short: Path
) -> None:
    row = ("slurmd.service", "", "loaded", "active", "", "", object_path("slurmd.service"), 0, "")
    systemd.more_rows = [(*row, "/")]
    found = run(short)
    assert found["unit_active", "slurmd.service"] == 1
    assert ("unit_enabled", "slurmd.service") not in found


def test_hostile_names_are_no_labels(systemd: Systemd, short: Path) -> None:
    names = ("x" * 5000 + ".service", "a b.service", 'a"}.service', "evil\n.service", "../x", "")
    rest = ("", "loaded", "failed", "", "", "/org/freedesktop/systemd1/unit/x", 0, "", "/")
    systemd.more_rows = [(name, *rest) for name in names]
    systemd.more_rows.append(("slurmd.service", *rest[:5], "/etc/passwd", 0, "", "/"))
    found = run(short)
    assert {key[1] for key in found if len(key) > 1} == {"kubelet.service"}
    assert found["failed_units",] == 0


def test_ten_thousand_failed_units_are_counted(systemd: Systemd, short: Path) -> None:
    path = "/org/freedesktop/systemd1/unit/x"
    systemd.units.clear()
    systemd.units |= {f"job-{number}.service": Unit(active="failed") for number in range(10_000)}
    assert run(short)["failed_units",] == 10_000
    systemd.more_rows = [
        (f"many-{number}.service", "", "", "failed", "", "", path, 0, "", "/")
        for number in range(10_000)
    ]
    systemd.units.clear()
    # A list that systemd did not filter does not become 10,000 series.
    assert {key[0] for key in run(short)} == {"failed_units"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang_authentication", "timeout"),
        ("hang_hello", "timeout"),
        ("hang", "timeout"),
        ("reset", "closed"),
        ("garbage", "protocol"),
        ("huge", "too_long"),
        ("reject", "permission"),
    ],
)
def test_bus_that_misbehaves_is_an_error_with_a_reason(
    systemd: Systemd, short: Path, fault: str, reason: str
) -> None:
    systemd.fault = fault
    with pytest.raises(ProbeError) as raised:
        run(short, seconds=0.5 if reason == "timeout" else 30)
    assert raised.value.reason == reason
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("org.freedesktop.DBus.Error.AccessDenied", "permission"),
        ("org.freedesktop.DBus.Error.ServiceUnknown", "no_systemd"),
        ("org.freedesktop.DBus.Error.UnknownMethod", "refused"),
        ("org.freedesktop.DBus.Error.NoReply", "timeout"),
        (f"{NAME}.\x1b[31mred", "refused"),
    ],
    ids=["denied", "no-systemd", "unknown-method", "no-reply", "hostile"],
)
def test_error_of_systemd_is_an_error_with_a_reason(
    systemd: Systemd, short: Path, error: str, reason: str
) -> None:
    systemd.fault, systemd.error = "error", error
    with pytest.raises(ProbeError) as raised:
        run(short)
    assert raised.value.reason == reason
    assert raised.value.message.isprintable()


def test_systemd_is_asked_directly_where_the_bus_does_not_answer(
    systemd: Systemd, short: Path
) -> None:
    with Systemd(short, direct=True) as private:
        private.units["kubelet.service"] = Unit(active="failed")
        for fault in ("hang_hello", "reject"):
            systemd.fault = fault
            found = run(short, seconds=2)
            assert found["unit_active", "kubelet.service"] == 0
        assert private.mistakes == []
        systemd.fault = ""
        assert run(short)["unit_active", "kubelet.service"] == 1


def test_error_of_the_bus_is_reported_where_neither_answers(short: Path, systemd: Systemd) -> None:
    (short / "run/systemd").mkdir()
    (short / "run/systemd/private").touch()
    systemd.fault = "reject"
    with pytest.raises(ProbeError, match="system_bus_socket"):
        run(short)


def test_without_systemd_the_units_are_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        run(tmp_path)
    with pytest.raises(ProbeError) as raised:
        run(tmp_path, expected=("kubelet.service",))
    assert raised.value.reason == "missing"


def test_socket_without_a_server_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run/dbus").mkdir(parents=True)
    (tmp_path / "run/dbus/system_bus_socket").touch()
    with pytest.raises(ProbeError) as raised:
        run(tmp_path)
    assert raised.value.reason == "refused"


def test_history_has_the_states_of_units(systemd: Systemd, short: Path) -> None:
    systemd.units["kubelet.service"].active = "failed"
    readings = Readings(families=ServicesProbe.families)
    run(short, readings=readings, expected=("slurmd.service",))
    assert {(one.device, one.state) for one in readings.conditions} == {
        ("kubelet.service", "failed"),
        ("slurmd.service", "not loaded"),
    }


def test_targets_are_the_units_and_the_conditions() -> None:
    assert [name for name, _ in ServicesProbe.targets(ServicesSettings())] == [UNITS, CONDITIONS]


def test_catalogue_does_not_import_the_client() -> None:
    """Commands that only need the probes' names do without jeepney."""
    code = (
        "import sys, nodevitals.catalogue as catalogue; catalogue.probe_class('services');"
        "sys.exit(any(name.startswith('jeepney') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def test_real_bus_daemon_accepts_the_client(short: Path) -> None:
    """A second opinion on our stand-in: the reference implementation, without systemd on it."""
    program = shutil.which("dbus-daemon")
    if program is None:
        pytest.skip("dbus-daemon is not installed")
    (short / "run/dbus").mkdir(parents=True)
    address = f"--address=unix:path={short}/run/dbus/system_bus_socket"
    with subprocess.Popen(
        [program, "--session", "--nofork", "--nopidfile", "--print-address=1", address],
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline().startswith("unix:path=")
            with pytest.raises(ProbeError) as raised:
                run(short)
        finally:
            daemon.kill()
    assert raised.value.reason == "no_systemd"
