"""Which alerts go to which channels.

In: a message of Alertmanager, the settings, the time. Out: the alerts for each channel. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from nodevitals_hub.records import Alert, Message
from nodevitals_hub.settings.notification_routes import DAYS, parse_hours, zone_of
from nodevitals_hub.settings.response import NotifySettings, RouteSettings


def channels_for(
    message: Message, settings: NotifySettings, pool_of: Callable[[Alert], str], now: float
) -> dict[str, tuple[Alert, ...]]:
    """The alerts for each channel, in the order of the message. `pool_of` returns the pool of the
    alert's node on the hub's lists; it is used where the alert has no label `pool`.
    """
    moment = datetime.fromtimestamp(now, zone_of(settings.time_zone))
    routes = [route for route in settings.routes if _is_open(route, message.receiver, moment)]
    by_channel: dict[str, list[Alert]] = {}
    for alert in message.alerts:
        chosen = (route.channels for route in routes if _matches(route, alert, pool_of))
        for channel in dict.fromkeys(name for names in chosen for name in names):
            by_channel.setdefault(channel, []).append(alert)
    return {channel: tuple(alerts) for channel, alerts in by_channel.items()}


def _is_open(route: RouteSettings, receiver: str, moment: datetime) -> bool:
    if route.receivers and receiver not in route.receivers:
        return False
    day = parse_hours(route.hours).day_of(moment)
    return day is not None and (not route.days or DAYS[day] in route.days)


def _matches(route: RouteSettings, alert: Alert, pool_of: Callable[[Alert], str]) -> bool:
    if alert.status == "resolved" and not route.resolved:
        return False
    labels = alert.labels
    if route.severities and labels.get("severity") not in route.severities:
        return False
    if route.components and labels.get("component", "") not in route.components:
        return False
    return not route.pools or (labels.get("pool") or pool_of(alert)) in route.pools
