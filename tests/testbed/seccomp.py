"""System call filters as systemd builds them: libseccomp, and systemd's own groups of calls."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

TOOLS = Path(__file__).parents[2] / ".tools/root/usr"
ALLOW = 0x7FFF0000
DENY = 0x00050000
EQUAL, GREATER, MASKED_EQUAL, DIFFERENT = 4, 6, 7, 1
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
SETUID_BITS = (0o4000, 0o2000)
REALTIME_POLICIES = (1, 2, 6)
# The argument that is a file's mode.
MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdir": 1, "mkdirat": 2}
MODES |= {"open": 2, "openat": 3, "creat": 1, "mknod": 1, "mknodat": 2}


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp of seccomp.h."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@cache
def library() -> ctypes.CDLL:
    """Return libseccomp, from tools/setup or the system."""
    found = next(TOOLS.glob("lib/*/libseccomp.so.2"), Path("libseccomp.so.2"))
    lib = ctypes.CDLL(str(found))
    lib.seccomp_init.restype = ctypes.c_void_p
    return lib


class Filter:
    """A filter; what no rule matches has the default action."""

    def __init__(self, default: int = ALLOW) -> None:
        self._lib = library()
        self._context = ctypes.c_void_p(self._lib.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action: int, name: str, *comparisons: tuple[int, int, int, int]) -> None:
        """Add a rule for a call; one that this kernel's headers do not know is left out."""
        number = self._lib.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return
        array = (Comparison * len(comparisons))(*(Comparison(*one) for one in comparisons))
        code = self._lib.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(comparisons), array
        )
        assert code == 0, f"{name}: {os.strerror(-code)}"

    def load(self) -> None:
        """Apply it to this process and its descendants."""
        code = self._lib.seccomp_load(self._context)
        assert code == 0, os.strerror(-code)


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, from tools/setup or the system."""
    own = TOOLS / "bin/systemd-analyze"
    program = str(own) if own.exists() else shutil.which("systemd-analyze")
    assert program is not None, "there is no systemd-analyze: tools/setup"
    libraries = [str(path) for path in (*TOOLS.glob("lib/*-linux-gnu*"),) if own.exists()]
    libraries += [f"{path}/systemd" for path in libraries]
    return subprocess.run(
        [program, "--no-pager", *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)},
        capture_output=True,
        text=True,
        check=False,
    )


def group(name: str) -> set[str]:
    """The calls of a group such as @system-service."""
    listed = systemd_analyze("syscall-filter", name)
    assert listed.returncode == 0, listed.stderr
    found: set[str] = set()
    for line in listed.stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            found |= group(word)
        elif word and not word.startswith("#"):
            found.add(word)
    return found


def calls(lines: Sequence[str], error: int) -> Filter:
    """SystemCallFilter= as a list of permitted calls, less those of lines with a ~."""
    allowed = group("@default")
    for line in lines:
        words = line.removeprefix("~").split()
        named = {one for word in words for one in (group(word) if word[0] == "@" else {word})}
        allowed = allowed - named if line.startswith("~") else allowed | named
    made = Filter(DENY | error)
    for name in sorted(allowed):
        made.rule(ALLOW, name)
    return made


def families(names: Sequence[str]) -> Filter:
    """RestrictAddressFamilies= as a list of permitted families."""
    permitted = {int(getattr(socket, name)) for name in names}
    made = Filter()
    for call in ("socket", "socketpair"):
        for family in set(range(max(permitted))) - permitted:
            made.rule(DENY | errno.EAFNOSUPPORT, call, (0, EQUAL, family, 0))
        made.rule(DENY | errno.EAFNOSUPPORT, call, (0, GREATER, max(permitted), 0))
    return made


def no_namespaces() -> Filter:
    """RestrictNamespaces=yes. The flags of clone3 are in memory, where a filter cannot read."""
    made = Filter()
    made.rule(DENY | errno.ENOSYS, "clone3")
    made.rule(DENY | errno.EPERM, "setns")
    for call in ("clone", "unshare"):
        for flag in NAMESPACES:
            made.rule(DENY | errno.EPERM, call, (0, MASKED_EQUAL, flag, flag))
    return made


def no_setuid_files() -> Filter:
    """RestrictSUIDSGID=yes."""
    made = Filter()
    for call, argument in MODES.items():
        for bit in SETUID_BITS:
            made.rule(DENY | errno.EPERM, call, (argument, MASKED_EQUAL, bit, bit))
    return made


def no_realtime() -> Filter:
    """RestrictRealtime=yes."""
    made = Filter()
    for policy in REALTIME_POLICIES:
        made.rule(DENY | errno.EPERM, "sched_setscheduler", (1, EQUAL, policy, 0))
    return made


def no_personality() -> Filter:
    """LockPersonality=yes, where the personality is Linux' own."""
    made = Filter()
    made.rule(DENY | errno.EPERM, "personality", (0, DIFFERENT, 0, 0))
    return made
