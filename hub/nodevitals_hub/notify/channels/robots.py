"""The robots of DingTalk, Feishu or Lark, and WeCom: URLs, requests, answers. Pure.

In: the URL of a channel, a title and a text. Out: the request, and why it was refused. Apprise's
own classes take HTTP 200 as success, but these robots also refuse messages with it; the classes
encode DingTalk's signature twice, and have none for Feishu.

The formats are those of
https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages,
https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot and
https://developer.work.weixin.qq.com/document/path/91770.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import ssl
import time
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import httpx
import msgspec

from nodevitals_hub.notify.channels import robots
from nodevitals_hub.notify.channels.delivery import DeliveryError, quiet, retry_after
from nodevitals_hub.plain_text import cut_bytes, length

RobotKind = Literal["dingtalk", "feishu", "lark", "wecom"]
ADDRESSES: dict[RobotKind, str] = {
    "dingtalk": "https://oapi.dingtalk.com/robot/send",
    "feishu": "https://open.feishu.cn/open-apis/bot/v2/hook/",
    "lark": "https://open.larksuite.com/open-apis/bot/v2/hook/",
    "wecom": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send",
}
SCHEMES: dict[str, RobotKind] = {
    "dingtalk": "dingtalk",
    "feishu": "feishu",
    "lark": "lark",
    "wecombot": "wecom",
}
EXAMPLES: dict[RobotKind, str] = {
    "dingtalk": "dingtalk://SECRET@TOKEN/",
    "feishu": "feishu://SECRET@TOKEN/",
    "lark": "lark://SECRET@TOKEN/",
    "wecom": "wecombot://KEY/",
}
# "请求体大小不能超过 20 K" (Feishu); code 460101, "exceed 20000 bytes" (DingTalk).
MAX_REQUEST_BYTES = 20_000
WECOM_TEXT_BYTES, WECOM_MARKDOWN_BYTES = 2048, 4096
# Error codes with a cause that a person can remove; other codes are shown as a number.
_REASONS = {
    101002: "too long",
    460101: "too long",
    19036: "too long",
    300001: "token unknown",
    300005: "token unknown",
    310000: "keyword, signature or address not accepted",
    400102: "the robot is stopped",
    19001: "token unknown",
    19021: "signature not accepted: check the secret and this machine's clock",
    19022: "address not accepted",
    19024: "keyword missing",
    93000: "key unknown",
    40058: "text not accepted",
}
# DingTalk refuses all messages for ten minutes after more than 20 in a minute; the others have a
# limit per minute.
_TOO_MANY = {130101: 600.0, 130103: 600.0, 660026: 600.0, 90030: 600.0, 45009: 60.0, 11232: 60.0}
_ANY_TIME = 1e9
"""A time with as many digits as the time of any request."""
_WORD = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PHONE = re.compile(r"\+?[0-9-]{5,20}")
_MARKS = str.maketrans("[]*`#", "［］∗'＃")
_LINK = re.compile(r"(https?://[!-~]{1,1000})")


class Robot(NamedTuple):
    """One robot of a group."""

    kind: RobotKind
    token: str
    secret: str = ""
    phones: tuple[str, ...] = ()
    """Phone numbers of the people whom a message of DingTalk or WeCom mentions."""
    markdown: bool = False


class Request(NamedTuple):
    """A POST of JSON. The URL contains the secret."""

    url: str
    content: bytes


class Refusal(NamedTuple):
    """Why a robot refused a message."""

    text: str
    retry_after: float | None = None


def parse_robot(url: str) -> Robot | None:
    """The robot of a URL, in Apprise's form or in the robot's own; None for any other URL. Raises
    ValueError, whose text does not repeat the URL.
    """
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    kind = SCHEMES.get(parts.scheme.lower())
    if kind is not None:
        secret, _, token = parts.netloc.rpartition("@")
        rest = [word for word in parts.path.split("/") if word]
    else:
        kind, token = _native(url, query)
        if kind is None:
            return None
        secret, rest = query.get("secret", ""), []
    phones = [*rest, *(phone for phone in query.get("to", "").split(",") if phone)]
    fits = all(_WORD.fullmatch(word) for word in (token, secret or "-"))
    if not fits or not all(_PHONE.fullmatch(phone) for phone in phones):
        raise ValueError(f"not the URL of a robot of {kind}: write it like {EXAMPLES[kind]}")
    return Robot(kind, token, secret, tuple(phones), query.get("format") == "markdown")


def _native(url: str, query: dict[str, str]) -> tuple[RobotKind | None, str]:
    """The kind and the token of a URL in the form that the robot's page shows."""
    address = url.partition("?")[0]
    for kind, known in ADDRESSES.items():
        if known.endswith("/") and address.startswith(known):
            return kind, address[len(known) :].strip("/")
        if address == known:
            return kind, query.get("access_token") or query.get("key") or ""
    return None, ""


def room_of(robot: Robot) -> int:
    """The robot's limit in bytes: of the request for DingTalk, Feishu and Lark, of the field
    `content` for WeCom.
    """
    if robot.kind == "wecom":
        return WECOM_MARKDOWN_BYTES if robot.markdown else WECOM_TEXT_BYTES
    return MAX_REQUEST_BYTES


def excess(robot: Robot, title: str, text: str) -> int:
    """By how many bytes a message exceeds the robot's limit; 0 or less where it fits."""
    body = _body(robot, title, text, _ANY_TIME)
    if robot.kind == "wecom":
        return length(body[body["msgtype"]]["content"]) - room_of(robot)
    return len(msgspec.json.encode(body)) - room_of(robot)


def request_of(robot: Robot, title: str, text: str, now: float) -> Request:
    """The request for a message. Texts are already made to fit; one is cut here only if the channel
    had another robot when the text was made.
    """
    while text and (too_long := excess(robot, title, text)) > 0:
        text = cut_bytes(text, length(text) - too_long - 10)
    return Request(_url(robot, now), msgspec.json.encode(_body(robot, title, text, now)))


def refusal_of(status: int, body: bytes, retry_after: float | None) -> Refusal | None:
    """Why a message was refused; None where it was accepted. The answer's text is not repeated,
    because it may contain the token.
    """
    if status != 200:
        return Refusal(f"HTTP {status}", retry_after)
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Refusal("HTTP 200 with an answer that is not understood")
    # Feishu's first version calls it StatusCode.
    code = next(
        (answer[name] for name in ("errcode", "code", "StatusCode") if name in answer), None
    )
    if code == 0 and not isinstance(code, bool):
        return None
    if not isinstance(code, int):
        return Refusal("HTTP 200 with an answer that is not understood")
    if code in _TOO_MANY:
        return Refusal(f"code {code}: too many messages", _TOO_MANY[code])
    return Refusal(f"code {code}: {_REASONS[code]}" if code in _REASONS else f"code {code}")


def _url(robot: Robot, now: float) -> str:
    address = ADDRESSES[robot.kind]
    if robot.kind == "wecom":
        return f"{address}?{urlencode({'key': robot.token})}"
    if robot.kind != "dingtalk":
        return address + quote(robot.token, safe="")
    query = {"access_token": robot.token}
    if robot.secret:
        stamp = str(round(now * 1000))
        sign = _signature(robot.secret.encode(), f"{stamp}\n{robot.secret}".encode())
        query |= {"timestamp": stamp, "sign": sign}
    return f"{address}?{urlencode(query)}"


def _body(robot: Robot, title: str, text: str, now: float) -> dict[str, Any]:
    if robot.kind in ("feishu", "lark"):
        lines = [_feishu_line(line) for line in text.split("\n")]
        # A post shows its text literally; a message of type text may contain commands as <at …>.
        post = {"post": {"zh_cn": {"title": title, "content": lines}}}
        body: dict[str, Any] = {"msg_type": "post", "content": post}
        if robot.secret:
            stamp = str(int(now))
            sign = _signature(f"{stamp}\n{robot.secret}".encode(), b"")
            body |= {"timestamp": stamp, "sign": sign}
        return body
    kind = "markdown" if robot.markdown else "text"
    content = (
        f"#### {_unmarked(title)}\n{_unmarked(text)}" if robot.markdown else f"{title}\n{text}"
    )
    if robot.kind == "wecom":
        field: dict[str, Any] = {"content": content}
        if robot.phones and not robot.markdown:
            field["mentioned_mobile_list"] = robot.phones
        return {"msgtype": kind, kind: field}
    # DingTalk mentions a person only where the text contains the number.
    content += "".join(f"\n@{phone}" for phone in robot.phones)
    field = {"title": title, "text": content} if robot.markdown else {"content": content}
    at = {"atMobiles": robot.phones, "isAtAll": False}
    return {"msgtype": kind, kind: field, "at": at}


def _feishu_line(line: str) -> list[dict[str, str]]:
    """A line, with its links."""
    parts = [part for part in _LINK.split(line) if part]
    return [
        {"tag": "a", "text": part, "href": part}
        if _LINK.fullmatch(part)
        else {"tag": "text", "text": part}
        for part in parts or [" "]
    ]


def _unmarked(text: str) -> str:
    """A text that markdown shows unchanged: line ends are kept, marks are replaced."""
    return text.translate(_MARKS).replace("\n", "  \n")


def _signature(key: bytes, message: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 10


async def send(robot: Robot, title: str, text: str) -> None:
    """Send one message to a robot. Raises DeliveryError."""
    quiet()
    request = robots.request_of(robot, title, text, time.time())
    # No compression: a few compressed bytes may expand to gigabytes.
    headers = {"content-type": "application/json; charset=utf-8", "accept-encoding": "identity"}
    try:
        async with (
            # httpx uses the proxy of the environment, which some sites need.
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
        # Only the kind of failure; its text may contain the address.
        raise DeliveryError(f"not reached: {type(error).__name__}{_cause(error)}") from None
    if refused is not None:
        raise DeliveryError(refused.text, refused.retry_after)


def _cause(error: BaseException) -> str:
    """The message of OpenSSL or the kernel that caused the error."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f" ({error.verify_message})"
    return f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
