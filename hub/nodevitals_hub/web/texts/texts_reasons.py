"""Reasons of refusals that the forms and the pages can cause, in English and Chinese.

Names, values and words that a field takes are the same in both languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nodevitals.errors import Message

_FIELDS = {
    "{value}: a name has letters, digits and . _ - only": (
        "{value} 不是有效名称：只能包含字母、数字和 . _ -"
    ),
    "{value} is none of {words}": "{value} 无效，可选：{words}",
    "{value}: write a whole number from {low} to {high}": (
        "{value} 无效：请填写 {low} 到 {high} 的整数"
    ),
    "{value}: write text of {low} to {high} characters": "{value} 过长：最多 {high} 个字符",
    "{value}: write a number above {low}": "{value} 无效：请填写大于 {low} 的数",
    "write NAME=VALUE instead of {value}, one per line": (
        "{value} 格式不对：请按 NAME=VALUE 填写，每行一个"
    ),
    "{name} is there twice: remove one": "{name} 重复：请删除一个",
    "{name} is chosen above, too: remove one": "{name} 已在上方选择：请删除一处",
    "{value} is not a number": "{value} 不是数字",
    "write a percentage above 0 and up to 100, such as 80": (
        "请填写大于 0 且不超过 100 的百分比，例如 80"
    ),
    "{value} is not a rate: write it like 400Gb/s or 100Mb/s": (
        "{value} 不是速率：格式如 400Gb/s、100Mb/s"
    ),
    "{value} is outside {low} to {high}: choose a rate within": (
        "{value} 超出范围（{low} 到 {high}）"
    ),
    "{value} is not a duration: write it like 500ms, 30s, 5m or 1h": (
        "{value} 不是时长：格式如 500ms、30s、5m、1h"
    ),
    "{value} is outside {low} to {high}: choose a duration within": (
        "{value} 超出范围（{low} 到 {high}）"
    ),
    "{value} is outside {low} to {high}: choose a size within": (
        "{value} 超出范围（{low} 到 {high}）"
    ),
    "{value} is no size: write 64KiB, 8B,64KiB,1MiB or 8B..8GiB x2": (
        "{value} 不是大小：格式如 64KiB；8B,64KiB,1MiB；8B..8GiB x2"
    ),
    "{value} is too long: write 64KiB, 8B,64KiB,1MiB or 8B..8GiB x2": (
        "{value} 过长：格式如 64KiB；8B,64KiB,1MiB；8B..8GiB x2"
    ),
    "{value} has over {most} sizes: choose a larger factor": (
        "{value} 超过 {most} 个大小：请增大倍数"
    ),
    "a sweep's factor is at least 2: write 8B..8GiB x2": "扫描倍数至少为 2：格式如 8B..8GiB x2",
    "a sweep's first size is over its last: exchange them": "扫描的起始大小大于结束大小：请交换",
}
_NODES = {
    "{names} and {count} more": "{names} 等，另有 {count} 个",
    "{names}: not on the lists of nodes": "{names} 不在 hub 的节点列表中",
    "{name} is not on the hub's lists": "{name} 不在 hub 的节点列表中",
    "no node has {labels}: see the labels on the lists": "没有节点带有标签 {labels}",
    "no nodes: name some, or choose them by `where`": "没有节点：请填写名称或选择标签",
    "no nodes: name some in nodes, or choose them by where": "没有节点：请填写名称或选择标签",
    "a pair takes two nodes, and there are {count}: name two": (
        "节点对需要 2 个节点，现有 {count} 个"
    ),
    "a matrix takes two nodes or more, and there are {count}: add some": (
        "节点矩阵至少需要 2 个节点，现有 {count} 个"
    ),
    "{count} nodes: choose at most {most}": "{count} 个节点：最多 {most} 个",
    "over {most} labels: remove some": "超过 {most} 个标签：请减少",
    "a label has over {most} characters: shorten it": "标签超过 {most} 个字符：请缩短",
    "in use by jobs: {names}; leave them out, or force (role act)": (
        "正被作业占用：{names}。请去掉这些节点，或强制检测（需要 act 角色）"
    ),
}
_TEST = {
    "no {name}: choose {words}": "没有名为 {name} 的预设，可选：{words}",
    "{name} is for the kind {kind}: choose another": "预设 {name} 用于 {kind} 类型：请另选",
    "all pairs of {count} nodes are too many: choose rounds, such as 8, or at most {most} nodes": (
        "{count} 个节点两两测试过多：请填写轮数（例如 8），或最多选 {most} 个节点"
    ),
    "a check of the kind node has no test: remove it": "节点自检没有测试参数：请留空",
    "node has no rate: remove it": "节点自检没有速率：请留空",
    "{tool} has no {name}: choose {words}": "{tool} 不支持 {name}，可选：{words}",
    "{tool} has no {name}: remove it": "{tool} 没有参数 {name}：请留空",
    "missing: which RDMA device, as in /sys/class/infiniband?": (
        "必填：RDMA 设备名，见 /sys/class/infiniband"
    ),
    "{value} is no device: write it like mlx5_0": "{value} 不是设备名：格式如 mlx5_0",
    "a port of which device? write test.device, or remove it": "填写端口时须同时填写设备，或留空",
    "{size} is over {most}, the largest of {tool}: choose a smaller one": (
        "{size} 超过 {tool} 的最大值 {most}"
    ),
    "either iterations or seconds: remove one": "消息数与秒数只能填一项",
    "over 4 TiB of one size: choose fewer, or a smaller size": (
        "单个大小的流量超过 4 TiB：请减少消息数或改小消息"
    ),
    "a latency test has one queue pair: remove it": "延迟测试只有一个队列对：请留空",
    "a latency test counts messages: write iterations instead": "延迟测试按消息数计：请改填消息数",
    "a latency test has no rate: nodes are compared, remove it": (
        "延迟测试没有速率，节点之间相互比较：请留空"
    ),
    "{name} is test.{field} too: remove one": "{name} 与参数 {field} 重复：请删除一处",
    "perftest has at most {most}: choose another": "perftest 最大为 {most}：请另选",
    "HCCL has at most {most}: choose fewer": "HCCL 最多 {most} 个",
    "HCCL's is a multiple of {step}: choose another": "HCCL 的值须为 {step} 的倍数",
    "{name} is not on the list: choose {words}": "{name} 不在白名单中，可选：{words}",
    "{value} is no value of {name}: write an integer from {low} to {high}, a multiple of {step}": (
        "{name} 不能为 {value}：请填写 {low} 到 {high} 的整数，须为 {step} 的倍数"
    ),
    "{value} is no value of {name}: write an integer from {low} to {high}": (
        "{name} 不能为 {value}：请填写 {low} 到 {high} 的整数"
    ),
    "{value} is no value of {name}: choose {words}": "{name} 不能为 {value}，可选：{words}",
    "{value} is no value of {name}: write names, such as {examples}": (
        "{name} 不能为 {value}：请填写名称，例如 {examples}"
    ),
}
_HUB = {
    "{runs} runs, {hours} node hours, over limits.node_hours ({most}): choose fewer nodes, rounds,"
    " sizes or iterations": (
        "{runs} 次测试，{hours} 节点小时，超过 limits.node_hours（{most}）："
        "请减少节点、轮数、大小或消息数"
    ),
    "no launcher of collectives: set collectives.launcher in the hub's configuration": (
        "没有集合通信启动方式：请在 hub 的配置中设置 collectives.launcher"
    ),
    "the hub cannot talk with agents: write the section agents of its configuration": (
        "hub 无法访问采集器：请在其配置中添加 agents 一节"
    ),
    "{count} checks wait (limits.queued): try again later": (
        "已有 {count} 个检测在排队（limits.queued）：请稍后再试"
    ),
    "choose a probe, or name one": "请选择或填写探针",
    "{count} probes: choose at most {most}": "{count} 个探针：最多 {most} 个",
    "over {most}, leases.max_duration": "超过 {most} 秒（leases.max_duration）",
    "there are {count} leases: end one first": "已有 {count} 个租约：请先结束一个",
    "{count} nodes would be monitored every second, leases.max_nodes is {most}: choose fewer, or"
    " end a lease": (
        "秒级监控将达到 {count} 个节点，超过 leases.max_nodes（{most}）：请减少节点或结束租约"
    ),
    "{name}: over {most} probes in all leases: choose fewer, or end a lease": (
        "{name} 在所有租约中超过 {most} 个探针：请减少探针或结束租约"
    ),
    "no lease {name}: it may have ended": "没有租约 {name}，可能已结束",
    "no check {name}": "没有检测 {name}",
    "{name} has ended": "检测 {name} 已结束",
    "kind: choose {words}": "请选择类型：{words}",
    "this method is not supported here": "此页面不支持该请求方式",
    "the body has over {most} KiB": "请求超过 {most} KiB",
    "the URL has over {most} bytes": "地址超过 {most} 字节",
    "not the name of this hub: without a login, use external_url, an address or a private name as"
    " Host": "不是此 hub 的名称：未登录时请使用 external_url、IP 地址或内部名称访问",
    "no such page": "没有这个页面",
    "not a form of this page": "不是本页面的表单",
    "sent by a page of another site": "请求来自其他站点的页面",
    "log in: this hub has no access without a login": "请登录：此 hub 不允许匿名访问",
    "this token is not valid": "令牌无效",
    "the credentials are too long": "登录信息过长",
    "too many logins at a time: try again in a second": "登录请求过多：请一秒后再试",
    "log in: this needs the role {role}": "请登录：需要 {role} 角色",
    "needs the role {role}": "需要 {role} 角色",
    "force: needs the role {role}": "强制检测需要 {role} 角色",
    "the user or the password is wrong": "用户名或密码错误",
    "this hub has no users: see access in its configuration": (
        "此 hub 没有用户：见其配置中的 access"
    ),
}
_INCIDENTS = {
    "use the link of the notification, or log in with the role run": (
        "请使用通知中的链接，或用 run 角色登录"
    ),
    "this link has expired: use that of a newer notification, or log in with the role run": (
        "该链接已过期：请使用更新的通知中的链接，或用 run 角色登录"
    ),
    "this link is not valid for this incident: use that of its notification, or log in with the"
    " role run": "该链接无效，或属于其他事件：请使用该事件通知中的链接，或用 run 角色登录",
    "{name} has acknowledged it": "{name} 已响应该事件",
    "it is resolved": "该事件已恢复",
    "name: write your name": "请填写您的姓名",
    "no such incident": "没有这个事件",
    "month: write it as 2026-11": "月份格式不对：请写作 2026-11",
    "no incident has that alert": "没有包含该告警的事件",
}
REASONS: Mapping[str, str] = MappingProxyType({**_FIELDS, **_NODES, **_TEST, **_HUB, **_INCIDENTS})
"""English to Chinese, as templates of messages."""


def translated(language: str, text: str) -> str:
    """The text in a language, where it is a Message."""
    if language == "en" or not isinstance(text, Message):
        return text
    values = {
        name: translated(language, value) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return REASONS.get(text.template, text.template).format(**values)
