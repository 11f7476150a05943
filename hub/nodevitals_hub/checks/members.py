"""The nodes that checks can be run on, from lists in the formats of Prometheus.

In: the section `nodes` of the settings. Out: members with all labels of their lists. A list that
cannot be read keeps its last good content, and is named in `problems`.
"""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Iterator, Mapping

from nodevitals.document import DocumentError, Problem, convert, parse_yaml
from nodevitals.linux.beneath import read_file
from nodevitals.linux.host import Host
from nodevitals.probes.common.addresses import TargetGroup, parse_address
from nodevitals.probes.common.discovery import Discovery, DiscoveryState, FileSource
from nodevitals.probes.fabric.settings import DEFAULT_PORT
from nodevitals.quantities import shown
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.settings.hub import NodesSettings

NAME_SECONDS = 3.0
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,252}")  # NodeName
MAX_MEMBERS = 50_000


def parse_list(text: bytes, port: int) -> list[Member]:
    """The members of a file_sd file, JSON or YAML. Raises DocumentError with every problem."""
    problems: list[Problem] = []
    groups = convert(parse_yaml(text), tuple[TargetGroup, ...], "", problems)
    members = []
    for number, group in enumerate(groups or ()):
        if group is None:  # one of the problems
            continue
        labels = {name: str(value) for name, value in group.labels.items()}
        for index, target in enumerate(group.targets):
            try:
                members.append(_member(target, port, labels))
            except ValueError as error:
                problems.append(Problem(f"[{number}].targets[{index}]", str(error)))
    if problems:
        raise DocumentError(problems)
    return members


def _member(target: str, default_port: int, labels: Mapping[str, str]) -> Member:
    host, port = parse_address(target, default_port)
    shown = {name: value for name, value in labels.items() if not name.startswith("__")}
    return Member(name=host, host=host, port=port, labels=shown)


class Members:
    """The last valid lists."""

    def __init__(self) -> None:
        self._files: dict[str, list[Member]] = {}
        self._names = DiscoveryState()
        self.problems: tuple[str, ...] = ()
        self.by_name: dict[str, Member] = {}

    def read(self, settings: NodesSettings) -> None:
        """Read all lists. Call it in a thread, because files and name services may hang."""
        problems: list[str] = []
        members = list(self._static(settings, problems))
        members += self._from_files(settings, problems)
        discovery = Discovery(Host(), self._names, DEFAULT_PORT)
        deadline = time.monotonic() + NAME_SECONDS
        for _, target in discovery.targets((), settings.dns_sd, deadline):
            members.append(Member(name=target.host, host=target.host, port=target.port))
        problems += [problem.message for problem in discovery.problems]
        odd = [member.name for member in members if not _NAME.fullmatch(member.name)]
        if odd:
            # No request can name such nodes, and no stored check may contain them.
            text = f"{len(odd)} of the listed nodes are left out, such as {shown(odd[0])}"
            problems.append(f"{text}: list them by names of letters, digits and . _ -")
            members = [member for member in members if _NAME.fullmatch(member.name)]
        if len(members) > MAX_MEMBERS:
            problems.append(
                f"{len(members)} nodes are listed; only the first {MAX_MEMBERS} are used"
            )
        self.by_name = {member.name: member for member in members[:MAX_MEMBERS]}
        self.problems = tuple(problems)

    def _static(self, settings: NodesSettings, problems: list[str]) -> Iterator[Member]:
        for source in settings.static:
            for target in source.targets:
                try:
                    yield _member(target, DEFAULT_PORT, source.labels)
                except ValueError as error:
                    problems.append(f"nodes.static: {error}")

    def _from_files(self, settings: NodesSettings, problems: list[str]) -> Iterator[Member]:
        kept: dict[str, list[Member]] = {}
        for given in settings.file_sd:
            source = FileSource(files=(given,)) if isinstance(given, str) else given
            patterns, port = source.files, source.port or DEFAULT_PORT
            for path in (path for pattern in patterns for path in _expand(pattern)):
                try:
                    kept[path] = parse_list(read_file(path), port)
                except (OSError, DocumentError) as error:
                    kept[path] = self._files.get(path, [])
                    text = error.strerror if isinstance(error, OSError) else error
                    problems.append(f"{path}: {text}; its last {len(kept[path])} nodes stay")
                yield from kept[path]
        self._files = kept


def _expand(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
