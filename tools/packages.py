"""`make packages`: the Debian and RPM package of this checkout.

In: the checkout, exporter/packaging/nfpm.yaml, the wheels that the lock beside it names.
Out: dist/nodevitals_VERSION-1.pyX.Y_ARCH.deb and the .rpm; the same checkout and interpreter make
the same bytes. The wheels come from PyPI once, into .tools/wheels.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

TOP = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.executable).parent
# By Debian's name. glibc 2.28 is older than that of any supported distribution with Python 3.9.
PLATFORMS = {
    "amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    "arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64"),
}
# What nfpm.yaml takes from the checkout.
PARTS = ("exporter/packaging", "docs")
FILES = ("README.md", "CHANGELOG.md")
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def fail(text: str) -> NoReturn:
    """End with one line for people."""
    sys.exit(f"packages: {text}")


def run(*argv: str | Path, folder: Path = TOP, **variables: str) -> str:
    """Run a program and return its output. What it says on failure is shown."""
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, **variables},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        fail(f"{Path(argv[0]).name} {argv[1]} failed:\n{done.stdout.rstrip()}")
    return done.stdout.strip()


def version_of(interpreter: str) -> str | None:
    """The version X.Y of an interpreter; None where there is none."""
    if not (found := shutil.which(interpreter)):
        return None
    return run(found, "-Ic", "import sys; print('%d.%d' % sys.version_info[:2])")


def default_python() -> str:
    """The version of this system's interpreter, where there are packages for it."""
    found = (version_of(name) for name in ("/usr/bin/python3", sys.executable))
    return next((one for one in found if one in VERSIONS), "3.11")


def interpreter_for(python: str) -> str:
    """The interpreter that compiles the modules: bytecode is bound to X.Y, too."""
    for name in (f"/usr/bin/python{python}", f"python{python}", sys.executable):
        if version_of(name) == python:
            return name
    fail(
        f"there is no python{python}, which a package for it is compiled with; "
        f"install it, or: make packages FOR_PYTHON={default_python()}"
    )


def wheel_options(python: str, arch: str) -> list[str]:
    """The options of pip that select the wheels of the nodes, not of this machine."""
    platforms = [word for name in PLATFORMS[arch] for word in ("--platform", name)]
    target = ["--python-version", python, "--implementation", "cp", *platforms]
    return ["--no-deps", "--only-binary=:all:", *target]


def lock_of(source: Path, python: str) -> Path:
    """The lock file: wheels for Python 3.9 end with earlier versions."""
    name = "requirements-3.9.lock" if python == "3.9" else "requirements.lock"
    return source / "exporter/packaging" / name


def fetch(source: Path, python: str, arch: str) -> Path:
    """The folder with the locked wheels; downloaded where the lock file is another than then."""
    lock = lock_of(source, python)
    folder = TOP / ".tools/wheels" / f"{python}-{arch}"
    kept = folder / "requirements.lock"
    if not kept.exists() or kept.read_bytes() != lock.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes"]
        options += [*wheel_options(python, arch), "--requirement", str(lock)]
        run(PROGRAMS / "pip", "download", *options, "--dest", folder)
        shutil.copy(lock, kept)
    return folder


def install(source: Path, wheels: Path, site: Path, options: list[str], epoch: str) -> str:
    """Install this checkout's wheel and the locked ones into a folder. Returns the version."""
    with tempfile.TemporaryDirectory() as made:
        options_of_build = ["build", "--target", "wheel", "--directory", made]
        run(PROGRAMS / "hatchling", *options_of_build, folder=source, SOURCE_DATE_EPOCH=epoch)
        wheel = next(Path(made).glob("*.whl"))
        version = wheel.name.split("-")[1]
        own = Path(made, "own.txt")
        # pip wants a hash of each wheel as soon as one has a hash.
        digest = run(PROGRAMS / "pip", "hash", wheel).split()[-1]
        own.write_text(f"nodevitals=={version} {digest}\n")
        quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--no-compile"]
        found = ["--no-index", "--find-links", str(wheels), "--find-links", made]
        locked = ["--requirement", str(wheels / "requirements.lock"), "--requirement", str(own)]
        target = ["--target", str(site), *options]
        run(PROGRAMS / "pip", "install", *quiet, *found, *locked, *target)
    shutil.rmtree(site / "bin")  # its first line is the interpreter of this machine
    shutil.rmtree(site / "share")  # the package has them in /usr/share
    for record in site.glob("*.dist-info/RECORD"):
        record.unlink()  # without it pip does not remove what the package manager has installed
    return version


def stage(source: Path, folder: Path, python: str, arch: str, epoch: str) -> str:
    """Make what becomes /usr/lib/nodevitals: a virtual environment of the distribution's Python.

    The processes that the agent starts find the modules by its pyvenv.cfg, with no variable.
    """
    interpreter = interpreter_for(python)
    site = folder / f"lib/python{python}/site-packages"
    wheels = fetch(source, python, arch)
    version = install(source, wheels, site, wheel_options(python, arch), epoch)
    # A site's own probes: nodevitals/probes/NAME.py below it.
    (site / "site-probes.pth").write_text("/usr/local/lib/nodevitals\n")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    prefix = ["-s", str(folder), "-p", "/usr/lib/nodevitals"]
    compile_all = ["-Im", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    run(interpreter, *compile_all, *prefix, site)
    return version


def level(folder: Path, epoch: str) -> None:
    """Give all files one time and one mode: those of a checkout depend on when and by whom."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (int(epoch), int(epoch)))
        path.chmod(0o755 if path.is_dir() else 0o644)


def epoch_of(source: Path) -> str:
    """The time that all files get: SOURCE_DATE_EPOCH, or that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run("git", "log", "-1", "--format=%ct", folder=source)


def build(source: Path, output: Path, python: str, arch: str) -> list[Path]:
    """Make both packages. Returns their paths."""
    output.mkdir(parents=True, exist_ok=True)
    epoch = epoch_of(source)
    with tempfile.TemporaryDirectory() as made:
        private, copy = Path(made, "nodevitals"), Path(made, "checkout")
        version = stage(source, private, python, arch, epoch)
        for part in PARTS:
            shutil.copytree(source / part, copy / part)
        for name in FILES:
            shutil.copy(source / name, copy)
        level(Path(made), epoch)
        variables = {
            "SOURCE_DATE_EPOCH": epoch,
            "STAGE": str(private),
            "VERSION": version,
            "FOR_PYTHON": python,
            "ARCH": arch,
        }
        paths = []
        for packager in ("deb", "rpm"):
            options = ["--packager", packager, "--config", "exporter/packaging/nfpm.yaml"]
            options += ["--target", str(output)]
            said = run(PROGRAMS / "nfpm", "package", *options, folder=copy, **variables)
            created = re.search(r"created package: (.+)", said)
            if created is None:
                fail(f"nfpm named no package:\n{said}")
            paths.append(Path(created[1]))
    return paths


def main() -> None:
    """Read the options, build, print the paths."""
    parser = argparse.ArgumentParser(description=__doc__, prog="packages")
    parser.add_argument("--source", type=Path, default=TOP, help="checkout to build")
    parser.add_argument("--output", type=Path, default=TOP / "dist", help="folder of the packages")
    parser.add_argument("--python", default="", help="X.Y of the nodes; default: /usr/bin/python3")
    parser.add_argument("--arch", choices=PLATFORMS, default="", help="default: this machine's")
    parser.add_argument("--fetch", action="store_true", help="download the wheels and end")
    options = parser.parse_args()
    python = options.python or default_python()
    if python not in VERSIONS:
        fail(f"Python {python}: not one of {', '.join(VERSIONS)}; make packages FOR_PYTHON=3.11")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")
    arch = options.arch or machine
    if arch not in PLATFORMS:
        fail(f"no package for {os.uname().machine}: make packages ARCH=amd64, or arm64")
    if options.fetch:
        fetch(options.source, python, arch)
        return
    for path in build(options.source.resolve(), options.output.resolve(), python, arch):
        print(path)


if __name__ == "__main__":
    main()
