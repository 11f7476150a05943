"""Probe `profile`: the facts of this node, and whether they are those of its kind of node.

In: procfs, sysfs, a few files of /etc, the facts that other probes send, and the file of the
profile. Out: `nodevitals_profile_*`. Without a file the facts are exposed all the same: rules
compare them with those of the pool.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.document.local import LocalFile
from nodevitals.probe import Probe, ProbeError, ProbeSettings, Problem, Readings, Seconds
from nodevitals.probes.common.device_files import sees_kernel
from nodevitals.probes.common.facts import Facts, Values
from nodevitals.probes.profile import device_facts, node_facts
from nodevitals.probes.profile.conditions import Condition, conforms, found_text
from nodevitals.probes.profile.document import CHECK_INFO, CHECKS, CONFORMS, INFO, Profile, metrics

# Age after which the facts of a probe that sends no more are unknown: its driver may hang.
MAX_AGE_SECONDS = 300.0


class ProfileSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which file."""

    interval: Optional[Seconds] = 120.0
    """Time between two runs."""
    file: LocalFile = ""
    """File of the profile, as `nodevitals profile learn` writes it; without one, the facts are
    exposed and nothing is wanted of them."""

    def problems(self) -> Iterator[Problem]:
        """The path must be absolute."""
        if self.file and (not self.file.startswith("/") or "\0" in self.file):
            yield Problem("file", "not an absolute path: begin it with /")


class Received(msgspec.Struct, frozen=True):
    """The facts of another probe, and their arrival in monotonic seconds."""

    facts: dict[str, Values]
    at: float


class ProfileState(msgspec.Struct):
    """The facts of other probes by probe, the processes that facts are about, and the profile while
    its file is unchanged.
    """

    received: dict[str, Received] = {}
    running: Optional[node_facts.Running] = None
    profile: Optional[Profile] = None
    file: tuple[str, int, int, int] = ("", 0, 0, 0)


class ProfileProbe(Probe):
    """The expected state of the node: counts, models, versions, kernel parameters, limits, links.
    From a profile, or for comparison with its pool.
    """

    name = "profile"
    families = metrics
    default = "on"
    Settings = ProfileSettings
    State = ProfileState
    Message = Facts
    settings: ProfileSettings
    state: ProfileState

    def run(self, readings: Readings) -> None:
        """Read the facts, and compare them. What may hang comes last."""
        self._receive(readings)
        problem = self._load()
        conditions = {} if self.state.profile is None else self.state.profile.conditions
        facts = self._read(conditions)
        late = "dns.own_name"
        first = {name: wanted for name, wanted in conditions.items() if name != late}
        tally = dict.fromkeys(("conforming", "differing", "unknown"), 0)
        _expose(facts, first, tally, readings)
        if self.state.profile is not None:
            readings.add(INFO, 1, self.state.profile.name)
        readings.at("name service", "getaddrinfo")
        rest = {late: conditions[late]} if late in conditions else {}
        # After a run that did not return from here, the next run skips this once for the other
        # facts.
        own_name = {} if readings.interrupted else node_facts.read_own_name()
        _expose(own_name, rest, tally, readings)
        if self.state.profile is not None:
            for state, number in tally.items():
                readings.add(CHECKS, number, state)
        if problem is not None:
            raise problem

    def _receive(self, readings: Readings) -> None:
        now = time.monotonic()
        for message in readings.received:
            self.state.received[message.source] = Received(message.values, now)
        self.state.received = {
            source: facts
            for source, facts in self.state.received.items()
            if 0 <= now - facts.at <= MAX_AGE_SECONDS
        }

    def _load(self) -> Optional[ProbeError]:
        """Read the profile if its file has changed. After an error, the last good profile is used:
        an incomplete file must not end the checks.
        """
        path = self.settings.file
        if not path:
            self.state.profile = None
            return None
        from nodevitals.document import DocumentError, read_file
        from nodevitals.probes.profile.document import parse_profile

        try:
            status = os.stat(path)
            signature = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            if self.state.profile is None or signature != self.state.file:
                self.state.profile = parse_profile(read_file(path))
                self.state.file = signature
        except DocumentError as error:
            return ProbeError("profile", error.problems[0].within(path))
        except OSError as error:
            return ProbeError("profile", f"{path} cannot be read: {error.strerror}")
        return None

    def _read(self, conditions: dict[str, Condition]) -> dict[str, Values]:
        host = self.host

        def named(prefix: str) -> list[str]:
            return [name[len(prefix) :] for name in conditions if name.startswith(prefix)]

        modules = [*named("module."), *named("module_version.")]
        limited = [*named("limit.memlock."), *named("limit.nofile.")]
        # In a container without hostPID, the node's processes are invisible: unknown, not missing.
        seen = sees_kernel(host.procfs)
        was, now = self.state.running, time.monotonic()
        running = node_facts.find_processes(host, limited, was, now) if seen else None
        self.state.running = running
        facts = {
            **node_facts.read_kernel(host, modules, named("sysctl.")),
            **node_facts.read_cmdline(host, named("cmdline.")),
            **node_facts.read_cpus(host),
            **node_facts.read_memory(host),
            **device_facts.read_system(host),
            **device_facts.read_rdma(host),
            **device_facts.read_nvme(host),
            **device_facts.read_accelerator_nodes(host),
            **device_facts.read_acs(host),
            **node_facts.read_processes(host, running, limited),
            **node_facts.read_etc(host),
        }
        for received in self.state.received.values():
            facts.update(received.facts)
        if (
            "memory.dimm_errors" not in conditions
        ):  # growing numbers are not exposed as labels by default
            facts.pop("memory.dimm_errors", None)
        return facts


def _expose(
    facts: dict[str, Values],
    conditions: dict[str, Condition],
    tally: dict[str, int],
    readings: Readings,
) -> None:
    for name in sorted({*facts, *conditions}):
        values, wanted = facts.get(name, {}), conditions.get(name)
        answer = None if wanted is None else conforms(wanted, values)
        if wanted is not None:
            tally["unknown" if answer is None else "conforming" if answer else "differing"] += 1
            readings.add(CONFORMS, answer, name)
        text = found_text(values, wanted) if values else ""
        readings.add(CHECK_INFO, 1, name, "" if wanted is None else wanted.text[:128], text)
