"""Sends messages to the robots of robots.py over HTTPS.

In: a robot, a title, a text. Out: nothing, or DeliveryError. A redirect is not followed.
"""

from __future__ import annotations

import ssl
import time

import httpx

from nodevitals_hub.notify.channels import robots
from nodevitals_hub.notify.channels.delivery import DeliveryError, quiet, retry_after
from nodevitals_hub.notify.channels.robots import Robot

SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 10


async def send(robot: Robot, title: str, text: str) -> None:
    """Send one message to a robot. Raises DeliveryError."""
    quiet()
    request = robots.request_of(robot, title, text, time.time())
    # A few compressed bytes may be gigabytes.
    headers = {"content-type": "application/json; charset=utf-8", "accept-encoding": "identity"}
    try:
        async with (
            # A site's way out may be a proxy, which the environment names.
            httpx.AsyncClient(
                verify=ssl.create_default_context(), follow_redirects=False, timeout=SECONDS
            ) as client,
            client.stream("POST", request.url, content=request.content, headers=headers) as answer,
        ):
            body = bytearray()
            async for data in answer.aiter_raw():
                body += data
                if len(body) > MAX_ANSWER_BYTES:
                    raise DeliveryError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            wait = retry_after(answer.headers.get("retry-after", ""), time.time())
            refused = robots.refusal_of(answer.status_code, bytes(body), wait)
    except httpx.TimeoutException:
        raise DeliveryError("no answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        # The kind of failure; its words may have the address.
        raise DeliveryError(f"not reached: {type(error).__name__}{_cause(error)}") from None
    if refused is not None:
        raise DeliveryError(refused.text, refused.retry_after)


def _cause(error: BaseException) -> str:
    """What OpenSSL or the kernel says beneath."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f" ({error.verify_message})"
    return f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
