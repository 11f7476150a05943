"""The process that sends one message through Apprise (apprise_process.py).

In: a Message on the standard input. Out: Progress on the standard output. With the argument
`check`: a list of URLs, and one of errors (channel_check.py). Apprise's log may contain
the URL, so none of it is repeated: the reasons come from the closed lists below.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

import apprise
import msgspec

from nodevitals.linux import process
from nodevitals_hub.notify.channels.apprise_process import Message, Progress
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError, quiet

MAX_BYTES = 256 << 20
"""Memory that the process may use, for Apprise and for answers."""
_ANSWER_FIELDS = 8
# One attempt ends within the deadline of channels.py.
CONNECT_SECONDS, READ_SECONDS = 5.0, 8.0
_HTTP_CODE = re.compile(r"\berror=([1-5][0-9]{2})\b")
_SMTP_CODE = re.compile(r"\(([45][0-9]{2}), b['\"]|\b(?:code|error)[ =]([45][0-9]{2})\b")
# In the cards of these services, a single line break is shown as a space.
_TEAMS = ("workflow", "workflows", "msteams")
# Texts of Python, urllib3 and OpenSSL.
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


class _StatusHandler(logging.Handler):
    """Reports the HTTP status of each answer, which urllib3 logs before the body is read."""

    status = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Read a record of urllib3.connectionpool: scheme, host, port, method, path, version,
        status, length.
        """
        if isinstance(record.args, tuple) and len(record.args) == _ANSWER_FIELDS:
            self.status = int(str(record.args[6]))
            report(Progress(self.status))


def report(progress: Progress) -> None:
    """Write a line for the hub."""
    sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Send the message on the standard input."""
    process.die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=Message)
    if os.getppid() != message.hub:
        return  # the hub was killed while Apprise was imported, and sends the message again
    quiet()
    statuses = _StatusHandler()
    answers = logging.getLogger("urllib3.connectionpool")
    answers.propagate = False
    answers.setLevel(logging.DEBUG)
    answers.addHandler(statuses)
    try:
        error = _send(message)
    except DeliveryError as raised:
        error = str(raised)
    if statuses.status and not 200 <= statuses.status < 300:
        error = f"HTTP {statuses.status}"
    report(Progress(statuses.status, True, error))


def check() -> None:
    """Write why each URL of the list on the standard input cannot be used, or ''."""
    process.die_with_parent(signal.SIGKILL)
    quiet()
    errors = []
    for url in msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]):
        try:
            _service(url)
            errors.append("")
        except DeliveryError as raised:
            errors.append(str(raised))
    sys.stdout.buffer.write(msgspec.json.encode(errors))


def _send(message: Message) -> str:
    """Send the message. Returns why it was not delivered, or ''. Raises DeliveryError."""
    logged: list[str] = []
    service = _service(message.url)
    _adjust(service, message.context)
    sender = apprise.Apprise(asset=service.asset)
    sender.add(service)
    text = message.text
    try:
        result = sender.notify(
            body=text.replace("\n", "\n\n") if service.schema in _TEAMS else text,
            title=message.title,
            body_format=_format_of(service),
            notify_type=_type_of(message.context),
            log_callback=lambda entry, _: logged.append(entry.message),
            log_level=logging.DEBUG,
        )
    except Exception as error:  # noqa: BLE001 # any of its many classes may raise anything
        raise DeliveryError(f"Apprise failed: {type(error).__name__}") from None
    return "" if result else _reason(logged)


def _service(url: str) -> Any:
    """Apprise's object for a URL."""
    asset = apprise.AppriseAsset(
        app_id="nodevitals",
        app_desc="nodevitals",
        app_url="",
        # No pictures: the clients of readers would fetch them from elsewhere.
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
        raise DeliveryError("not a URL that Apprise understands")
    return service


def _adjust(service: Any, context: Context) -> None:
    """Set what the URL's parameters must not change, and what only some services support."""
    service.optional, service.retry = False, 0
    is_mail = service.schema in ("mailto", "mailtos")
    # The class for mail has only this timeout, for each answer; many servers greet late.
    service.socket_connect_timeout = READ_SECONDS if is_mail else CONNECT_SECONDS
    service.socket_read_timeout = READ_SECONDS
    # A message is one request; outbox.py limits the rate.
    service.request_rate_per_sec = 0
    if context.thread and is_mail:
        service.headers = {**service.headers, "References": f"<{context.thread}@nodevitals>"}
    if context.thread and service.schema == "pagerduty":
        service.dedup, service.action = context.thread, "map"


def _format_of(service: Any) -> apprise.NotifyFormat:
    """Text; markdown where a service has no other format, because Apprise would otherwise escape
    each dot of a link. The texts have no markup (plain_text.py).
    """
    formats = service.notify_format
    only = formats if isinstance(formats, apprise.NotifyFormat) else None
    return only if only is apprise.NotifyFormat.MARKDOWN else apprise.NotifyFormat.TEXT


def _type_of(context: Context) -> apprise.NotifyType:
    if context.resolved:
        return apprise.NotifyType.SUCCESS
    known = {"critical": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}
    return known.get(context.severity, apprise.NotifyType.INFO)


def _reason(logged: Sequence[str]) -> str:
    """Why a message was not delivered, from Apprise's log."""
    whole = "\n".join(logged)[-20_000:]
    if match := _HTTP_CODE.search(whole):
        return f"HTTP {match[1]}"
    if match := _SMTP_CODE.search(whole):
        return f"SMTP {match[1] or match[2]}"
    for phrase, reason in _PHRASES:
        if phrase in whole:
            return reason
    return "refused"


if __name__ == "__main__":
    check() if sys.argv[1:] == ["check"] else main()
