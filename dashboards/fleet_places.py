"""Failures by place (rack, NVLink domain), and the pods that ended beside faults."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.language import Say
from dashboards.panels import Steps, chart, number
from dashboards.queries import BY_POOL, CLUSTER, in_pool, now, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW
from dashboards.tables import Column, grid

SEEN: Steps = ((None, "text"), (1, ORANGE))


def places(say: Say) -> Sequence[Builder[Panel]]:
    """Return the tables by rack and by NVLink domain."""
    return [
        _by_place(
            say,
            "rack",
            say("Racks", "机柜"),
            say(
                "Nodes and failures by rack, the worst first. Many in one rack: power, cooling or"
                " its"
                " switch.",
                "各机柜的节点与失效情况，最差在前。集中于一个机柜时，请检查供电、"
                "散热或机柜交换机。",
            ),
        ),
        _by_place(
            say,
            "nvlink",
            say("NVLink domains", "NVLink 域"),
            say(
                "Nodes and failures by NVLink cluster and clique, the worst first. Many in one"
                " domain:"
                " its NVLink switches. Empty without multi-node NVLink.",
                "各 NVLink 集群与分组（clique）的节点与失效情况，最差在前。"
                "集中于一个域时，请检查其 NVLink 交换机。无多节点 NVLink 时为空。",
            ),
        ),
    ]


def _by_place(say: Say, place: str, title: str, description: str) -> table.Panel:
    nodes = f"({in_pool(f'nodevitals:node_place{{{CLUSTER}, place=`{place}`}}')})"
    joined = f"{nodes} * on (cluster, instance) group_left ()"
    unhealthy = f"nodevitals:node_state{{{CLUSTER}}} > 2"
    worst = say("Not healthy", "异常")

    def column(found: str) -> str:
        return f"{found} or 0 * count by (cluster, name) ({nodes})"

    failures = f"nodevitals:node_failures:count7d{{{CLUSTER}}}"
    faults = f"nodevitals:node_faults:count30d{{{CLUSTER}}}"
    bad = f"count by (cluster, name) ({nodes} and on (cluster, instance) ({unhealthy}))"
    return grid(
        title,
        description,
        [
            Column(say("Name", "名称"), "name"),
            Column(say("Nodes", "节点"), rows(f"count by (cluster, name) ({nodes})")),
            Column(worst, rows(column(bad)), steps=SEEN),
            Column(
                say("Failures (7 days)", "失效（7 天）"),
                rows(column(f"sum by (cluster, name) ({joined} {failures})")),
                steps=SEEN,
            ),
            Column(
                say("Faults (30 days)", "故障（30 天）"),
                rows(column(f"sum by (cluster, name) ({joined} {faults})")),
            ),
        ],
        width=12,
        height=8,
        sort_by=worst,
        empty=say("Not known", "未知"),
    )


def jobs(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels about pods with accelerators that ended; by kube-state-metrics."""
    ended = f"nodevitals:pods_ended:count{{{CLUSTER}"
    names = {
        "yes": say("on failed nodes", "失效节点"),
        "no": say("on other nodes", "其他节点"),
    }
    success = [
        number(
            say("Success ", "Pod 成功率：") + name,
            say(
                "Share of the pods with accelerators that succeeded, of those that ended in 24"
                " hours."
                " A large difference between the two is what faults cost.",
                "24 小时内结束的加速卡 Pod 中成功的占比。两者差距越大，说明故障造成的损失越大。",
            ),
            now(
                f'(sum(sum_over_time({ended}, phase="Succeeded", node_failed="{key}"}}[1d]))'
                f' or 0 * sum(sum_over_time({ended}, node_failed="{key}"}}[1d])))'
                f' / sum(sum_over_time({ended}, node_failed="{key}"}}[1d]))'
            ),
            unit="percentunit",
            steps=((None, RED), (0.8, YELLOW), (0.95, GREEN)),
            width=4,
            height=8,
            decimals=0,
            empty=say("no pod ended", "无结束的 Pod"),
        )
        for key, name in names.items()
    ]
    recent = (
        "and on (cluster, namespace, job_name)"
        f" (kube_job_status_start_time{{{CLUSTER}}} > time() - 86400)"
    )
    complete = f'(kube_job_complete{{{CLUSTER}, condition="true"}} == 1) {recent}'
    broken = f'(kube_job_failed{{{CLUSTER}, condition="true"}} == 1) {recent}'
    ended_jobs = number(
        say("Jobs that succeeded", "Job 成功率"),
        say(
            "Share of the Kubernetes Jobs that succeeded, of those that started and ended in 24"
            " hours;"
            " also Jobs without accelerators.",
            "24 小时内启动并结束的 Kubernetes Job 中成功的占比，包括不使用加速卡的 Job。",
        ),
        now(f"(count({complete}) or 0 * count({broken})) / count({complete} or {broken})"),
        unit="percentunit",
        steps=((None, RED), (0.8, YELLOW), (0.95, GREEN)),
        width=4,
        height=8,
        decimals=0,
        empty=say("no Job ended", "无结束的 Job"),
    )
    failed = chart(
        say("Pods that failed, and faults", "失败的 Pod 与故障"),
        say(
            "Pods with accelerators that failed in the hour before each point, on nodes with a"
            " failure"
            " and on others, beside the number of faults. Failures that rise together with faults"
            " are"
            " the hardware's, others the job's.",
            "每个时间点之前一小时内失败的加速卡 Pod 数（分节点失效与正常），以及故障数。"
            "与故障同步上升的失败多由硬件引起，否则多为作业自身问题。",
        ),
        *(
            over_time(
                f'sum(sum_over_time({ended}, phase="Failed", node_failed="{key}"}}[1h]))', name
            )
            for key, name in names.items()
        ),
        over_time(f"sum(nodevitals:faults:count{{{BY_POOL}}})", say("Faults", "故障")),
        unit="short",
        width=12,
    )
    return [ended_jobs, *success, failed]
