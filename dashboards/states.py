"""Words and colours of values: the state of a device or node, severities, yes and no."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import ValueMap, ValueMappingResult

from dashboards.language import Say

GREEN, BLUE, YELLOW, ORANGE, RED, GREY = "green", "blue", "yellow", "orange", "red", "#8e8e8e"
BLACK = "#111111"

# The values of nodevitals:component_state and nodevitals:node_state, from good to bad: the worst of
# several is their maximum.
HEALTHY, MAINTENANCE, UNKNOWN, DEGRADED, FAILED, LOST = range(6)
# By the label `state` of the counts.
STATE_COLOURS = {
    "healthy": GREEN,
    "maintenance": BLUE,
    "unknown": GREY,
    "degraded": YELLOW,
    "failed": ORANGE,
    "lost": RED,
}


def state_words(say: Say) -> dict[str, str]:
    """Return the word for each state, in the order of their values."""
    return {
        "healthy": say("healthy", "正常"),
        "maintenance": say("maintenance", "维护中"),
        "unknown": say("unknown", "未知"),
        "degraded": say("degraded", "降级"),
        "failed": say("failed", "故障"),
        "lost": say("lost", "丢失"),
    }


def _map(words: dict[str, tuple[str, str]]) -> ValueMap:
    return ValueMap(
        options={
            value: ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(words.items())
        }
    )


def states(say: Say) -> ValueMap:
    """Return the mapping of the values of a state."""
    words = state_words(say)
    colours = STATE_COLOURS
    return _map({str(n): (words[name], colours[name]) for n, name in enumerate(words)})


def yes_no(say: Say, good: bool = True) -> ValueMap:
    """Return the mapping of 1 and 0; `good`: 1 is green."""
    colours = (GREEN, RED) if good else (RED, GREEN)
    return _map({"1": (say("yes", "是"), colours[0]), "0": (say("no", "否"), colours[1])})


def up_down(say: Say) -> ValueMap:
    """Return the mapping of 1 to up and 0 to down."""
    return _map({"1": (say("up", "正常"), GREEN), "0": (say("down", "断开"), RED)})


def severity_ranks(say: Say) -> ValueMap:
    """Return the mapping of 3, 2 and 1, so that a table can be sorted by severity."""
    return _map(
        {
            "3": (say("critical", "严重"), RED),
            "2": (say("warning", "警告"), YELLOW),
            "1": (say("info", "提示"), BLUE),
        }
    )


def actions(say: Say) -> ValueMap:
    """Return the mapping of the label `action`: what repairs a fault."""
    return _map(
        {
            "replace": (say("replace", "更换"), RED),
            "reboot_node": (say("reboot node", "重启节点"), RED),
            "reset_device": (say("reset device", "复位设备"), ORANGE),
            "drain": (say("drain node", "排空节点"), ORANGE),
            "restart_app": (say("restart job", "重启作业"), YELLOW),
            "investigate": (say("investigate", "排查"), YELLOW),
            "none": (say("none", "无需处理"), GREEN),
        }
    )


def severities(say: Say) -> ValueMap:
    """Return the mapping of the label `severity`."""
    return _map(
        {
            "critical": (say("critical", "严重"), RED),
            "warning": (say("warning", "警告"), YELLOW),
            "info": (say("info", "提示"), BLUE),
        }
    )


def mapping(words: dict[str, tuple[str, str]]) -> ValueMap:
    """Return the mapping of values to texts and colours."""
    return _map(words)


def failed(say: Say) -> ValueMap:
    """Return the mapping of 0 to a test that failed; other values are shown as they are."""
    return _map({"0": (say("failed", "失败"), BLACK)})
