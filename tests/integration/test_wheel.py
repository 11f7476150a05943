"""The wheel in a clean virtual environment, outside the checkout and without the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from nodevitals import __version__
from nodevitals.commands.hub.command import LOWEST_PYTHON
from testbed import image
from testbed.node import ROOT, Node, free_port, wait_until

# Imports every module; prints their number, all files, and the modules that lack an extra.
MODULES = """
import importlib, json, pkgutil, sys, nodevitals
names = [one.name for one in pkgutil.walk_packages(nodevitals.__path__, "nodevitals.")]
missing = {}
for name in names:
    try:
        name == "nodevitals.__main__" or importlib.import_module(name)
    except Exception as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__context__
        missing[name] = cause.name if isinstance(cause, ModuleNotFoundError) else str(error)
files = [one.__file__ for one in list(sys.modules.values()) if getattr(one, "__file__", None)]
print(json.dumps([len(names), files, missing]))
"""
# Where an extra is imported at the top: in one worker of `kubernetes`, and in what collectives need
# of Kubernetes.
WITH_EXTRAS = ("nodevitals.probes.kubernetes.", "nodevitals.checks.launchers.kubernetes_")
STYLE = ROOT / "hub/nodevitals_hub/web/static/style.css"
EXTRAS = {"h2", "google", "httpx2", "lightkube"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment, with the dependencies of the lock and no extra."""
    folder = tmp_path_factory.mktemp("wheel")
    wheels = image.FETCHED / "wheels"
    assert wheels.is_dir(), f"there is no {wheels}: tools/setup"
    base = Path(sys.base_prefix, "bin/python3")
    made = folder / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", made], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(made / "bin/python"), "install", "--quiet"]
    offline = ["--no-index", "--find-links", str(wheels), "--disable-pip-version-check"]
    wheel = image.build_wheel(folder / "built")
    environment = {**clean(), "PIP_FIND_LINKS": "", "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([*pip, *offline, str(wheel)], check=True, env=environment)
    return made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the hub, unpacked."""
    folder = tmp_path_factory.mktemp("hub")
    wheel = image.build_wheel(folder / "built", "nodevitals_hub")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def beside(folder: Path, hub: Path, *lacking: str) -> str:
    """A PYTHONPATH with the hub and the libraries of the tests' environment but some, and nothing
    of the checkout.
    """
    others = folder / "others"
    others.mkdir()
    for found in (*Path(sysconfig.get_path("purelib")).iterdir(), *hub.iterdir()):
        if found.name not in lacking and not found.name.startswith("_editable_impl_nodevitals"):
            target = others / found.name
            if "nodevitals" not in found.name or found.parent == hub:
                target.symlink_to(found)
    return str(others)


def clean() -> dict[str, str]:
    """An environment without anything of this checkout."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def run(
    installed: Path, folder: Path, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of the virtual environment in a folder of its own."""
    return subprocess.run(
        [installed / "bin" / command[0], *command[1:]],
        cwd=folder,
        env={**clean(), **environment},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_module_is_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "python", "-c", MODULES)
    assert done.returncode == 0, done.stderr
    count, files, missing = json.loads(done.stdout)
    own = sorted(one for one in files if "nodevitals" in Path(one).name or "/nodevitals/" in one)
    assert count > 100
    assert len(own) >= count - len(missing) - 1
    assert [name for name in missing if not name.startswith(WITH_EXTRAS)] == []
    assert set(missing.values()) <= EXTRAS
    assert [one for one in own if not one.startswith(str(installed))] == []
    assert [one for one in files if one.startswith(str(ROOT))] == []


def test_commands_work_without_extras(installed: Path, tmp_path: Path) -> None:
    example = str(ROOT / "exporter/packaging/nodevitals.example.yaml")
    for command in (
        ("--version",),
        ("--help",),
        ("check-config", example),
        ("metrics",),
        ("probe", "node"),
        ("completion", "bash"),
        ("rules", "render", "--output", "rendered"),
        ("rules", "check", str(ROOT / "rules")),
    ):
        done = run(installed, tmp_path, "nodevitals", *command)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout or command[0] == "rules", command
    rendered = {file.name for file in (tmp_path / "rendered").glob("*.yaml")}
    assert rendered >= {file.name for file in (ROOT / "rules").glob("*.yaml")}


def test_init_writes_every_file_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Status 1 where the Python of this machine lies in root's home, which the unit hides."""
    done = run(installed, tmp_path, "nodevitals", "init", "made", "--expected", "none")
    assert (done.returncode, done.stderr) == (int("Warning: " in done.stdout), "")
    assert "checkout" not in done.stdout
    made = tmp_path / "made"
    unit = (made / "nodevitals.service").read_text()
    assert f"ExecStart={installed}/bin/nodevitals serve --config.file=/etc/nodevitals/" in unit
    assert len(list((made / "prometheus/rules").glob("*.yaml"))) == len(
        list((ROOT / "rules").glob("*.yaml"))
    )
    assert len(list((made / "grafana/dashboards").glob("*/*.json"))) == len(
        list((ROOT / "helm/nodevitals/files/dashboards").glob("*/*.json"))
    )
    assert (made / "grafana/provisioning/dashboards/nodevitals.yaml").exists()
    assert (made / "alertmanager/templates/nodevitals.tmpl").exists()


def test_the_unit_starts_the_link_that_pipx_makes(installed: Path, tmp_path: Path) -> None:
    """The link survives `pipx upgrade`; what it points to may not."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nodevitals").symlink_to(installed / "bin/nodevitals")
    subprocess.run(
        ["nodevitals", "init", "made", "--expected", "none"],
        cwd=tmp_path,
        env={**clean(), "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    unit = (tmp_path / "made/nodevitals.service").read_text()
    assert f"ExecStart={programs}/nodevitals serve " in unit


def test_man_page_and_completions_are_where_shells_look(installed: Path) -> None:
    packaging = ROOT / "exporter/packaging"
    for name, place in (
        ("nodevitals.1", "man/man1/nodevitals.1"),
        ("completions/nodevitals.bash", "bash-completion/completions/nodevitals"),
        ("completions/_nodevitals", "zsh/site-functions/_nodevitals"),
    ):
        assert (installed / "share" / place).read_bytes() == (packaging / name).read_bytes()


class Installed(Node):
    """An agent of the virtual environment."""

    program: Path

    def command(self) -> list[str]:
        words = super().command()
        return [str(self.program), *words[words.index("serve") :]]


def test_agent_serves_metrics(installed: Path, tmp_path: Path) -> None:
    node = Installed(tmp_path, {})
    node.program = installed / "bin/nodevitals"
    node.environment = clean()
    with node:
        wait_until(lambda: node.value("nodevitals_probe_success", probe="node") == 1)
        wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 1)
    assert node.process.returncode == 0


@pytest.mark.parametrize("lacking", ["litestar", "httpx2", "hypercorn", "jinja2"])
def test_the_hub_names_the_package_that_is_missing(
    installed: Path, unpacked: Path, tmp_path: Path, lacking: str
) -> None:
    """Also one that only a module imports which the hub starts later."""
    done = hub(installed, tmp_path, PYTHONPATH=beside(tmp_path, unpacked, lacking))
    text = f"the package {lacking} is missing: pip install nodevitals-hub=={__version__}\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_the_agent_names_the_line_that_installs_the_hub(installed: Path, tmp_path: Path) -> None:
    done = hub(installed, tmp_path)
    text = f"the hub is missing: pip install nodevitals-hub=={__version__}\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_the_wheel_of_the_hub_asks_for_the_agent_of_its_version(unpacked: Path) -> None:
    [folder] = unpacked.glob("*.dist-info")
    found = metadata.PathDistribution(folder)
    assert found.version == __version__
    assert f"nodevitals=={__version__}" in (found.requires or ())
    assert found.metadata["Requires-Python"] == ">=" + ".".join(map(str, LOWEST_PYTHON))
    assert (folder / "licenses/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert {one.name for one in unpacked.iterdir()} == {folder.name, "nodevitals_hub"}


def test_the_hub_names_the_python_that_it_needs(installed: Path, tmp_path: Path) -> None:
    """It does not import what has no release for an older one; the interpreter imports
    sitecustomize.
    """
    older = tmp_path / "older/sitecustomize.py"
    older.parent.mkdir()
    older.write_text('import sys\nsys.version_info = (3, 9, 18, "final", 0)\n')
    done = hub(installed, tmp_path, PYTHONPATH=str(older.parent))
    text = "the hub needs Python 3.11 or later, and this is Python 3.9.18\n"
    assert (done.returncode, done.stderr) == (2, text)


def hub(installed: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a hub that is expected to end."""
    config = folder / "hub.yaml"
    config.write_text(f"state_directory: {folder / 'state'}\n")
    options = [f"--config.file={config}", f"--web.listen-address=127.0.0.1:{free_port()}"]
    return run(installed, folder, "nodevitals", "hub", *options, **environment)


def test_the_hub_serves_its_templates_and_its_style_sheet(
    installed: Path, unpacked: Path, tmp_path: Path
) -> None:
    """With the libraries of the hub from the environment of the tests."""
    config, port = tmp_path / "hub.yaml", free_port()
    config.write_text(f"state_directory: {tmp_path / 'state'}\n")
    listen = f"--web.listen-address=127.0.0.1:{port}"
    argv = [str(installed / "bin/nodevitals"), "hub", f"--config.file={config}", listen]
    environment = {**clean(), "PYTHONPATH": beside(tmp_path, unpacked)}

    def answer(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
                return str(found.read().decode())
        except OSError:
            return ""

    with subprocess.Popen(argv, cwd=tmp_path, env=environment) as process:
        try:
            wait_until(lambda: answer("/healthz") == "ok\n")
            assert "<form" in answer("/")
            assert answer("/static/style.css") == STYLE.read_text()
        finally:
            process.terminate()
    assert process.returncode == 0
