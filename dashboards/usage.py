"""Usage: accelerators booked, used, idle and free, by owner, queue and pool; hours of a month."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat

from dashboards.board import Board
from dashboards.language import Say
from dashboards.panels import Steps, number
from dashboards.queries import now
from dashboards.states import GREEN, ORANGE, YELLOW
from dashboards.usage_queries import (
    BOOKED,
    IDLE,
    IDLE_SHARE,
    MEASURED,
    NUMBERS,
    POOL,
    USER,
    energy_of,
    hours_of,
)
from dashboards.usage_who import by_owner, by_state, idle_owners, power, ranking


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "usage",
        ("Usage", "使用情况"),
        (
            (
                "Who has the accelerators, and whether they are used. Hours are those of the time "
                "range, a month by default, and begin when the recording rules were installed: "
                "Prometheus must keep its data as long."
            ),
            (
                "谁在占用加速卡，以及是否真正使用。卡时按所选时间范围统计，默认一个月，"
                "从录制规则安装时开始累计；Prometheus 的数据保留时间不得短于该范围。"
            ),
        ),
        ["cluster", "pool", "namespace", "owner", "queue"],
        since="now-30d",
        refresh="5m",
    )
    return made.rows(
        (say("Now", "当前"), numbers(say)),
        (say("In the time range", "所选时间范围"), [*hours(say), by_state(say), by_owner(say)]),
        (
            say("Who", "明细"),
            [
                ranking(say, ("By owner", "按负责人"), "owner", ("Owner", "负责人"), 24),
                ranking(say, ("By queue", "按队列"), "queue", ("Queue", "队列"), 12),
                ranking(say, ("By pool", "按资源池"), "pool", ("Pool", "资源池"), 12),
                idle_owners(say),
                power(say),
            ],
        ),
    )


def _count(selector: str, state: str) -> str:
    return f"sum({NUMBERS}{{{selector}, {state}}}) or 0 * sum({NUMBERS}{{{POOL}}})"


def numbers(say: Say) -> list[stat.Panel]:
    """Return the numbers of now. Those without an owner follow cluster and pool alone."""
    texts = [
        (
            say("Installed", "已安装"),
            say("All accelerators, as far as known.", "全部已知的加速卡。"),
            f"sum({NUMBERS}{{{POOL}}})",
            (),
        ),
        (
            say("Booked", "已占用"),
            say(
                "Accelerators that pods have. Of one that several pods share, each has its part; "
                "a GPU in MIG mode counts as one.",
                "被 Pod 占用的加速卡。多个 Pod 共享一张卡时按份均分；MIG 模式的 GPU 计为一张。",
            ),
            _count(USER, BOOKED),
            (),
        ),
        (
            say("Used", "使用中"),
            say(
                "Booked, with a utilization of at least the threshold idle_utilization (5 %) over "
                "5 minutes.",
                "已占用且最近 5 分钟利用率不低于阈值 idle_utilization（5%）。",
            ),
            _count(USER, 'state="used"'),
            ((None, GREEN),),
        ),
        (
            say("Idle", "占用未使用"),
            say(
                "Booked, with a utilization below the threshold over 5 minutes. The lists below "
                "show the owners: ask them to release what they do not need.",
                "已占用但最近 5 分钟利用率低于阈值。下方列出负责人，请联系其释放不用的卡。",
            ),
            _count(USER, IDLE),
            ((None, GREEN), (1, YELLOW)),
        ),
        (
            say("Free", "空闲可用"),
            say("Healthy, without a pod and not in use.", "正常、无 Pod 占用且未被使用。"),
            _count(POOL, 'state="free"'),
            (),
        ),
        (
            say("Used without a pod", "无 Pod 使用"),
            say(
                "In use by processes of no pod: jobs of Slurm or by ssh. On nodes of Kubernetes, "
                "find out whose they are: the scheduler does not see them.",
                "由非 Pod 进程使用，如 Slurm 作业或 ssh 登录。在 Kubernetes 节点上请查明来源，"
                "调度器看不到这些进程。",
            ),
            _count(POOL, 'state="unbooked"'),
            ((None, GREEN), (1, YELLOW)),
        ),
        (
            say("Unavailable", "不可用"),
            say(
                "Neither booked nor in use, and failed, lost, or on a node in maintenance.",
                "未被占用，且故障、丢失或所在节点处于维护状态。",
            ),
            _count(POOL, 'state="unavailable"'),
            ((None, GREEN), (1, ORANGE)),
        ),
        (
            say("Unknown", "未知"),
            say(
                "Accelerators that cannot be read, or whose node's agent does not answer.",
                "无法读取的加速卡，或所在节点的采集器无应答。",
            ),
            _count(POOL, 'state="unknown"'),
            ((None, GREEN), (1, YELLOW)),
        ),
    ]
    return [
        number(title, description, now(query), unit="short", steps=steps, decimals=0)
        for title, description, query, steps in texts
    ]


def hours(say: Say) -> list[stat.Panel]:
    """Return the sums of the range."""
    measured = hours_of(MEASURED)
    since = say(" Hours before the rules were installed are missing.", "规则安装之前的卡时不计入。")

    def panel(title: str, text: str, query: str, unit: str, steps: Steps = ()) -> stat.Panel:
        return number(title, text + since, now(query), unit=unit, steps=steps, width=4, decimals=0)

    everything = hours_of('state=~".+"', selector=POOL)
    out = hours_of('state=~"unavailable|unknown"', selector=POOL)
    return [
        panel(
            say("Booked hours", "占用卡时"),
            say("Accelerators times hours that pods had them.", "Pod 占用的加速卡数 × 小时。"),
            hours_of(BOOKED),
            "none",
        ),
        panel(
            say("Idle hours", "空闲卡时"),
            say("Booked hours in which they were idle.", "占用期间未使用的卡时。"),
            f"{hours_of(IDLE)} or 0 * {measured}",
            "none",
        ),
        panel(
            say("Idle share", "空闲占比"),
            say(
                "Idle hours of the booked hours with known utilization. High: owners keep "
                "accelerators that they do not use.",
                "空闲卡时占（利用率已知的）占用卡时的比例。偏高：有人占用而不使用。",
            ),
            f"({hours_of(IDLE)} or 0 * {measured}) / ({measured} > 0)",
            "percentunit",
            IDLE_SHARE,
        ),
        panel(
            say("Booked share", "占用率"),
            say(
                "Booked hours of all installed hours, for the chosen owners and queues.",
                "占用卡时占全部已安装卡时的比例（按所选负责人与队列）。",
            ),
            f"{hours_of(BOOKED)} / ({everything} > 0)",
            "percentunit",
        ),
        panel(
            say("Out of service", "停用卡时"),
            say(
                "Hours in which accelerators were unavailable or unknown.",
                "加速卡不可用或状态未知的卡时。",
            ),
            f"{out} or 0 * {everything}",
            "none",
        ),
        panel(
            say("Energy", "能耗"),
            say(
                "Energy of the accelerators of the chosen owners, and of those without one while "
                "All is chosen. Without servers and cooling.",
                "所选负责人的加速卡能耗；选择全部时包含未被占用的卡。不含服务器和散热。",
            ),
            energy_of(),
            "kwatth",
        ),
    ]
