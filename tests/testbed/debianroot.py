"""The root file system of a fresh Debian 12, and the programs that make and connect it.

In: a Debian mirror, a folder as cache. Out: a folder with the essential packages, apt, systemd,
certificates and `ip`; its mirrors and its name, and the certificates that this machine trusts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
SOURCES = f"""\
deb {MIRROR} bookworm main
deb {MIRROR} bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
"""
HOSTNAME = "node-1"
HOSTS = f"127.0.0.1 localhost\n127.0.1.1 {HOSTNAME}\n::1 localhost\n"  # as Debian's installer
RESOLVER = "nameserver 10.0.2.3\n"  # slirp4netns
BOOTSTRAP = "mmdebstrap --quiet --variant=minbase --include=init,ca-certificates,iproute2 bookworm"
# Debian packages, unpacked into the cache: this machine need not have them.
TOOLS = ("mmdebstrap", "slirp4netns", "libslirp0", "libglib2.0-0", "libseccomp2")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def make_root(root: Path, cache: Path) -> None:
    """Unpack the root file system, which is made once per cache."""
    archive = cache / "base.tar"
    if not archive.exists():
        partial = cache / "partial.tar"
        command = [*BOOTSTRAP.split(), str(partial), MIRROR]
        subprocess.run(command, check=True, env=with_tools(cache))
        partial.rename(archive)
    root.mkdir(parents=True)
    subprocess.run(["tar", "-C", root, "-xf", archive], check=True)
    (root / "etc/apt/sources.list").write_text(SOURCES)
    (root / "etc/hostname").write_text(f"{HOSTNAME}\n")
    (root / "etc/hosts").write_text(HOSTS)
    (root / "etc/resolv.conf").write_text(RESOLVER)
    # Where a proxy signs PyPI's answers, its certificate is among those of this machine.
    shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    (root / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")


def with_tools(cache: Path) -> dict[str, str]:
    """Return the environment in which the programs of TOOLS are found."""
    folder = cache / "tools"
    if not folder.exists():
        partial = cache / "tools.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        unsandboxed = "APT::Sandbox::User=root"  # another user may not write to the cache
        download = ["apt-get", "-qq", "-o", unsandboxed, "download", *TOOLS]
        subprocess.run(download, check=True, cwd=partial)
        for package in partial.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, partial], check=True)
        partial.rename(folder)
    path = f"{folder}/usr/bin:{os.environ['PATH']}"
    libraries = ":".join(map(str, (folder / "usr/lib").glob("*-linux-gnu")))
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": libraries}
