"""Pushes a collective's result to a Pushgateway, as no process stays to be scraped.

https://github.com/prometheus/pushgateway
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from urllib.parse import quote

from nodevitals.commands.fabric.launch import Collective
from nodevitals.exposition import header, render_samples
from nodevitals.linux.host import node_name
from nodevitals.probes.fabric.families import BUS, COLLECTIVE_SUCCESS, PUSHED
from nodevitals.probes.fabric.report import Report
from nodevitals.wire import Sample

PUSH_SECONDS = 10.0


class PushError(Exception):
    """The gateway did not accept the result; the message says why."""


def push(url: str, wanted: Collective, report: Report) -> None:
    """Replace the gateway's result of this collective from this node. Raises PushError."""
    if not url.startswith(("http://", "https://")):
        raise PushError(f"{url} is no URL of a Pushgateway: write http://HOST:9091")
    job, instance = "nodevitals", quote(node_name(), safe="")
    group = f"job/{job}/instance/{instance}/collective/{wanted.backend}_{wanted.operation}"
    request = urllib.request.Request(  # noqa: S310 - its scheme was checked
        f"{url.rstrip('/')}/metrics/{group}",
        data=exposition(wanted, report),
        method="PUT",
        headers={"Content-Type": "text/plain; version=0.0.4"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PUSH_SECONDS):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        raise PushError(
            f"{url}: HTTP {error.code}: {error.read(300).decode(errors='replace')}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise PushError(f"{url}: {getattr(error, 'reason', error)}") from None


def exposition(wanted: Collective, report: Report) -> bytes:
    """The result in the text format; a failure has no bandwidth."""
    words = (wanted.backend, wanted.operation)
    samples = [Sample(COLLECTIVE_SUCCESS.name, words, float(report.outcome == "ok"))]
    if report.outcome == "ok":
        row = report.rows[0]
        labels = (*words, str(wanted.ranks), str(row.message_bytes))
        samples.append(Sample(BUS.name, labels, float(row.bus_bandwidth_bytes_per_second or 0.0)))
    lines = render_samples({family.name: family for family in PUSHED}, samples)
    return b"".join(
        header(family) + lines[family.name] for family in PUSHED if family.name in lines
    )
