"""Pushes a collective's result to a Pushgateway: the command ends before it could be scraped.

https://github.com/prometheus/pushgateway
"""

from __future__ import annotations

import http.client
import urllib.error

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from nodevitals.checks.requests.collective import Collective
from nodevitals.families import Family
from nodevitals.linux.host import node_name
from nodevitals.probes.fabric.families import BUS, COLLECTIVE_SUCCESS
from nodevitals.probes.fabric.tools.report import Report

PUSH_SECONDS = 10.0
_SHOWN_BYTES = 300


class PushError(Exception):
    """The gateway did not accept the result; the message says why."""


def push(url: str, wanted: Collective, report: Report) -> None:
    """Replace the gateway's result of this collective from this node. Raises PushError."""
    if not url.startswith(("http://", "https://")):
        raise PushError(f"{url} is no URL of a Pushgateway: write http://HOST:9091")
    if "@" in url.split("/")[2]:
        raise PushError("the URL of the Pushgateway has a password: none can be sent, remove it")
    group = {"instance": node_name(), "collective": f"{wanted.backend}_{wanted.operation}"}
    result = metrics(wanted, report)
    try:
        push_to_gateway(url, "nodevitals", result, grouping_key=group, timeout=PUSH_SECONDS)
    except urllib.error.HTTPError as error:
        raise PushError(f"{url}: HTTP {error.code}: {_body(error)}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise PushError(f"{url}: {' '.join(reason.split())}") from None


def _body(error: urllib.error.HTTPError) -> str:
    """The beginning of a gateway's message, in one line."""
    try:
        return " ".join(error.read(_SHOWN_BYTES).decode(errors="replace").split())
    except (OSError, http.client.HTTPException):
        return str(error.reason)


def metrics(wanted: Collective, report: Report) -> CollectorRegistry:
    """The result; a failure has no bandwidth."""
    registry = CollectorRegistry()
    words = (wanted.backend, wanted.operation)
    success = _gauge(COLLECTIVE_SUCCESS, registry)
    success.labels(*words).set(report.outcome == "ok")
    if report.outcome == "ok":
        bus = _gauge(BUS, registry)
        for row in report.rows:
            labels = (*words, str(wanted.ranks), str(row.message_bytes))
            bus.labels(*labels).set(row.bus_bandwidth_bytes_per_second or 0.0)
    return registry


def _gauge(family: Family, registry: CollectorRegistry) -> Gauge:
    return Gauge(family.name, family.help, family.labels, registry=registry)
