"""Notifications to owners of jobs.

In: notices (owners.py), the keys of the jobs that were named before. Out: deliveries, and the keys
to remember. Pure: the caller writes both in one transaction, so each job is named once, also after
a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import tzinfo
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from nodevitals_hub.notify.owners import Job, Notice, NoticeKind, owner_channel
from nodevitals_hub.notify.texts.rendering import Room, Text, fitted
from nodevitals_hub.plain_text import clean, cut, cut_bytes, length, moment
from nodevitals_hub.records import Delivery
from nodevitals_hub.settings.notification_routes import zone_of
from nodevitals_hub.settings.response import ChannelSettings, Language, NotifySettings

MAX_JOBS = 19


class _Words(NamedTuple):
    subject: str
    head: str
    do: str
    steps: tuple[str, ...]
    next: str
    after: str
    began: str
    """With the time by which it had happened in place of {}."""
    node: str
    container: str
    more: str
    colon: str
    unnamed: str


_COMMON_ZH = ("节点", "容器", "以及另外 {} 个", "：", "未命名集群")
_COMMON_EN = ("Node", "Container", "and {} more", ": ", "unnamed cluster")
_ZH: dict[NoticeKind, _Words] = {
    "at_risk": _Words(
        "作业可能失败，请保存进度",
        "您的作业所在的节点发生故障。作业可能失败、卡住或算出错误的结果，"
        "请保存进度并准备重启作业：",
        "您需要做什么",
        (
            "尽快保存能保存的内容；故障发生之后写出的检查点和结果请勿直接采用。",
            "停止作业，用故障发生之前的最后一个检查点重新提交，并避开上述节点。",
            "如果作业已自动重启，请确认它已不在上述节点上运行。",
        ),
        "接下来",
        "运维人员已收到通知，会停用并维修该节点；届时仍在该节点上运行的进程会被终止。"
        "维修完成后不再另行通知。如有疑问，请联系集群运维。",
        "故障开始：不晚于 {}",
        *_COMMON_ZH,
    ),
    "killed": _Words(
        "容器内存不足被终止",
        "以下容器使用的内存超过上限，其中的进程被内核终止。作业可能失败、卡住或缺少工作进程：",
        "您需要做什么",
        (
            (
                "调大该容器的 limits.memory，或减小 batch size、"
                "减少数据加载（dataloader）的工作进程数。"
            ),
            "用最后一个检查点重新启动作业；如果作业已自动重启，请确认它没有再次被终止。",
        ),
        "接下来",
        "同一作业再次被终止时，24 小时内不再重复通知；恢复正常后也不另行通知。"
        "如有疑问，请联系集群运维。",
        "终止时间：不晚于 {}",
        *_COMMON_ZH,
    ),
}
_EN: dict[NoticeKind, _Words] = {
    "at_risk": _Words(
        "Job at risk, save your work",
        "Your jobs run on a faulty node. They may fail, hang or compute wrong results. Save what"
        " you can and expect a restart:",
        "What to do",
        (
            "Save what you can now. Do not rely on checkpoints or results written after the fault.",
            (
                "Stop the job and restart it from the last checkpoint before the fault, not on"
                " this node."
            ),
            "If it restarts by itself, check that it no longer runs on this node.",
        ),
        "What happens next",
        "The operators have been notified. They take the node out of service and repair it;"
        " processes that still run on it then will be ended. There is no mail when the repair is"
        " done.",
        "Fault began by: {}",
        *_COMMON_EN,
    ),
    "killed": _Words(
        "Killed, out of memory",
        "These containers needed more memory than they may use, and the kernel killed processes in"
        " them. The jobs may have failed, hang or lack workers:",
        "What to do",
        (
            (
                "Raise limits.memory of the container, or lower the batch size or the number of"
                " data loader workers."
            ),
            (
                "Restart the job from its last checkpoint. If it restarts by itself, check that it"
                " is not killed again."
            ),
        ),
        "What happens next",
        "Further kills of the same job are not mailed within 24 hours, and there is no mail when"
        " they end.",
        "Killed by this time: {}",
        *_COMMON_EN,
    ),
}
_LANGUAGES: dict[Language, tuple[dict[NoticeKind, _Words], ...]] = {
    "en": (_EN,),
    "zh": (_ZH,),
    "both": (_ZH, _EN),
}


def owner_text(
    notice: Notice, cluster: str, language: Language, max_bytes: int, zone: tzinfo
) -> Text:
    """The message to an owner; `cluster` is used for jobs without that label. Jobs that do not fit
    are only counted.
    """
    words = [table[notice.kind] for table in _LANGUAGES[language]]
    place = clean(notice.jobs[0].cluster or cluster, 30) or words[-1].unnamed
    others = ", …" if len(notice.jobs) > 1 else ""
    job = cut(clean(notice.jobs[0].name, 200), 60)
    subject = " / ".join(wording.subject for wording in words)
    title = cut_bytes(f"[{place}] {subject}{words[-1].colon}{job}{others}", max_bytes // 2)
    body, room = "", max_bytes - length(title) - 1
    for shown in range(min(len(notice.jobs), MAX_JOBS), 0, -1):
        body = "\n\n".join(_body(wording, notice, cluster, shown, zone) for wording in words)
        if length(body) <= room:
            break
    return Text(title, cut_bytes(body, room))


def _body(words: _Words, notice: Notice, cluster: str, shown: int, zone: tzinfo) -> str:
    lines = [words.head]
    for job in notice.jobs[:shown]:
        lines += _job_lines(words, job, cluster, zone)
    if len(notice.jobs) > shown:
        lines.append(f"  {words.more.format(len(notice.jobs) - shown)}")
    steps = [f"  {number}. {step}" for number, step in enumerate(words.steps, 1)]
    return "\n".join([*lines, "", words.do, *steps, words.next, f"  {words.after}"])


def _job_lines(words: _Words, job: Job, cluster: str, zone: tzinfo) -> list[str]:
    place = f"{clean(job.cluster or cluster, 80)} {clean(job.node, 80)}".strip()
    fires = moment(job.since, zone)
    facts = (
        (words.container, clean(job.container, 100)),
        (words.node, place if job.node else ""),
    )
    named = [f"{name}{words.colon}{value}" for name, value in facts if value]
    if fires:
        named.append(words.began.format(f"{fires:%Y-%m-%d %H:%M %Z}"))
    return [f"  - {clean(job.name, 200)}", *(f"      {line}" for line in named)]


class Made(NamedTuple):
    """The deliveries for notices."""

    deliveries: tuple[Delivery, ...] = ()
    keys: tuple[str, ...] = ()
    """Keys of the jobs that they name."""


def made_of(
    notices: Sequence[Notice],
    named: Collection[str],
    settings: NotifySettings,
    cluster: str,
    room_of: Callable[[str, ChannelSettings], Room],
    now: float,
) -> Made:
    """One delivery per owner and kind, for the jobs that were not named before. `room_of` returns
    the size limit of a channel.
    """
    if settings.owners is None:
        return Made()
    deliveries: list[Delivery] = []
    keys: list[str] = []
    for notice in notices:
        name = owner_channel(notice.owner, settings.owners)
        left = notice.without(named)
        if left is None or name not in settings.channels:
            continue
        own = [job.key for job in left.jobs]
        channel = settings.channels[name]
        language = channel.language or settings.language
        zone = zone_of(settings.time_zone)
        text = fitted(
            partial(owner_text, left, cluster, language, zone=zone),
            lambda text: text,
            room_of(name, channel),
        )
        deliveries.append(
            Delivery(
                id=f"owner-{sha256(' '.join([name, *own]).encode()).hexdigest()[:32]}",
                channel=name,
                created=now,
                title=text.title,
                text=text.body,
                severity="info",
                owner=notice.owner,
                next_try=now,
            )
        )
        keys += own
    return Made(tuple(deliveries), tuple(keys))
