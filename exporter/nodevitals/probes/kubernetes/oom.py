"""OOM kills that the kernel logged, to counters of the pods. Pure: no I/O, no clock.

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
    """What is kept of OOM kills, in one boot; `omitted` are those that there was no room for, which
    the next run counts.
    """

    series: list[OomSeries] = []
    waiting: list[WaitingKill] = []
    omitted: int = 0

    def receive(self, message: OomKills, now: float) -> None:
        """Let new kills wait, with those of the same container that have been read as often."""
        new = [one.kill for one in self.waiting if not one.reads]
        self.waiting = [one for one in self.waiting if one.reads]
        self.waiting += [
            WaitingKill(kill, now + WAIT_SECONDS) for kill in summed([*new, *message.kills])
        ]
        self.omitted += message.omitted
        self.omitted += sum(one.kill.count for one in self.waiting[:-MAX_WAITING])
        del self.waiting[:-MAX_WAITING]

    def wants_reading(self, pods: Mapping[str, KnownPod]) -> bool:
        """Whether reading the pods may say whose a waiting kill was."""
        return any(not _is_known(one, pods) and one.reads < 2 for one in self.waiting)

    def was_read(self) -> None:
        """The pods were read."""
        for one in self.waiting:
            one.reads += 1

    def attribute(
        self,
        pods: Mapping[str, KnownPod],
        labels_of: Callable[[KnownPod, str], tuple[str, ...]],
        now: float,
        *,
        readable: bool,
    ) -> dict[str, int]:
        """Find the series of each waiting kill; `labels_of` a pod and the name of a container.
        Returns the kills that have none, by reason. Not `readable`: no pod will ever be read.
        """
        none = {UNKNOWN_POD: 0, LIMIT: self.omitted}
        self.omitted = 0
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            pod = pods.get(one.kill.pod_uid)
            if pod is not None and (_is_known(one, pods) or one.reads >= 1 or not readable):
                container = pod.containers.get(one.kill.container_id, "")
                added = self._add(labels_of(pod, container), one.kill.count, now)
                none[LIMIT] += 0 if added else one.kill.count
            elif readable and one.reads < 2 and now < one.until:
                self.waiting.append(one)
            else:
                none[UNKNOWN_POD] += one.kill.count
        return none

    def report(self, now: float) -> list[tuple[tuple[str, ...], int]]:
        """Labels and count of each series; what is pending counts from the next time on."""
        self.series = [one for one in self.series if now - one.last < KEEP_SECONDS or one.pending]
        counts = [(one.labels, one.count) for one in self.series]
        for one in self.series:
            one.count, one.pending = one.count + one.pending, 0
        return counts

    def _add(self, labels: tuple[str, ...], count: int, now: float) -> bool:
        # With other labels it may be another pod of the same name, of another owner.
        for one in self.series:
            if one.labels == labels:
                one.pending, one.last = one.pending + count, now
                return True
        if len(self.series) >= MAX_SERIES:
            return False
        self.series.append(OomSeries(labels, 0, count, now))
        return True


def _is_known(one: WaitingKill, pods: Mapping[str, KnownPod]) -> bool:
    pod = pods.get(one.kill.pod_uid)
    return pod is not None and (
        not one.kill.container_id or one.kill.container_id in pod.containers
    )
