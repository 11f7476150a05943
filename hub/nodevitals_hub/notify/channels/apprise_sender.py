"""One message through Apprise, which blocks: called in a thread (channels.py).

In: a URL, a title, a text. Out: nothing, or DeliveryError. Nothing of Apprise's log is repeated,
because it may have the URL: only what stands in the closed lists below.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import Any

import apprise

from nodevitals_hub.notify.channels import bounded_answers
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError, quiet, retry_after

# One attempt ends within the deadline of channels.py.
CONNECT_SECONDS, READ_SECONDS = 5.0, 8.0
_HTTP_CODE = re.compile(r"\berror=([1-5][0-9]{2})\b")
_SMTP_CODE = re.compile(r"\(([45][0-9]{2}), b['\"]|\b(?:code|error)[ =]([45][0-9]{2})\b")
# In a card, one line break is a space.
_TEAMS = ("workflow", "workflows", "msteams")
# By what Python, urllib3 and OpenSSL say.
_PHRASES = (
    ("certificate verify failed", "the certificate is not accepted"),
    ("Name or service not known", "the name is unknown"),
    ("Temporary failure in name resolution", "the name cannot be resolved"),
    ("No address associated with hostname", "the name has no address"),
    ("Connection refused", "connection refused"),
    ("Network is unreachable", "network unreachable"),
    ("No route to host", "no route to the host"),
    ("timed out", "no answer in time"),
    ("Connection reset", "connection reset"),
    ("closed", "connection closed"),
)


def send(url: str, title: str, text: str, context: Context) -> None:
    """Send one message. Raises DeliveryError."""
    quiet()
    said: list[str] = []
    service = _service(url)
    _adjust(service, context)
    sender = apprise.Apprise(asset=service.asset)
    sender.add(service)
    try:
        with bounded_answers.watched() as answered:
            result = sender.notify(
                body=text.replace("\n", "\n\n") if service.schema in _TEAMS else text,
                title=title,
                body_format=_format_of(service),
                notify_type=_type_of(context),
                log_callback=lambda entry, _: said.append(entry.message),
                log_level=logging.DEBUG,
            )
    except Exception as error:  # noqa: BLE001 # whatever one of its many classes raises
        raise DeliveryError(f"Apprise failed: {type(error).__name__}") from None
    if not result and answered.status is not None and not 200 <= answered.status < 300:
        wait = retry_after(answered.retry_after, time.time())
        raise DeliveryError(f"HTTP {answered.status}", wait)
    if not result:
        raise DeliveryError(_reason(said))


def _service(url: str) -> Any:
    """Apprise's object for a URL."""
    asset = apprise.AppriseAsset(
        app_id="nodevitals",
        app_desc="nodevitals",
        app_url="",
        # Pictures would be fetched from elsewhere by those who read the message.
        image_url_mask="",
        image_url_logo="",
        async_mode=False,
        default_service_retry=0,
        http_redirects=False,
        secure_logging=True,
        service_timeout=0,
        storage_mode="memory",
        pgp_autogen=False,
        pem_autogen=False,
    )
    try:
        service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    except Exception as error:  # noqa: BLE001 # as above
        raise DeliveryError(f"Apprise failed: {type(error).__name__}") from None
    if service is None:
        raise DeliveryError("not a URL that Apprise understands: see docs/respond.md")
    return service


def _adjust(service: Any, context: Context) -> None:
    """What the URL's own parameters may not change, and what only some services know."""
    service.optional, service.retry = False, 0
    is_mail = service.schema in ("mailto", "mailtos")
    # The mails' class has this one only, for each answer; many servers greet late.
    service.socket_connect_timeout = READ_SECONDS if is_mail else CONNECT_SECONDS
    service.socket_read_timeout = READ_SECONDS
    # A message is one request: what waits between two is notify.py.
    service.request_rate_per_sec = 0
    if context.thread and is_mail:
        service.headers = {**service.headers, "References": f"<{context.thread}@nodevitals>"}
    if context.thread and service.schema == "pagerduty":
        service.dedup, service.action = context.thread, "map"


def _format_of(service: Any) -> apprise.NotifyFormat:
    """Text; as markdown where a service has no other format, because Apprise would put a backslash
    before each dot of a link. The texts have no markup (plain.py).
    """
    formats = service.notify_format
    only = formats if isinstance(formats, apprise.NotifyFormat) else None
    return only if only is apprise.NotifyFormat.MARKDOWN else apprise.NotifyFormat.TEXT


def _type_of(context: Context) -> apprise.NotifyType:
    if context.resolved:
        return apprise.NotifyType.SUCCESS
    known = {"critical": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}
    return known.get(context.severity, apprise.NotifyType.INFO)


def _reason(said: Sequence[str]) -> str:
    """Why a message was not delivered, by what Apprise logged."""
    whole = "\n".join(said)[-20_000:]
    if match := _HTTP_CODE.search(whole):
        return f"HTTP {match[1]}"
    if match := _SMTP_CODE.search(whole):
        return f"SMTP {match[1] or match[2]}"
    for phrase, reason in _PHRASES:
        if phrase in whole:
            return reason
    return "refused"
