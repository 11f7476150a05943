"""Discovers peers: reads file_sd files and resolves names.

In: the sources of a probe's settings, files below --path.rootfs, the name service. Out: the targets
on all lists, and the problems. A source that cannot be read keeps the targets that it last had.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional, Union

import msgspec

from nodevitals.document import DocumentError, Problem
from nodevitals.document.local import LocalFiles
from nodevitals.linux.beneath import read_file
from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError
from nodevitals.probes.common.addresses import (
    ListedTarget,
    TcpPort,
    is_address,
    parse_file,
    resolve,
)

# Resolving every name on every node in every run would overload the name service.
NAME_SECONDS = 300.0


class FileSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in the format of Prometheus' file_sd."""

    files: tuple[LocalFiles, ...]
    """Absolute paths of JSON or YAML files; may contain wildcards."""
    port: Optional[TcpPort] = None
    """Port of targets that are listed without one."""


class NameSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DNS names, such as that of a headless service."""

    names: tuple[str, ...]
    """Names; every address of each is a peer."""
    port: Optional[TcpPort] = None
    """Port of these peers."""


Source = Union[str, FileSource, NameSource]


class ResolvedName(msgspec.Struct, frozen=True, array_like=True):
    """The addresses of a name, and when it was resolved (seconds since the epoch)."""

    addresses: tuple[str, ...]
    time: float


class DiscoveryState(msgspec.Struct):
    """The fallback of later discoveries: the last good list of each file, and the names."""

    files: dict[str, list[ListedTarget]] = {}
    names: dict[str, ResolvedName] = {}


def path_problems(file_sd: Sequence[str | FileSource]) -> Iterator[Problem]:
    """Paths that are not absolute, as problems of a configuration."""
    for number, source in enumerate(file_sd):
        is_path = isinstance(source, str)
        for index, file in enumerate(_files(source)):
            if not os.path.isabs(file) or "\0" in file:
                place = f"file_sd[{number}]" if is_path else f"file_sd[{number}].files[{index}]"
                yield Problem(place, "not an absolute path: begin it with /")


class Discovery:
    """Reads all lists once. `problems` has what failed; the targets that are returned can be
    used.
    """

    def __init__(
        self,
        host: Host,
        state: DiscoveryState,
        default_port: int,
        group_label: str = "",
        require_files: bool = False,
    ) -> None:
        """`group_label` is the label whose value becomes `ListedTarget.group`; `require_files`
        makes a path or a pattern without any file a problem.
        """
        self._host = host
        self._state = state
        self._default_port = default_port
        self._group_label = group_label
        self._require_files = require_files
        self.problems: list[ProbeError] = []
        self.complete = True
        """False where a list cannot be read that never could be."""

    def targets(
        self,
        file_sd: Iterable[str | FileSource],
        dns_sd: Sequence[str | NameSource],
        deadline: float,
    ) -> Iterator[tuple[Source, ListedTarget]]:
        """Every listed target, with the source that lists it. Names must be resolved by `deadline`
        (monotonic seconds).
        """
        files: dict[str, list[ListedTarget]] = {}
        for source in file_sd:
            port = self._port(source)
            for path in self._expand(_files(source)):
                files[path] = self._read(path, port)
                yield from ((source, target) for target in files[path])
        self._state.files = files
        self._refresh(service_names(dns_sd), deadline)
        for service in dns_sd:
            port = self._port(service)
            for name in _names(service):
                known = self._state.names.get(name)
                for address in sorted(known.addresses) if known else ():
                    yield service, ListedTarget(address, port)

    def look_up(self, hosts: Iterable[str], deadline: float) -> None:
        """Resolve the names among these hosts that are new, that failed, or whose addresses are
        old. A name without an address loses its last addresses.
        """
        now = time.time()
        names = self._state.names
        fresh = {h for h, n in names.items() if now - n.time < NAME_SECONDS and n.addresses}
        resolved = resolve({host for host in hosts if not is_address(host)} - fresh, deadline)
        names.update({host: ResolvedName(addresses, now) for host, addresses in resolved.items()})

    def _refresh(self, names: Sequence[str], deadline: float) -> None:
        """Look up the names of services. Their peers stay while the name service does not
        answer.
        """
        before = dict(self._state.names)
        self.look_up(names, deadline)
        for name in names:
            known = self._state.names.get(name)
            if known is None or not known.addresses:
                text = f"the name service returned no address of {name}"
                self.problems.append(ProbeError("name", text))
                if name in before:
                    self._state.names[name] = before[name]

    def _expand(self, patterns: Iterable[str]) -> Iterator[str]:
        for pattern in patterns:
            path = self._host.root(pattern)
            paths = self._matching(path) if glob.has_magic(pattern) else [path]
            if not paths and self._require_files:
                self.problems.append(ProbeError("file_sd", f"{path}: No such file"))
            yield from paths

    def _matching(self, pattern: str) -> list[str]:
        """The files of a pattern; the last known ones if its directory cannot be listed."""
        paths = sorted(glob.glob(pattern))
        folder = os.path.dirname(pattern)
        if paths or glob.has_magic(folder):
            return paths
        try:
            os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.problems.append(ProbeError("file_sd", f"{folder}: {error.strerror}"))
            paths = [path for path in self._state.files if fnmatch.fnmatch(path, pattern)]
            self.complete = self.complete and bool(paths)
        return paths

    def _read(self, path: str, port: int) -> list[ListedTarget]:
        """A file's targets; the last good ones if the file is incomplete or gone."""
        try:
            return parse_file(read_file(path), port, self._group_label)
        except OSError as error:
            problem = str(error.strerror)
        except DocumentError as error:
            problem = str(error)
        last_good = self._state.files.get(path, [])
        self.complete = self.complete and path in self._state.files
        kept = f"; the {len(last_good)} targets of its last good content stay" if last_good else ""
        self.problems.append(ProbeError("file_sd", f"{path}: {problem}{kept}"))
        return last_good

    def _port(self, source: Source) -> int:
        own = None if isinstance(source, str) else source.port
        return self._default_port if own is None else own


def service_names(dns_sd: Iterable[str | NameSource]) -> list[str]:
    """All names of these sources."""
    return [name for source in dns_sd for name in _names(source)]


def _files(source: str | FileSource) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source.files


def _names(source: str | NameSource) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source.names
