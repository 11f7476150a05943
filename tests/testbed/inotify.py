"""Whether files were opened, read, made, changed or removed, as the kernel reports: inotify(7)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_ALL = 0xFFF
_NAMES = {
    0x1: "access",
    0x2: "modify",
    0x4: "attrib",
    0x20: "open",
    0x100: "create",
    0x200: "delete",
    0x400: "delete_self",
}


class Watch:
    """Watches directories and files, as a context manager."""

    def __init__(self, *paths: Path) -> None:
        self._descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths: dict[int, Path] = {}
        for path in paths:
            number = _LIBC.inotify_add_watch(self._descriptor, os.fsencode(path), _ALL)
            assert number > 0, os.strerror(ctypes.get_errno())
            self._paths[number] = path

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def events(self) -> list[str]:
        """What happened since the last call, such as `open /path/name`."""
        found = []
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        while data:
            number, mask, _, length = struct.unpack_from("iIII", data)
            name = data[16 : 16 + length].rstrip(b"\0").decode()
            kinds = [kind for bit, kind in _NAMES.items() if mask & bit] or [hex(mask)]
            found += [f"{kind} {self._paths[number] / name}" for kind in kinds]
            data = data[16 + length :]
        return found
