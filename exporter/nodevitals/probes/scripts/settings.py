"""The configuration of probe `scripts`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Optional

import msgspec

from nodevitals.document.local import LocalFolder
from nodevitals.probe import ProbeSettings, Problem, Seconds, TargetTiming
from nodevitals.probes.scripts.trust import is_name
from nodevitals.quantities import shown

_METRIC_PREFIX = re.compile(r"[a-z][a-z0-9]*_[a-z0-9_]*")
_ABSOLUTE = "not an absolute path: begin it with /, no . or .."


class ScriptSettings(TargetTiming, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One script of the folder, where it differs from the others."""

    name: str
    """Name of the file in the folder. Example: `nhc`"""
    enabled: bool = True
    """Whether to run it."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script. Example: `["-w", "10%"]`"""
    user: Optional[str] = None
    """User to run it as; that of the agent by default. Example: `nobody`"""
    output: Literal["nagios", "nhc"] = "nagios"
    """`nagios`: the exit status is the result; `nhc`: any failure with nhc's line is critical."""
    kilobyte: Literal[1000, 1024] = 1000
    """Bytes of the unit KB in performance data; MB, GB and TB are its powers."""


class TextfilesSettings(TargetTiming, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One folder of Prometheus text files, `*.prom`."""

    path: LocalFolder
    """Folder, without those below it. Example: `/run/nccl-inspector`"""
    prefixes: tuple[str, ...] = ("nccl_", "rccl_")
    """What the names of metrics must begin with; all other lines are refused."""
    interval: Optional[Seconds] = 15.0
    """Time between two runs."""
    max_age: Seconds = 120.0
    """Time since the last change of a file after which it is not read."""
    max_files: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 256
    """Number of files to read; others are refused."""
    max_file_bytes: Annotated[int, msgspec.Meta(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024
    """Size of a file above which it is not read."""
    max_series: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 2000
    """Number of values of the folder to expose; other lines are refused."""


class ScriptsSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The folder of scripts, and folders of text files."""

    interval: Optional[Seconds] = 60.0
    """Time between two runs."""
    timeout: Optional[Seconds] = 30.0
    """Time that a run may take; at most the interval. A script is ended one second earlier."""
    folder: Optional[LocalFolder] = None
    """Folder of executables; each is run by itself. Only root and the agent's user may be able to
    change them. Listed when the configuration is loaded. Example: `/etc/nodevitals/scripts`"""
    scripts: tuple[ScriptSettings, ...] = ()
    """Scripts of the folder that need other settings."""
    textfiles: tuple[TextfilesSettings, ...] = ()
    """Folders of text files, as NCCL Inspector writes them.
    Example: `[{path: /run/nccl-inspector}]`"""

    def problems(self) -> Iterator[Problem]:
        """Paths must be absolute and unique, names plain and unique."""
        if self.folder is not None and not _is_absolute(self.folder):
            yield Problem("folder", _ABSOLUTE)
        if self.scripts and self.folder is None:
            yield Problem("scripts", "not used without a folder: set folder")
        seen: set[str] = set()
        for index, script in enumerate(self.scripts):
            yield from self._script_problems(f"scripts[{index}]", script, seen)
        paths = {self.folder}
        for index, textfiles in enumerate(self.textfiles):
            where = f"textfiles[{index}]"
            if not _is_absolute(textfiles.path):
                yield Problem(f"{where}.path", _ABSOLUTE)
            if textfiles.path in paths:
                yield Problem(
                    f"{where}.path", f"{shown(textfiles.path)} is listed twice: remove one"
                )
            paths.add(textfiles.path)
            for prefix in textfiles.prefixes:
                if not _METRIC_PREFIX.fullmatch(prefix):
                    yield Problem(
                        f"{where}.prefixes", f"{shown(prefix)} is not a prefix: write it like nccl_"
                    )

    def _script_problems(
        self, where: str, script: ScriptSettings, seen: set[str]
    ) -> Iterator[Problem]:
        if not script.name or not is_name(script.name) or "/" in script.name:
            yield Problem(f"{where}.name", "not the name of a file: write it without a folder")
        if script.name in seen:
            yield Problem(
                f"{where}.name", f"{shown(script.name)} is listed twice: remove one of them"
            )
        seen.add(script.name)


def _is_absolute(path: str) -> bool:
    parts = path.split("/")
    return path.startswith("/") and not {".", ".."} & set(parts) and "" not in parts[1:]


class ScriptTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker of one script needs."""

    folder: str
    script: ScriptSettings


class FolderTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker that lists the folder needs: the names that are run, and those that are
    off.
    """

    folder: str
    run: tuple[str, ...]
    off: tuple[str, ...]


class ScriptsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target: one of the three."""

    script: Optional[ScriptTarget] = None
    folder: Optional[FolderTarget] = None
    textfiles: Optional[TextfilesSettings] = None
