"""The line in which the kernel says whose process its OOM killer ends. Pure.

`oom-kill:constraint=…,task_memcg=<cgroup>,task=…` since Linux 5.0 (dump_oom_summary() in
mm/oom_kill.c), before that `Task in <cgroup> killed as a result of limit of …`. A kubelet names the
cgroups `…/kubepods/burstable/pod<uid>/<container id>`, with systemd
`…/kubepods-burstable-pod<uid, - as _>.slice/<runtime>-<container id>.scope`, below a root of its
own (`--cgroup-root`, as in kind) `…/kubelet-kubepods-burstable-pod….slice/…`.

Users name their own cgroups, below a service of systemd: these are none of a pod, and what they
look like within the line does not count.
"""

from __future__ import annotations

import re

from nodevitals.probes.kubernetes.messages import OomKill

_TASK = re.compile(r"oom-kill:[^\n]{0,900}?,task_memcg=(/[^,\s]*)")
# The first path of the line, which no user has written before: the process is in it or below it.
_FIRST = re.compile(r"[^\n]{0,900}?_memcg=(/[^,\s]*)")
_OLD_TASK = re.compile(r"Task in (/\S*) killed as a result of limit of ")
_GROUP = re.compile(r"Tasks in (/\S*) are going to be killed due to memory.oom.group set")
GROUP_SECONDS = 1.0
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(
    rf"/(?:(?:[\w.-]{{1,64}}-)?kubepods[a-z-]{{0,24}}-)?pod({_UID})(?:\.slice)?(?:/|$)"
)
_CONTAINER = re.compile(r"[0-9a-f]{64}")


class OomKillTally:
    """The kills of a run. Where `memory.oom.group` is set, which the kubelet does since 1.28, the
    line about one process is followed by one about its cgroup, and that by those of its processes.
    Kills before `since`, on the kernel's clock, are left out.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self.kills: list[OomKill] = []
        self._group: OomKill | None = None
        self._until = 0.0

    def add(self, text: str, seconds: float) -> None:
        """Add what a message says about a process or a cgroup; `seconds` is the kernel's clock."""
        if seconds < self._since:
            return
        if text.startswith(("oom-kill:", "Task in ")):
            self._group = None
            kill = parse_oom_kill(text)
            if kill is not None:
                self.kills.append(kill)
        elif text.startswith("Tasks in "):
            self._group, self._until = parse_oom_kill(text), seconds + GROUP_SECONDS

    def add_process(self, seconds: float) -> None:
        """Add a process that was killed: the first one of each kill was added by its cgroup."""
        if self._group is not None and seconds <= self._until:
            self.kills.append(self._group)


def parse_oom_kill(text: str) -> OomKill | None:
    """The pod and the container of a message about a process that is killed; None for another
    message, and for a process of no pod.
    """
    match = _TASK.match(text) or _OLD_TASK.match(text) or _GROUP.match(text)
    if match is None or "kubepods" not in match[1]:
        return None
    paths = [match[1], *(first[1] for first in [_FIRST.match(text)] if first)]
    pod = _POD.search(match[1])
    if pod is None or any(map(_is_below_service, paths)):
        return None
    container = _CONTAINER.search(match[1], pod.end(1))
    return OomKill(pod[1].replace("_", "-"), container[0] if container else "")


def _is_below_service(cgroup: str) -> bool:
    """Whether it is a service of systemd or below one; services within a pod do not count."""
    return ".service" in cgroup.partition("kubepods")[0]
