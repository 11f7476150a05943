"""Downloads what the images are made of: `fetch.py [--newer] ARCHITECTURE FOLDER`.

In: debian.lock, python.lock, hub.lock; a Debian mirror (the one that apt is configured with, then
the snapshot of the day of the lock), PyPI. Out: FOLDER with one file per Debian package and per
Python package, each with the SHA-256 of its lock, and `debian.lock`, by which `build.py` verifies
them.
--newer, for tests: what no mirror serves any more is replaced by its newest version.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import lock

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# https://peps.python.org/pep-0600/; the image's glibc is 2.36.
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")
PYTHON = ("--implementation=cp", "--python-version=3.11", "--abi=cp311", "--abi=abi3", "--abi=none")
SNAPSHOT = "https://snapshot.debian.org/archive"


def pip_options(architecture: str) -> list[str]:
    """The options by which pip chooses wheels for the image, whatever machine it runs on."""
    machine = MACHINES[architecture]
    platforms = [f"--platform={name}_{machine}" for name in PLATFORMS]
    return [*PYTHON, *platforms, "--only-binary=:all:", "--no-deps", "--disable-pip-version-check"]


def read_lock(text: str, architecture: str) -> dict[str, str]:
    """SHA-256 by path of the Debian packages for an architecture."""
    suffixes = (f"_{architecture}.deb", "_all.deb")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {path: digest for digest, path in lines if path.endswith(suffixes)}


def mirrors(text: str) -> list[tuple[str, str]]:
    """Pairs of an archive's name (debian, debian-security) and where it is served."""
    printed = subprocess.run(
        ["apt-get", "update", "--print-uris"], check=True, capture_output=True, text=True
    ).stdout
    configured = re.findall(r"'(\S*/(debian|debian-security))/dists/", printed)
    snapshot = re.findall(r"# snapshot (\S+)", text)[0]
    archives = ("debian", "debian-security")
    found = [(archive, base) for base, archive in configured]
    found += [(archive, f"{SNAPSHOT}/{archive}/{snapshot}") for archive in archives]
    return list(dict.fromkeys(found))


def download(path: str, digest: str, folder: Path, served: list[tuple[str, str]]) -> bool:
    """Whether the folder has this file with this SHA-256, from before or from a mirror."""
    target = folder / Path(path).name
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
        return True
    archive, _, rest = path.partition("/")
    for base in [base for name, base in served if name == archive]:
        helper = ["/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "download-file"]
        done = subprocess.run(
            [*helper, f"{base}/{quote(rest)}", str(target), f"SHA256:{digest}"],
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return True
    return False


def fetch_debian(architecture: str, folder: Path, newer: bool) -> None:
    """Download the Debian packages."""
    text = (lock.HERE / "debian.lock").read_text()
    wanted = read_lock(text, architecture)
    served = mirrors(text)
    gone = {path for path in wanted if not download(path, wanted[path], folder, served)}
    if gone and not newer:
        sys.exit(f"fetch: no mirror serves {sorted(gone)} with the SHA-256 of debian.lock")
    names = [Path(path).name.split("_")[0] for path in sorted(gone)]
    replaced = lock.resolve(architecture, names) if gone else {}
    for path, digest in replaced.items():
        if not download(path, digest, folder, served):
            sys.exit(f"fetch: no mirror serves {path}")
        print(f"fetch: {Path(path).name} is newer than debian.lock: `make lock`", file=sys.stderr)
    wanted = {path: digest for path, digest in wanted.items() if path not in gone} | replaced
    lines = [f"{digest}  {path}\n" for path, digest in wanted.items()]
    (folder / "debian.lock").write_text("".join(lines))


def fetch_python(architecture: str, folder: Path) -> None:
    """Download the wheels of both images."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"]
    for name in lock.PYTHON.values():
        requirements = ["--requirement", str(lock.HERE / name), "--dest", str(folder)]
        subprocess.run([*pip, *pip_options(architecture), *requirements], check=True)


def main() -> None:
    """Download for one architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newer", action="store_true")
    parser.add_argument("architecture", choices=MACHINES)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    fetch_debian(options.architecture, options.folder, options.newer)
    fetch_python(options.architecture, options.folder)


if __name__ == "__main__":
    main()
