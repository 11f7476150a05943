"""The Debian and RPM packages on a machine of their own: dpkg and rpm are the real ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from testbed import confinement
from testbed.installs import InstalledAgent, Machine
from testbed.node import ROOT, Node, wait_until

TOOL = ROOT / "tools/packages.py"
PARTS = (
    *("exporter", "rules", "alertmanager", "docs"),
    *("helm/nodevitals/files/dashboards", "dashboards/provisioning"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
)
CONFIG = "etc/nodevitals/nodevitals.yaml"
SITE = "\nlabels: {rack: r12}\n"
ENABLED = "etc/systemd/system/multi-user.target.wants/nodevitals.service"
LIBRARIES = "usr/lib/nodevitals/lib"
RUNS = "nodevitals_probe_runs_total"
START = "--quiet --system start nodevitals.service"
RESTART = "--quiet --system restart nodevitals.service"
SITE_PROBE = """
from nodevitals.probe import Families, Probe

metrics = Families("site")
VALUE = metrics.gauge("value", "A value.")

class SiteProbe(Probe):
    name = "site"
    families = metrics

    def run(self, readings):
        readings.add(VALUE, 42)
"""
# The default of RHEL and its like.
PRESET_OFF = "usr/lib/systemd/system-preset/99-default-disable.preset"


def checkout(folder: Path, version: str) -> Path:
    """A copy of this checkout as it is at another version, with another example configuration."""
    for part in PARTS:
        source, copy = ROOT / part, folder / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, copy)
    module = folder / "exporter/nodevitals/__init__.py"
    text, changes = re.subn(r'"\d.*"', f'"{version}"', module.read_text())
    assert changes == 1
    module.write_text(text)
    with (folder / "exporter/packaging/nodevitals.example.yaml").open("a") as example:
        example.write(f"# as of {version}\n")
    return folder


def build(source: Path, output: Path) -> dict[str, Path]:
    """Both packages, by suffix."""
    options = ["--source", str(source), "--output", str(output)]
    clean = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([sys.executable, str(TOOL), *options], env=clean, check=True)
    return {path.suffix: path for path in output.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def old(folder: Path) -> dict[str, Path]:
    return build(checkout(folder / "source-old", "0.1.0"), folder / "old")


@pytest.fixture(scope="module")
def new(folder: Path) -> dict[str, Path]:
    return build(checkout(folder / "source-new", "0.1.1"), folder / "new")


@pytest.fixture(scope="module")
def system(folder: Path) -> Path:
    """The RPM package that a distribution has for Python, the C runtime and the shell."""
    config = folder / "system.yaml"
    provides = [f"python(abi) = {target_python()}", "libgcc", "/bin/sh"]
    config.write_text(f"{{name: system, arch: all, version: 1.0.0, provides: {provides}}}")
    nfpm = Path(sys.executable).with_name("nfpm")
    made = folder / "system.rpm"
    subprocess.run([nfpm, "package", "--config", config, "--target", made], check=True)
    return made


def target_python() -> str:
    """The version of the packages: that of the system's interpreter."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path / "machine") as made:
        yield made


@pytest.fixture
def rpms(machine: Machine, system: Path) -> Machine:
    """A machine whose packages are RPM's, with the presets of RHEL."""
    preset = machine.root / PRESET_OFF
    preset.parent.mkdir(parents=True, exist_ok=True)
    preset.write_text("disable *\n")
    succeed(machine.rpm("-i", system))
    return machine


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def version(machine: Machine) -> str:
    return succeed(machine.run("nodevitals", "--version")).split()[-1]


def edit(machine: Machine) -> None:
    """Change the configuration, as a site does."""
    with (machine.root / CONFIG).open("a") as config:
        config.write(SITE)


def kept(machine: Machine) -> bool:
    return (machine.root / CONFIG).read_text().endswith(SITE)


def runs_of_node(machine: Machine, at_least: float) -> float:
    """Start the agent, return the number of runs of the probe `node`, end the agent."""
    with InstalledAgent(machine) as agent:
        labels = {"probe": "node", "outcome": "ok"}
        wait_until(lambda: (agent.value(RUNS, **labels) or 0) >= at_least)
        count = agent.value(RUNS, **labels)
        assert count is not None
        return count


# The packages themselves.


@pytest.mark.proof("images")
def test_same_source_makes_the_same_bytes(folder: Path, old: dict[str, Path]) -> None:
    """At another time, in another folder, with other modes of the files."""
    source = checkout(folder / "elsewhere/again", "0.1.0")
    for path in source.rglob("*.*"):
        if path.is_file():
            path.chmod(0o600)
    again = build(source, folder / "again")
    for suffix in (".deb", ".rpm"):
        assert again[suffix].read_bytes() == old[suffix].read_bytes(), suffix


def test_contents_of_the_debian_package(old: dict[str, Path], folder: Path) -> None:
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", old[".deb"]], capture_output=True)
    with tarfile.open(fileobj=BytesIO(data.stdout)) as archive:
        for member in archive:
            assert (member.uname, member.gname, member.mtime) == ("root", "root", 1700000000)
            assert member.issym() or not member.mode & 0o7022, member.name
            assert re.match(r"\./(etc|usr(/(bin|lib|share)(/|$)|/?$))", member.name), member.name
            if member.isfile() and (file := archive.extractfile(member)):
                content = file.read()
                # Of this machine, and of the folder in which it was made.
                assert str(folder).encode() not in content, member.name
                assert str(ROOT).encode() not in content, member.name
                assert not content.startswith(b"#!/root"), member.name


def test_metadata_of_both_packages(machine: Machine, old: dict[str, Path]) -> None:
    python = target_python()
    fields = succeed(machine.run("dpkg-deb", "-f", machine.put(old[".deb"])))
    assert f"Version: 0.1.0-1.py{python}\n" in fields
    assert f"Depends: python{python}, libc6 (>= 2.28), libgcc-s1, init-system-helpers\n" in fields
    assert f"python(abi) = {python}\n" in succeed(machine.rpm("-qp", "--requires", old[".rpm"]))
    assert succeed(machine.rpm("-qpc", old[".rpm"])) == f"/{CONFIG}\n"
    names = "%{version} %{release} %{buildhost}"
    assert (
        succeed(machine.rpm("-qp", "--qf", names, old[".rpm"])) == f"0.1.0 1.py{python} localhost"
    )


@pytest.mark.parametrize("script", sorted((ROOT / "exporter/packaging/scripts").iterdir()))
def test_maintainer_scripts_are_plain_shell(script: Path) -> None:
    subprocess.run(["dash", "-n", script], check=True)
    assert script.read_text().startswith("#!/bin/sh\n")


def test_interpreter_that_is_missing_is_named(tmp_path: Path) -> None:
    """Bytecode is bound to one version; a package for another one is not made silently."""
    present = {target_python(), f"{sys.version_info.major}.{sys.version_info.minor}"}
    wanted = next(one for one in ("3.10", "3.12", "3.13") if one not in present)
    argv = [sys.executable, str(TOOL), "--python", wanted, "--output", str(tmp_path)]
    clean = {"PATH": str(tmp_path), "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(argv, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"packages: there is no python{wanted}, which" in done.stderr
    argv[3] = "2.7"
    done = subprocess.run(argv, env=clean, capture_output=True, text=True, check=False)
    assert "packages: Python 2.7: not one of 3.9, 3.10" in done.stderr


# Debian.


def program(process: int) -> list[str]:
    """Return the name of the program of a process; [] of one that has ended."""
    with suppress(FileNotFoundError):
        return [Path(os.readlink(f"/proc/{process}/exe")).name]
    return []


def test_agent_of_the_debian_package_serves(machine: Machine, old: dict[str, Path]) -> None:
    """With a PYTHONPATH as of a login shell, and with a probe of the site."""
    succeed(machine.dpkg("-i", old[".deb"]))
    hostile = machine.root / "opt/modules"
    hostile.mkdir(parents=True)
    (hostile / "msgspec.py").write_text("raise SystemExit('a module of another Python')")
    site = machine.root / "usr/local/lib/nodevitals/nodevitals/probes"
    site.mkdir(parents=True)
    (site / "site.py").write_text(SITE_PROBE)
    with InstalledAgent(machine, "env", "PYTHONPATH=/opt/modules") as agent:
        wait_until(lambda: agent.value("nodevitals_site_value") == 42)
        wait_until(lambda: (agent.value("nodevitals_node_cpus") or 0) >= 1)
        assert agent.value("nodevitals_build_info", version="0.1.0") == 1
        processes = [agent.process.pid, *agent.tree()]
        programs = {name for pid in processes for name in program(pid)}
        assert programs == {f"python{target_python()}"}


def test_installation_enables_and_starts(machine: Machine, old: dict[str, Path]) -> None:
    succeed(machine.dpkg("-i", old[".deb"]))
    assert machine.calls()[-1] == START
    assert (machine.root / ENABLED).is_symlink()
    assert succeed(machine.run("dpkg", "--verify", "nodevitals")) == ""


def test_upgrade_keeps_configuration_history_and_counters(
    machine: Machine, old: dict[str, Path], new: dict[str, Path]
) -> None:
    """And a downgrade; after `purge` nothing is left."""
    succeed(machine.dpkg("-i", old[".deb"]))
    edit(machine)
    before = runs_of_node(machine, 1)
    machine.calls()
    succeed(machine.dpkg("-i", new[".deb"]))
    assert machine.calls()[-1] == RESTART
    assert version(machine) == "0.1.1"
    assert kept(machine)
    assert "# as of 0.1.1" in (machine.root / f"{CONFIG}.dpkg-dist").read_text()
    assert runs_of_node(machine, before + 1) == before + 1
    assert "node" in succeed(machine.run("nodevitals", "history"))

    succeed(machine.dpkg("-i", old[".deb"]))
    assert machine.calls()[-1] == RESTART
    assert version(machine) == "0.1.0"
    assert kept(machine)
    assert runs_of_node(machine, before + 2) == before + 2

    succeed(machine.run("nodevitals", "maintenance", "start", "--for", "1h"))
    succeed(machine.dpkg("--remove", "nodevitals"))
    assert "stop nodevitals.service" in machine.calls()
    assert kept(machine)
    assert (machine.root / "var/lib/nodevitals/history.db").exists()
    assert not (machine.root / "usr/lib/nodevitals").exists()

    succeed(machine.dpkg("--purge", "nodevitals"))
    assert machine.written() == set()


def test_unchanged_configuration_is_replaced(
    machine: Machine, old: dict[str, Path], new: dict[str, Path]
) -> None:
    succeed(machine.dpkg("-i", old[".deb"]))
    succeed(machine.dpkg("-i", new[".deb"]))
    assert (machine.root / CONFIG).read_text().endswith("# as of 0.1.1\n")
    assert not (machine.root / f"{CONFIG}.dpkg-dist").exists()


def test_configuration_of_an_installation_by_pip_is_kept(
    machine: Machine, old: dict[str, Path]
) -> None:
    (machine.root / CONFIG).parent.mkdir()
    (machine.root / CONFIG).write_text(SITE)
    succeed(machine.dpkg("-i", old[".deb"]))
    assert (machine.root / CONFIG).read_text() == SITE


def test_disabled_unit_stays_disabled(
    machine: Machine, old: dict[str, Path], new: dict[str, Path]
) -> None:
    """Over an upgrade, and over a removal and a new installation."""
    succeed(machine.dpkg("-i", old[".deb"]))
    succeed(machine.run("systemctl", "disable", "nodevitals.service"))
    succeed(machine.dpkg("-i", new[".deb"]))
    assert not (machine.root / ENABLED).is_symlink()
    succeed(machine.dpkg("--remove", "nodevitals"))
    machine.calls()
    succeed(machine.dpkg("-i", new[".deb"]))
    assert not (machine.root / ENABLED).is_symlink()
    assert not any("start nodevitals" in call for call in machine.calls())


def test_enabled_unit_is_enabled_again_after_a_removal(
    machine: Machine, old: dict[str, Path]
) -> None:
    succeed(machine.dpkg("-i", old[".deb"]))
    succeed(machine.dpkg("--remove", "nodevitals"))
    succeed(machine.dpkg("-i", old[".deb"]))
    assert machine.calls()[-1] == RESTART
    state = succeed(machine.run("systemctl", "is-enabled", "nodevitals.service"))
    assert state == "enabled\n"


def test_nothing_is_started_where_systemd_does_not_run(
    tmp_path: Path, old: dict[str, Path], new: dict[str, Path]
) -> None:
    """As in a chroot or while an image is built; the unit is enabled for the first boot."""
    with Machine(tmp_path / "image", booted=False) as image:
        succeed(image.dpkg("-i", old[".deb"]))
        assert (image.root / ENABLED).is_symlink()
        succeed(image.dpkg("-i", new[".deb"]))
        succeed(image.dpkg("--purge", "nodevitals"))
        assert not any("start" in call or "stop" in call for call in image.calls())
        assert image.written() == set()


def test_policy_of_the_machine_is_respected(machine: Machine, old: dict[str, Path]) -> None:
    """policy-rc.d: by convention 101 forbids starting services."""
    policy = machine.root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    succeed(machine.dpkg("-i", old[".deb"]))
    assert not any("start nodevitals" in call for call in machine.calls())


def test_maintainer_scripts_do_without_any_systemd(machine: Machine, old: dict[str, Path]) -> None:
    (machine.root / "usr/bin/systemctl").write_text("#!/bin/sh\nexit 1\n")
    succeed(machine.dpkg("-i", old[".deb"]))
    (machine.root / "usr/bin/systemctl").unlink()
    succeed(machine.dpkg("--purge", "nodevitals"))


@pytest.mark.proof("images")
def test_damaged_debian_package_is_refused(
    machine: Machine, old: dict[str, Path], new: dict[str, Path], tmp_path: Path
) -> None:
    """The installed version goes on, and the whole package installs over what is left."""
    succeed(machine.dpkg("-i", old[".deb"]))
    half = tmp_path / "half.deb"
    half.write_bytes(new[".deb"].read_bytes()[:1_500_000])
    assert machine.dpkg("-i", half).returncode != 0
    assert version(machine) == "0.1.0"
    succeed(machine.dpkg("-i", new[".deb"]))
    assert succeed(machine.run("dpkg", "--verify", "nodevitals")) == ""
    assert version(machine) == "0.1.1"


@pytest.mark.proof("images")
def test_half_installed_debian_package_is_completed(
    machine: Machine, old: dict[str, Path], new: dict[str, Path]
) -> None:
    """Power lost between unpacking and configuring; then files lost on disk."""
    succeed(machine.dpkg("-i", old[".deb"]))
    succeed(machine.dpkg("--unpack", new[".deb"]))
    assert "half-configured" in state(machine) or "unpacked" in state(machine)
    machine.calls()
    succeed(machine.dpkg("--configure", "-a"))
    assert machine.calls()[-1] == RESTART
    assert "install ok installed" in state(machine)
    shutil.rmtree(machine.root / LIBRARIES)
    assert "missing" in machine.run("dpkg", "--verify", "nodevitals").stdout
    succeed(machine.dpkg("-i", new[".deb"]))
    assert version(machine) == "0.1.1"


def state(machine: Machine) -> str:
    return succeed(machine.run("dpkg-query", "-W", "-f", "${Status}", "nodevitals"))


# RPM.


def test_rpm_requires_its_python(machine: Machine, old: dict[str, Path]) -> None:
    done = machine.rpm("-i", old[".rpm"])
    assert done.returncode != 0
    assert f"python(abi) = {target_python()} is needed by nodevitals" in done.stderr


def test_agent_of_the_rpm_package_serves(rpms: Machine, old: dict[str, Path]) -> None:
    """The presets leave the unit disabled, and nothing is started."""
    succeed(rpms.rpm("-i", old[".rpm"]))
    assert rpms.calls() == ["daemon-reload", "--no-reload preset nodevitals.service"]
    assert not (rpms.root / ENABLED).is_symlink()
    assert succeed(rpms.rpm("-V", "nodevitals")) == ""
    assert runs_of_node(rpms, 1) == 1


@pytest.mark.proof("images")
def test_rpm_upgrade_keeps_configuration_history_and_counters(
    rpms: Machine, old: dict[str, Path], new: dict[str, Path]
) -> None:
    """And a downgrade. RPM has no purge: it leaves the changed configuration and the state."""
    succeed(rpms.rpm("-i", old[".rpm"]))
    succeed(rpms.run("systemctl", "enable", "nodevitals.service"))
    edit(rpms)
    before = runs_of_node(rpms, 1)
    rpms.calls()
    succeed(rpms.rpm("-U", new[".rpm"]))
    reload = "daemon-reload"
    assert rpms.calls() == [reload, reload, "try-restart nodevitals.service"]
    assert (rpms.root / ENABLED).is_symlink()
    assert version(rpms) == "0.1.1"
    assert kept(rpms)
    assert "# as of 0.1.1" in (rpms.root / f"{CONFIG}.rpmnew").read_text()
    assert runs_of_node(rpms, before + 1) == before + 1

    rpms.calls()
    succeed(rpms.rpm("-U", "--oldpackage", old[".rpm"]))
    assert rpms.calls()[-1] == "try-restart nodevitals.service"
    assert version(rpms) == "0.1.0"
    assert kept(rpms)

    rpms.calls()
    succeed(rpms.rpm("-e", "nodevitals"))
    assert rpms.calls()[0] == "--no-reload disable --now nodevitals.service"
    assert (rpms.root / f"{CONFIG}.rpmsave").read_text().endswith(SITE)
    left = {path for path in rpms.written() if path != PRESET_OFF}
    configuration = {"etc/nodevitals", f"{CONFIG}.rpmsave", f"{CONFIG}.rpmnew"}
    history = {path for path in left if path.startswith("var/lib/nodevitals")}
    assert "var/lib/nodevitals/history.db" in history
    assert left - history == configuration


def test_rpm_leaves_nothing_of_an_agent_that_never_ran(rpms: Machine, old: dict[str, Path]) -> None:
    succeed(rpms.rpm("-i", old[".rpm"]))
    succeed(rpms.rpm("-e", "nodevitals"))
    assert rpms.written() <= {PRESET_OFF}


def test_rpm_keeps_the_configuration_of_an_installation_by_pip(
    rpms: Machine, old: dict[str, Path]
) -> None:
    (rpms.root / CONFIG).parent.mkdir()
    (rpms.root / CONFIG).write_text(SITE)
    succeed(rpms.rpm("-i", old[".rpm"]))
    assert (rpms.root / CONFIG).read_text() == SITE
    assert "# as of 0.1.0" in (rpms.root / f"{CONFIG}.rpmnew").read_text()


@pytest.mark.proof("images")
def test_damaged_rpm_is_refused_and_damage_repaired(
    rpms: Machine, old: dict[str, Path], new: dict[str, Path], tmp_path: Path
) -> None:
    succeed(rpms.rpm("-i", old[".rpm"]))
    half = tmp_path / "half.rpm"
    half.write_bytes(new[".rpm"].read_bytes()[:1_500_000])
    assert rpms.rpm("-U", half).returncode != 0
    assert version(rpms) == "0.1.0"
    shutil.rmtree(rpms.root / LIBRARIES)
    assert "missing" in rpms.rpm("-V", "nodevitals").stdout
    succeed(rpms.rpm("-U", "--replacepkgs", old[".rpm"]))
    assert succeed(rpms.rpm("-V", "nodevitals")) == ""
    assert version(rpms) == "0.1.0"


# The unit.


@pytest.mark.parametrize("as_user", [False, True])
def test_installed_unit_is_valid(machine: Machine, old: dict[str, Path], as_user: bool) -> None:
    """systemd-analyze also finds a program of ExecStart that is not there."""
    succeed(machine.dpkg("-i", old[".deb"]))
    if as_user:
        place = machine.root / "etc/systemd/system/nodevitals.service.d"
        place.mkdir()
        shutil.copy(drop_in(machine), place / "user.conf")
    assert verify(machine) == ""
    (machine.root / "usr/bin/nodevitals").unlink()
    assert "Command /usr/bin/nodevitals is not executable" in verify(machine)


def verify(machine: Machine) -> str:
    """What systemd-analyze says of the unit."""
    unit = "/usr/lib/systemd/system/nodevitals.service"
    return machine.analyze("verify", "--man=no", "--recursive-errors=no", unit).stderr


def drop_in(machine: Machine) -> Path:
    return machine.root / "usr/share/nodevitals/examples/nodevitals-user.conf"


def test_agent_as_a_system_user(machine: Machine, old: dict[str, Path]) -> None:
    """As the drop-in says in its header and below; every probe of such a node works."""
    succeed(machine.dpkg("-i", old[".deb"]))
    text = drop_in(machine).read_text()
    command = re.search(r"^#   (useradd .*)$", text, re.MULTILINE)
    assert command is not None
    succeed(machine.run(*command[1].split()))
    service = confinement.parse_service(text)
    names = [f"+{name.lower()}" for name in sorted(confinement.capabilities(service))]
    granted = ",".join(["-all", *names])
    user = ["setpriv", f"--reuid={service['User'][0]}", f"--regid={service['Group'][0]}"]
    limits = [f"--{kind}={granted}" for kind in ("bounding-set", "inh-caps", "ambient-caps")]
    for place in ("var/lib/nodevitals", "run/nodevitals"):
        (machine.root / place).mkdir(mode=0o700)
        succeed(machine.run("chown", "nodevitals:", f"/{place}"))
    wrapper = [*user, "--clear-groups", "--no-new-privs", *limits]
    with InstalledAgent(machine, *wrapper) as agent:
        for probe in ("node", "network", "kernel_log", "maintenance", "history"):
            wait_until(partial(succeeds, agent, probe), what=probe)
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        mask = sum(1 << confinement.CAPABILITIES.index(name.upper()[1:]) for name in names)
        assert f"CapBnd:\t{mask:016x}" in status
        assert "Uid:\t0" not in status


def succeeds(agent: Node, probe: str) -> bool:
    return agent.value("nodevitals_probe_success", probe=probe) == 1
