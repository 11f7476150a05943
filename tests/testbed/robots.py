"""Chat robots, a pager and a webhook behind one proxy, which check what they are sent.

An HTTPS client reaches them through `HTTPS_PROXY`: the stand-in accepts CONNECT for any of their
names, and has a certificate for each of its own authority. It checks the formats that the services
publish, independently of our code, and answers as they do: several refuse a message with HTTP 200.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlsplit
from xml.etree import ElementTree

import trustme

from testbed.http_server import HttpServer, KeptConnection, Request, Response

TOKEN, SECRET, KEY = "tok3nT0ken0123456789abcdef", "SECabcdef0123456789", "0a0b0c0d-1e1f-2a2b-3c3d"
SLACK_PATH = "/services/T0EXAMPLE/B0EXAMPLE/0123456789abcdefABCDEFGH"
TEAMS_HOST = "prod-01.westeurope.logic.azure.com"
TEAMS_PATH = "/workflows/0a1b2c3d4e5f/triggers/manual/paths/invoke"
TEAMS_SIGNATURE = "s1gnatureOfTheFlow"
ROUTING_KEY, API_KEY = "r0utingKeyOfTheService1234567890", "ap1KeyOfTheUser123"
ACCOUNT, AUTH_TOKEN = "AC0123456789abcdef0123456789abcdef", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
SECRETS = (
    *(TOKEN, SECRET, KEY, "0123456789abcdefABCDEFGH", TEAMS_SIGNATURE, ROUTING_KEY, API_KEY),
    AUTH_TOKEN,
)
PHONES = ("+14155550100", "+14155550111")
"""Of the account, and of a person."""
HOUR_SECONDS = 3600.0


class Sent(NamedTuple):
    """A request that arrived."""

    host: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    problem: str
    """Why the service refuses it; '' where it does not."""


Check = Callable[[Sent, int], str]


def _signed(key: str, message: str) -> str:
    digest = hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def dingtalk(sent: Sent, size: int) -> str:
    """As https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages."""
    assert sent.path == "/robot/send"
    if sent.query.get("access_token") != TOKEN:
        return "300001"
    stamp = sent.query.get("timestamp", "")
    fresh = stamp.isdigit() and abs(int(stamp) / 1000 - time.time()) < HOUR_SECONDS
    if not fresh or sent.query.get("sign") != _signed(SECRET, f"{stamp}\n{SECRET}"):
        return "310000"
    body, kind = sent.body, sent.body["msgtype"]
    fields = {"text": {"content"}, "markdown": {"title", "text"}}[kind]
    assert set(body) <= {"msgtype", kind, "at"}
    assert set(body[kind]) == fields
    assert all(isinstance(text, str) and text for text in body[kind].values())
    assert isinstance(body["at"]["isAtAll"], bool)
    assert all(isinstance(phone, str) for phone in body["at"]["atMobiles"])
    return "" if size <= 20_000 else "460101"


def feishu(sent: Sent, size: int) -> str:
    """As https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot."""
    if sent.path != f"/open-apis/bot/v2/hook/{TOKEN}":
        return "19001"
    stamp = sent.body.get("timestamp", "")
    assert isinstance(stamp, str)
    fresh = stamp.isdigit() and abs(int(stamp) - time.time()) < HOUR_SECONDS
    if not fresh or sent.body.get("sign") != _signed(f"{stamp}\n{SECRET}", ""):
        return "19021"
    assert sent.body["msg_type"] == "post"
    [(language, post)] = sent.body["content"]["post"].items()
    assert language == "zh_cn"
    assert set(post) == {"title", "content"}
    for line in post["content"]:
        assert line, "an empty line is refused"
        for part in line:
            wanted = {"text": {"tag", "text"}, "a": {"tag", "text", "href"}}[part["tag"]]
            assert set(part) == wanted
            assert part["text"]
    return "" if size <= 20_000 else "9499"


def wecom(sent: Sent, size: int) -> str:
    """As https://developer.work.weixin.qq.com/document/path/91770."""
    assert sent.path == "/cgi-bin/webhook/send"
    if sent.query != {"key": KEY}:
        return "93000"
    kind = sent.body["msgtype"]
    longest = {"text": 2048, "markdown": 4096}[kind]
    assert set(sent.body) == {"msgtype", kind}
    assert set(sent.body[kind]) <= {"content", "mentioned_mobile_list"}
    return "" if len(sent.body[kind]["content"].encode()) <= longest else "40058"


def slack(sent: Sent, size: int) -> str:
    """As https://api.slack.com/messaging/webhooks."""
    if sent.path != SLACK_PATH:
        return "invalid_token"
    texts = [sent.body, *sent.body.get("attachments", ())]
    longest = max((len(one["text"]) for one in texts if "text" in one), default=0)
    return "" if 0 < longest <= 40_000 else "no_text"


def teams(sent: Sent, size: int) -> str:
    """As a flow of Power Automate, "When a Teams webhook request is received"."""
    if sent.path != TEAMS_PATH or sent.query.get("sig") != TEAMS_SIGNATURE:
        return "DirectApiAuthorizationRequired"
    assert sent.query["api-version"]
    assert sent.body["type"] == "message"
    for attachment in sent.body["attachments"]:
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert attachment["content"]["type"] == "AdaptiveCard"
        assert all(block["type"] == "TextBlock" for block in attachment["content"]["body"])
    return "" if size <= 28_000 else "too large"


def pagerduty(sent: Sent, size: int) -> str:
    """As https://developer.pagerduty.com/docs/send-alert-event."""
    assert sent.path == "/v2/enqueue"
    if sent.body["routing_key"] != ROUTING_KEY:
        return "invalid routing key"
    action = sent.body["event_action"]
    assert action in ("trigger", "acknowledge", "resolve")
    if action != "trigger":
        return "" if sent.body.get("dedup_key") else "no dedup_key"
    payload = sent.body["payload"]
    assert payload["severity"] in ("critical", "error", "warning", "info")
    assert payload["source"]
    return "" if 0 < len(payload["summary"]) <= 1024 else "summary"


def twilio(sent: Sent, size: int) -> str:
    """As https://www.twilio.com/docs/messaging/api/message-resource and
    https://www.twilio.com/docs/voice/api/call-resource.
    """
    what = sent.path.removeprefix(f"/2010-04-01/Accounts/{ACCOUNT}/")
    assert (sent.body["From"], sent.body["To"]) == PHONES
    if what == "Messages.json":
        return "" if 0 < len(sent.body["Body"]) <= 1600 else "21617"
    assert what == "Calls.json"
    answer = ElementTree.fromstring(sent.body["Twiml"])
    assert answer.tag == "Response"
    assert all(one.tag == "Say" and one.text for one in answer)
    return "" if len(sent.body["Twiml"]) <= 4000 else "21218"


def webhook(sent: Sent, size: int) -> str:
    """A site's own system."""
    return "" if {"title", "message"} <= set(sent.body) else "fields"


SERVICES: dict[str, tuple[Check, Callable[[str], Response]]] = {}


def _json(http: int, fields: dict[str, Any]) -> Response:
    return Response(http, json.dumps(fields).encode(), {"Content-Type": "application/json"})


def _dingtalk_answer(problem: str) -> Response:
    # The words of a refusal may repeat the token.
    text = f"token {TOKEN} is not exist" if problem else "ok"
    return _json(200, {"errcode": int(problem or 0), "errmsg": text})


def _feishu_answer(problem: str) -> Response:
    return _json(200, {"code": int(problem or 0), "msg": "success", "data": {}})


def _slack_answer(problem: str) -> Response:
    return Response(403, problem.encode()) if problem else Response(200, b"ok")


for _host, _check, _answer in (
    ("oapi.dingtalk.com", dingtalk, _dingtalk_answer),
    ("open.feishu.cn", feishu, _feishu_answer),
    ("open.larksuite.com", feishu, _feishu_answer),
    ("qyapi.weixin.qq.com", wecom, _dingtalk_answer),
    ("hooks.slack.com", slack, _slack_answer),
    (TEAMS_HOST, teams, lambda problem: Response(401 if problem else 202, problem.encode())),
    (
        "events.pagerduty.com",
        pagerduty,
        lambda problem: _json(400 if problem else 202, {"status": problem or "success"}),
    ),
    (
        "api.twilio.com",
        twilio,
        lambda problem: _json(400 if problem else 201, {"code": int(problem or 0)}),
    ),
):
    SERVICES[_host] = _check, _answer


class _Tunnel(KeptConnection):
    """A connection of a proxy: after CONNECT, TLS with the certificate of that name."""

    server: Robots

    def do_CONNECT(self) -> None:  # noqa: N802
        """Begin TLS, unless the name is of no service or the client accepts no certificate."""
        tls = self.server.tls.get(self.path.rpartition(":")[0])
        self.send_response(200)
        self.end_headers()
        self.close_connection = tls is None
        if tls is not None:
            self.connection = tls.wrap_socket(self.connection, server_side=True)
            self.rfile.close()
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)

    def finish(self) -> None:
        """Close also the socket of TLS."""
        with suppress(OSError):  # the client has gone
            super().finish()
        self.connection.close()


class Robots(HttpServer):
    """The stand-in; it runs inside the with block."""

    def __init__(self, folder: Path) -> None:
        super().__init__(self._respond, connection=_Tunnel)
        authority = trustme.CA()
        self.ca_file = str(folder / "robots-ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.tls: dict[str, ssl.SSLContext] = {}
        for host in SERVICES:
            self.tls[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(host).configure_cert(self.tls[host])
        self.sent: list[Sent] = []
        """All requests, in the order of their arrival."""
        self.answers: list[Response] = []
        """The responses to the next ones, whatever they are."""
        self.hold = threading.Event()
        """Cleared, no request has a response."""
        self.hold.set()

    def __exit__(self, *exception: object) -> None:
        self.hold.set()
        super().__exit__(*exception)

    def _respond(self, request: Request) -> Response:
        response = self._receive(request)
        self.hold.wait()
        return response

    def environment(self) -> dict[str, str]:
        """The variables with which a process reaches the stand-in."""
        files = {"REQUESTS_CA_BUNDLE": self.ca_file, "SSL_CERT_FILE": self.ca_file}
        return {"HTTPS_PROXY": self.url, "NO_PROXY": "127.0.0.1", **files}

    def _receive(self, request: Request) -> Response:
        """Check and record one request."""
        host, body = request.headers["Host"], request.body
        kind = request.headers.get_content_type()
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        check, answered = SERVICES.get(
            host, (webhook, lambda problem: Response(400 if problem else 200, problem.encode()))
        )
        is_form = host == "api.twilio.com"
        fields = dict(parse_qsl(body.decode())) if is_form else json.loads(body)
        sent = Sent(host, parts.path, query, fields, "")
        try:
            assert kind == f"application/{'x-www-form-urlencoded' if is_form else 'json'}"
            problem = check(sent, len(body))
        except (AssertionError, KeyError, ValueError, TypeError) as error:
            self.sent.append(sent._replace(problem=f"format: {error!r}"))
            return Response(400, b"format")
        self.sent.append(sent._replace(problem=problem))
        return self.answers.pop(0) if self.answers else answered(problem)
