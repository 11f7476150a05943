"""The line in which the kernel says whose process its OOM killer ends. Pure.

`oom-kill:constraint=…,task_memcg=<cgroup>,task=…` since Linux 5.0 (dump_oom_summary() in
mm/oom_kill.c), before that `Task in <cgroup> killed as a result of limit of …`. A kubelet names the
cgroups `…/kubepods/burstable/pod<uid>/<container id>`, with systemd
`…/kubepods-burstable-pod<uid, - as _>.slice/<runtime>-<container id>.scope`.
"""

from __future__ import annotations

import re

from nodevitals.probes.kubernetes.messages import OomKill

_TASK = re.compile(r"oom-kill:[^\n]{0,900}?task_memcg=(/[^,\s]*)")
_OLD_TASK = re.compile(r"Task in (/\S*) killed as a result of limit of ")
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"/(?:kubepods[a-z-]{{0,24}}-)?pod({_UID})(?:\.slice)?(?:/|$)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")


def parse_oom_kill(text: str) -> OomKill | None:
    """The pod and the container of a message about a process that is killed; None for another
    message, and for a process of no pod.
    """
    match = _TASK.match(text) or _OLD_TASK.match(text)
    pod = _POD.search(match[1]) if match and "kubepods" in match[1] else None
    if match is None or pod is None:
        return None
    container = _CONTAINER.search(match[1], pod.end(1))
    return OomKill(pod[1].replace("_", "-"), container[0] if container else "")
