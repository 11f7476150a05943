"""Texts of the notifications that no alerts arrive, and that they arrive again."""

from __future__ import annotations

from nodevitals_hub.notify.texts.rendering import Text
from nodevitals_hub.plain_text import clean
from nodevitals_hub.settings.response import Language

_MISSING = Text(
    "[FIRING] {name}: no alerts arrive",
    "The alert Watchdog of {name}, which always fires, has not come for {minutes:g} minutes:"
    " Prometheus or Alertmanager is down, or cannot reach the hub. Other alerts do not arrive"
    " either.\nCheck both, and the network from them to the hub.",
)
_BACK = Text("[RESOLVED] {name}: alerts arrive again", "The alert Watchdog has come again.")
_MISSING_ZH = Text(
    "[告警] {name}：告警通道中断",
    "{name} 的 Watchdog 告警（正常时持续触发）已中断 {minutes:g} 分钟：Prometheus 或"
    " Alertmanager 停止运行，或无法访问 hub，其他告警也无法送达。\n"
    "请检查两者的运行状态，以及它们到 hub 的网络。",
)
_BACK_ZH = Text("[已恢复] {name}：告警通道恢复", "已重新收到 Watchdog 告警。")


def text_of(cluster: str, missing: float | None, language: Language) -> Text:
    """The notification: `missing` is for how many seconds none has come, None where it is back."""
    name, minutes = clean(cluster, 80) or "cluster", (missing or 0.0) / 60
    english, chinese = (_BACK, _BACK_ZH) if missing is None else (_MISSING, _MISSING_ZH)
    first, second = (
        Text(*(part.format(name=name, minutes=minutes) for part in text))
        for text in (english, chinese)
    )
    if language == "both":
        return Text(second.title, f"{second.body}\n\n{first.body}")
    return second if language == "zh" else first
