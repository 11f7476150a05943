"""Turns the OOM kills that the kernel logged into counters of pods. Pure: no I/O, no clock.

A kill waits for its pod to be read, and its series starts at 0 one run before it counts: a series
that started at 1 would have no increase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from nodevitals.probes.kubernetes.families import LIMIT, UNKNOWN_POD
from nodevitals.probes.kubernetes.messages import OomKill, OomKills, summed
from nodevitals.probes.kubernetes.pods import KnownPod

MAX_SERIES = 200
MAX_WAITING = 500
WAIT_SECONDS = 600.0
KEEP_SECONDS = 86400.0


class OomSeries(msgspec.Struct, array_like=True):
    """One container's kills: those counted, those to be counted with the next run, and the Unix
    time of the last one.
    """

    labels: tuple[str, ...]
    count: int
    pending: int
    last: float


class WaitingKill(msgspec.Struct, array_like=True):
    """Kills whose container is not known yet; `reads` is the number of reads of pods since."""

    kill: OomKill
    until: float
    reads: int = 0


class OomKillCounts(msgspec.Struct):
    """The OOM kills of one boot; `omitted` are kills without room in a message, which the next run
    counts.
    """

    series: list[OomSeries] = []
    waiting: list[WaitingKill] = []
    omitted: int = 0

    def receive(self, message: OomKills, now: float) -> None:
        """Let new kills wait, together with kills of the same container that waited as many
        reads.
        """
        new = [entry.kill for entry in self.waiting if not entry.reads]
        self.waiting = [entry for entry in self.waiting if entry.reads]
        self.waiting += [
            WaitingKill(kill, now + WAIT_SECONDS) for kill in summed([*new, *message.kills])
        ]
        self.omitted += message.omitted
        self.omitted += sum(entry.kill.count for entry in self.waiting[:-MAX_WAITING])
        del self.waiting[:-MAX_WAITING]

    def wants_reading(self, pods: Mapping[str, KnownPod]) -> bool:
        """Whether reading the pods may find the pod of a waiting kill."""
        return any(not _is_known(entry, pods) and entry.reads < 2 for entry in self.waiting)

    def was_read(self) -> None:
        """Record that the pods were read."""
        for entry in self.waiting:
            entry.reads += 1

    def attribute(
        self,
        pods: Mapping[str, KnownPod],
        labels_of: Callable[[KnownPod, str], tuple[str, ...]],
        now: float,
        *,
        readable: bool,
    ) -> dict[str, int]:
        """Find the series of each waiting kill; `labels_of` takes a pod and the name of a
        container. Returns the kills without a series, by reason. Not `readable`: pods are never
        read.
        """
        none = {UNKNOWN_POD: 0, LIMIT: self.omitted}
        self.omitted = 0
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            pod = pods.get(entry.kill.pod_uid)
            if pod is not None and (_is_known(entry, pods) or entry.reads >= 1 or not readable):
                container = pod.containers.get(entry.kill.container_id, "")
                added = self._add(labels_of(pod, container), entry.kill.count, now)
                none[LIMIT] += 0 if added else entry.kill.count
            elif readable and entry.reads < 2 and now < entry.until:
                self.waiting.append(entry)
            else:
                none[UNKNOWN_POD] += entry.kill.count
        return none

    def report(self, now: float) -> list[tuple[tuple[str, ...], int]]:
        """Labels and count of each series; pending kills count from the next report on."""
        self.series = [
            series for series in self.series if now - series.last < KEEP_SECONDS or series.pending
        ]
        counts = [(series.labels, series.count) for series in self.series]
        for series in self.series:
            series.count, series.pending = series.count + series.pending, 0
        return counts

    def _add(self, labels: tuple[str, ...], count: int, now: float) -> bool:
        # Other labels may mean another pod of the same name that belongs to another owner.
        for series in self.series:
            if series.labels == labels:
                series.pending, series.last = series.pending + count, now
                return True
        if len(self.series) >= MAX_SERIES:
            return False
        self.series.append(OomSeries(labels, 0, count, now))
        return True


def _is_known(entry: WaitingKill, pods: Mapping[str, KnownPod]) -> bool:
    pod = pods.get(entry.kill.pod_uid)
    return pod is not None and (
        not entry.kill.container_id or entry.kill.container_id in pod.containers
    )
