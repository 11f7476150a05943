"""Settings that name something of this machine: a file, a folder, a program.

In: the plain values of a file, and a type whose parts have a `Local`. Out: a problem for each named
thing that is not here. Whether that is wrong is not known here: the file may be meant for another
machine, or what it names may come later.
"""

from __future__ import annotations

import os
import stat
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from nodevitals.document.problems import Problem, join
from nodevitals.quantities import UNIONS

# systemd's copies of secrets (LoadCredential=): there while the service runs, and for it only.
CREDENTIALS = "/run/credentials/"

Kind = Literal["file", "secret", "files", "folder", "program", "command", "library"]


class Local(msgspec.Struct, frozen=True):
    """Marks a text that names something of this machine; of a command, its first word does."""

    kind: Kind


LocalFile = Annotated[str, Local("file")]
LocalSecret = Annotated[str, Local("secret")]
"""A file that other users should not read."""
LocalFiles = Annotated[str, Local("files")]
"""A file, or a pattern of files with wildcards."""
LocalFolder = Annotated[str, Local("folder")]
LocalProgram = Annotated[str, Local("program")]
"""A path, or a name on PATH."""
LocalLibrary = Annotated[str, Local("library")]
"""A path, or a name that the loader looks for, which is not looked for here."""


def missing(value: Any, hint: Any, path: str = "") -> Iterator[Problem]:
    """What a value of this type names and is not here."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        mark = next((part for part in arguments[1:] if isinstance(part, Local)), None)
        if mark is None:
            yield from missing(value, arguments[0], path)
        elif text := _missing_thing(mark.kind, value):
            yield Problem(path, text)
    elif origin in UNIONS:
        for choice in arguments:
            yield from missing(value, choice, path)
    elif origin is tuple and isinstance(value, list):
        for index, item in enumerate(value):
            yield from missing(item, arguments[0], f"{path}[{index}]")
    elif origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            yield from missing(item, arguments[1], join(path, key))
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, Mapping):
        hints = typing.get_type_hints(hint, include_extras=True)
        for name in filter(value.__contains__, hints):
            yield from missing(value[name], hints[name], join(path, name))


def _missing_thing(kind: Kind, value: Any) -> str:
    """Why what a value names is not here, and what to do; '' where it is, or the value is none."""
    import glob  # here: the agent, which uses the marks, does not need these modules
    import shutil

    name = value[0] if isinstance(value, list) and value else value
    if not isinstance(name, str) or not name or "\0" in name or name.startswith(CREDENTIALS):
        return ""
    if kind == "library":
        if "/" not in name:
            return ""
        kind = "file"
    if kind in ("program", "command"):
        if shutil.which(name):
            return ""
        place = "is no executable file here" if "/" in name else "is no program on PATH here"
        return f"{name!r} {place}: install it, or check the path"
    if kind == "files":
        found = glob.glob(name) if glob.has_magic(name) else [name]
        if not found:
            return f"no file is named like {name!r} here: check the path"
        name, kind = found[0], "file"
    return _missing_file(kind, name)


def _missing_file(kind: Kind, name: str) -> str:
    try:
        mode = os.stat(name).st_mode
    except PermissionError:
        return f"this user may not look for {name!r}: run as the user of the service"
    except OSError as error:
        return f"{name!r} is not here: {error.strerror}: check the path, or make the {kind}"
    is_folder = stat.S_ISDIR(mode)
    if is_folder != (kind == "folder"):
        return f"{name!r} is {'a' if is_folder else 'no'} folder here: name a {kind}"
    if not os.access(name, os.R_OK, effective_ids=True):
        return f"this user may not read {name!r}: run as the user of the service, or permit it"
    if kind == "secret" and mode & stat.S_IROTH:
        return f"every user may read {name!r}: chmod o= {name}"
    return ""
