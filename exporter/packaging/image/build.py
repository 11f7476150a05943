"""Makes the root file system: `build.py [--image hub] ARCHITECTURE FETCHED ROOT WHEEL...`.

In: the folder that `fetch.py` filled, and wheels of this project. Out: ROOT, with the owners and
modes of the image, so it needs root. Nothing is downloaded. Nothing of ROOT is executed, except
Python to compile where PATH has no python3.11: both architectures are built on any machine. The
Containerfile and the tests call it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import fetch
import lock

NUMBER = 65532
SITE = "usr/local/lib/python3.11/dist-packages"
# Where usr/ has been merged, these are links; the packages of Debian 12 still use both names.
MERGED = ("bin", "lib", "lib64", "sbin")
# Not needed to run the agent and its tools. Copyrights stay: the licences ask for them.
LEFT_OUT = (
    *("usr/share/man/*", "usr/share/info/*", "usr/share/lintian/*", "usr/share/locale/*"),
    *("usr/share/bug/*", "usr/share/apport/*", "usr/share/gcc/*", "usr/share/gdb/*"),
    *("usr/share/python3/*", "usr/share/binfmts/*", "usr/share/applications/*"),
    *("usr/share/pixmaps/*", "usr/share/menu/*", "usr/share/debianutils/*", "usr/lib/udev/*"),
    *("etc/init.d/*", "etc/ufw/*", "usr/lib/systemd/*", "usr/lib/binfmt.d/*"),
    *("etc/update-motd.d/*", "etc/profile.d/*", "etc/skel/*", "root/.*"),
    *("usr/lib/*/gconv/*", "usr/lib/*/audit/*", "usr/lib/*/perl5/*", "usr/bin/run_perftest_*"),
    *("usr/lib/python3.11/pydoc_data/*", "usr/lib/python3.11/test/*"),
    *("usr/lib/python3.11/unittest/*", "usr/lib/python3.11/lib2to3/*"),
    *("usr/lib/python3.11/distutils/*", "usr/lib/python3.11/ensurepip/*"),
    # Modules whose libraries are not in the image, and Python's own tests.
    *(
        f"usr/lib/python3.11/lib-dynload/{name}.cpython-*"
        for name in ("_crypt", "_curses*", "_dbm", "nis", "readline", "_*test*", "xxlimited*")
    ),
)
FILES = {
    "etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\n"
    f"nodevitals:x:{NUMBER}:{NUMBER}:nodevitals:/var/lib/nodevitals:/usr/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnodevitals:x:{NUMBER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # NVIDIA's runtime writes a file into this folder and makes the cache with the node's ldconfig.
    "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
}
# Mount points: a read-only root has no room for what is not there.
FOLDERS = (
    *("dev", "proc", "sys", "run", "host", "etc/nodevitals", "etc/ld.so.conf.d"),
    *("var/lib/kubelet/pod-resources", "usr/local/bin", "usr/local/sbin", "usr/local/Ascend"),
)
STATE = {"agent": "var/lib/nodevitals", "hub": "var/lib/nodevitals-hub"}
PROGRAM = """\
#!/usr/bin/python3.11
import sys

from nodevitals.commands.cli import main

sys.exit(main())
"""


def left_out(path: str) -> bool:
    """Whether the image leaves this file of a package out."""
    if path.startswith("usr/share/doc/"):
        return PurePosixPath(path).name != "copyright"
    return any(fnmatch(path, pattern) for pattern in LEFT_OUT)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The files of a package that belong in the image, at their place in a merged /usr."""
    for member in archive:
        path = member.name.removeprefix("./")
        if path.split("/")[0] in MERGED:
            path = f"usr/{path}"
        is_copyright_link = member.issym() and path.startswith("usr/share/doc/")
        if not path or member.isdir() or (left_out(path) and not is_copyright_link):
            continue
        member.name = path
        if member.islnk():
            member.linkname = member.linkname.removeprefix("./")
        member.mode &= 0o755
        yield member


def unpack(package: Path, root: Path) -> None:
    """Unpack a Debian package, and leave its description where scanners of images look."""
    stream = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=stream.stdout, mode="r|") as archive:
        for member in members(archive):
            archive.extract(member, root, filter="fully_trusted")
    if stream.wait(timeout=60) != 0:
        sys.exit(f"build: dpkg-deb could not unpack {package}")
    described = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True)
    name = package.name.split("_")[0]
    (root / "var/lib/dpkg/status.d" / name).write_bytes(described.stdout)


def install_debian(image: str, architecture: str, fetched: Path, root: Path) -> None:
    """Unpack every package of the lock that belongs in the image."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "var/lib/dpkg/status.d").mkdir(parents=True)
    names = lock.names(image)
    wanted = fetch.read_lock((fetched / "debian.lock").read_text(), architecture)
    for path, digest in wanted.items():
        package = fetched / Path(path).name
        if hashlib.sha256(package.read_bytes()).hexdigest() != digest:
            sys.exit(f"build: {package} does not have the SHA-256 of {fetched}/debian.lock")
        if package.name.split("_")[0] in names:
            unpack(package, root)


def install_python(
    image: str, architecture: str, fetched: Path, wheels: list[Path], root: Path
) -> None:
    """Install the wheels, and compile all modules: a read-only root cannot keep compiled ones."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile"]
    pip += ["--target", str(root / SITE), "--upgrade", *fetch.pip_options(architecture)]
    pip += ["--root-user-action=ignore", "--no-cache-dir"]
    locked = [
        "--find-links",
        str(fetched),
        "--require-hashes",
        "-r",
        str(lock.HERE / lock.PYTHON[image]),
    ]
    subprocess.run([*pip, *locked], check=True)
    subprocess.run([*pip, *map(str, wheels)], check=True)
    for name in ("bin", "share"):  # programs of this machine; pages and completions
        shutil.rmtree(root / SITE / name)
    program = root / "usr/bin/nodevitals"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    command, more = interpreter(architecture, root)
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
    folders = [str(root / "usr/lib/python3.11"), str(root / SITE)]
    compiled = [*command, "-m", "compileall", *options, *folders]
    subprocess.run(compiled, check=True, env={**os.environ, **more})


def interpreter(architecture: str, root: Path) -> tuple[list[str], dict[str, str]]:
    """The command of a Python 3.11, and its environment: that of PATH, or that of the image."""
    found = shutil.which("python3.11")
    if found is not None:
        return [found, "-I"], {}
    machine = fetch.MACHINES[architecture]
    if machine != os.uname().machine:
        sys.exit(f"build: {architecture} needs python3.11 on PATH on this machine")
    (loader,) = (root / "usr/lib").glob(f"{machine}-linux-gnu/ld-linux-*")
    command = [str(loader), "--library-path", str(loader.parent), str(root / "usr/bin/python3.11")]
    return command, {"PYTHONHOME": str(root / "usr")}


def finish(image: str, root: Path) -> None:
    """Users, mount points and folders to write to."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (root / name).write_text(text)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    state = root / STATE[image]
    state.mkdir(mode=0o700)
    os.chown(state, NUMBER, NUMBER)


def main() -> None:
    """Make the root file system of one image for one architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", choices=lock.PYTHON, default="agent")
    parser.add_argument("architecture", choices=fetch.MACHINES)
    for name in ("fetched", "root"):
        parser.add_argument(name, type=Path)
    parser.add_argument("wheels", type=Path, nargs="+")
    options = parser.parse_args()
    os.umask(0o022)
    options.root.mkdir(parents=True)
    install_debian(options.image, options.architecture, options.fetched, options.root)
    install_python(
        options.image, options.architecture, options.fetched, options.wheels, options.root
    )
    finish(options.image, options.root)


if __name__ == "__main__":
    main()
