"""Calls of libc that fail on request, in a process that preloads `library()`.

`Calls()` controls them there: which paths the process uses, which call fails with which errno, what
a file contains, and the clocks. The library is below Python and below all of our code.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from uuid import uuid4

import msgspec

SOURCES = Path(__file__).parent / "faults"


@cache
def library(name: str = "calls") -> Path:
    """Return the library of a source, compiled; the folder's name has a digest of the source."""
    source = SOURCES / f"{name}.c"
    compiler = shutil.which("cc")
    assert compiler is not None, "there is no C compiler: tools/setup"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = Path(__file__).parents[2] / ".tools" / f"faults-{name}-{digest}"
    made = folder / "libfaults.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"draft.{uuid4().hex}"  # pids of workers are alike
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
        subprocess.run([compiler, *flags, "-o", draft, source, "-ldl"], check=True)
        draft.replace(made)
    return made


class Fault(msgspec.Struct, frozen=True):
    """How a path fails. `where` is `open` (also listing it, its link and its status), `read`,
    `content` (what it then holds) or `short` (its first read returns one byte). With `below`, every
    path below it as well.
    """

    name: str
    where: str
    error: str = ""
    content: bytes = b""
    below: bool = False


ERRORS = (
    *("EACCES", "EPERM", "ENOENT", "EIO", "EINVAL", "ENODEV", "ENXIO", "EOPNOTSUPP", "EAGAIN"),
    *("ETIMEDOUT", "EMFILE", "ENOMEM", "ESTALE"),
)
OPEN_FAULTS = tuple(Fault(f"open {error}", "open", error) for error in ERRORS)
READ_FAULTS = tuple(Fault(f"read {error}", "read", error) for error in ERRORS)
CONTENTS = {
    "empty": b"",
    "garbage": b"garbage: 7 of \xc2\xb2 nan\n",
    "negative": b"-7\n",
    "400 digits": b"9" * 400 + b"\n",
    "5000 digits": b"9" * 5000 + b"\n",
    "not UTF-8": b"\xff\xfe\xc3\x28\n",
    "NUL": b"\0\0\0\0\n",
}
CONTENT_FAULTS = tuple(Fault(name, "content", content=text) for name, text in CONTENTS.items())
SHORT_FAULT = Fault("short read", "short")
BELOW_FAULT = Fault("unsearchable", "open", "EACCES", below=True)
# One of each kind of failure.
FEW_FAULTS = ("open EACCES", "open ENOENT", "read EIO", "empty", "garbage", "400 digits")


class Calls:
    """The faults of this process. One at a time."""

    def __init__(self) -> None:
        os.environ.pop("LD_PRELOAD", None)  # not for the programs that this process starts
        self._library = ctypes.CDLL(None)
        self._library.faults_seen.restype = ctypes.c_char_p
        self._library.faults_advance.argtypes = [ctypes.c_double]

    def watch(self, root: str) -> None:
        """Record the paths below a root from here on."""
        self._library.faults_watch(root.encode())

    def seen(self) -> dict[str, set[str]]:
        """The paths used since `watch`, each with how: o(pened), d (listed), l(ink), s(tatus)."""
        found: dict[str, set[str]] = {}
        for line in self._library.faults_seen().decode().splitlines():
            found.setdefault(line[1:], set()).add(line[0])
        return found

    def fail(self, path: str, fault: Fault) -> None:
        """Let a path fail."""
        if fault.where == "content":
            self._library.faults_content(path.encode(), fault.content, len(fault.content))
        else:
            code = getattr(errno, fault.error) if fault.error else 0
            self._library.faults_set(path.encode(), ord(fault.where[0]), code, int(fault.below))

    def recover(self) -> None:
        """End the fault."""
        self._library.faults_set(b"", 0, 0, 0)

    def advance(self, seconds: float) -> None:
        """Set the clocks forward."""
        self._library.faults_advance(seconds)

    def hang_while(self, path: str) -> None:
        """While this file exists, waiting for a program takes no time until its time-out."""
        self._library.faults_hang(path.encode())
