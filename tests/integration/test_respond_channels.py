"""Notifications reach robots, a pager, mail and a webhook, over real sockets."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals_hub.notify.channels import channels
from nodevitals_hub.notify.channels.channels import Channel, Context, DeliveryError
from nodevitals_hub.settings.response import ChannelSettings
from testbed.http_server import Response
from testbed.mailserver import MailServer
from testbed.robots import (
    ACCOUNT,
    API_KEY,
    AUTH_TOKEN,
    KEY,
    PHONES,
    ROUTING_KEY,
    SECRET,
    SECRETS,
    SLACK_PATH,
    TEAMS_HOST,
    TEAMS_PATH,
    TEAMS_SIGNATURE,
    TOKEN,
    Robots,
)

TITLE = "[告警 1] atlas gpu-1：GPU 2 掉卡"
TEXT = "【严重】gpu-1：GPU 2 掉卡\n  手册：https://example.org/rules/a_b.md\n\n以上 a*b* `c` #1"
URLS = {
    "dingtalk": f"dingtalk://{SECRET}@{TOKEN}/",
    "feishu": f"feishu://{SECRET}@{TOKEN}/",
    "lark": f"lark://{SECRET}@{TOKEN}/",
    "wecom": f"wecombot://{KEY}/",
    "slack": f"https://hooks.slack.com{SLACK_PATH}",
    "teams": f"https://{TEAMS_HOST}{TEAMS_PATH}?api-version=2016-06-01&sig={TEAMS_SIGNATURE}",
    "pagerduty": f"pagerduty://{ROUTING_KEY}@{API_KEY}/hub/node",
    "sms": f"twilio://{ACCOUNT}:{AUTH_TOKEN}@{PHONES[0]}/{PHONES[1]}",
}
ROBOTS = ("dingtalk", "feishu", "lark", "wecom")
CALL = f"{URLS['sms']}?method=call"
HOSTS = {
    "dingtalk": "oapi.dingtalk.com",
    "feishu": "open.feishu.cn",
    "lark": "open.larksuite.com",
    "wecom": "qyapi.weixin.qq.com",
    "slack": "hooks.slack.com",
    "teams": TEAMS_HOST,
    "pagerduty": "events.pagerduty.com",
    "sms": "api.twilio.com",
}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robots]:
    with Robots(tmp_path_factory.mktemp("robots")) as found:
        yield found


@pytest.fixture
def robots(stand_in: Robots, monkeypatch: pytest.MonkeyPatch) -> Robots:
    for name, value in stand_in.environment().items():
        monkeypatch.setenv(name, value)
    stand_in.sent, stand_in.answers = [], []
    return stand_in


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Robots that do not answer, of this test only: requests may arrive after it has given up."""
    with Robots(tmp_path) as found:
        for name, value in found.environment().items():
            monkeypatch.setenv(name, value)
        found.hold.clear()
        yield
        found.hold.set()
        for thread in threading.enumerate():
            if thread.name == "notify":
                thread.join()


def channel(folder: Path, url: str, **more: Any) -> Channel:
    """Return the channel of a URL."""
    file = folder / "url"
    file.write_text(f"# of operations\n{url}\n")
    file.chmod(0o600)
    return Channel("ops", ChannelSettings(url_file=str(file), **more))


def send(found: Channel, title: str = TITLE, text: str = TEXT, **more: Any) -> None:
    """Send one message."""
    asyncio.run(found.send(title, text, **more))


def refused(found: Channel, **more: Any) -> DeliveryError:
    """Return why a message is not delivered."""
    with pytest.raises(DeliveryError) as caught:
        send(found, **more)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert not chain.__cause__
        assert chain.__suppress_context__ or chain.__context__ is None
        chain = chain.__cause__
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", URLS)
def test_each_service_takes_the_request(robots: Robots, tmp_path: Path, kind: str) -> None:
    found = channel(tmp_path, URLS[kind])
    send(found)
    [sent] = robots.sent
    assert (sent.host, sent.problem) == (HOSTS[kind], "")
    assert found.kind == kind
    whole = str(sent.body)
    assert "gpu-1：GPU 2 掉卡" in whole
    assert "https://example.org/rules/a_b.md" in whole
    assert "apprise" not in whole.lower()


def test_a_phone_is_called_and_reads_the_title_first(robots: Robots, tmp_path: Path) -> None:
    """As text, in which no label is a command for the voice."""
    found = channel(tmp_path, CALL)
    send(found, text=f"{TEXT} </Say><Dial>+1900</Dial> a & b")
    [sent] = robots.sent
    assert (sent.problem, sent.path.rpartition("/")[2]) == ("", "Calls.json")
    said = sent.body["Twiml"]
    assert said.index("GPU 2 掉卡") < said.index("手册")
    assert "<Dial>" not in said
    send(found, text="长" * 400)
    assert robots.sent[-1].problem == ""


def test_dingtalk_text_has_the_title_first_and_mentions_phones(
    robots: Robots, tmp_path: Path
) -> None:
    send(channel(tmp_path, f"dingtalk://{SECRET}@{TOKEN}/13800000000/13900000000"))
    [sent] = robots.sent
    assert sent.body["text"]["content"] == f"{TITLE}\n{TEXT}\n@13800000000\n@13900000000"
    assert sent.body["at"] == {"atMobiles": ["13800000000", "13900000000"], "isAtAll": False}


@pytest.mark.parametrize("scheme", [f"dingtalk://{SECRET}@{TOKEN}/", f"wecombot://{KEY}/"])
def test_markdown_looks_like_the_text(robots: Robots, tmp_path: Path, scheme: str) -> None:
    send(channel(tmp_path, f"{scheme}?format=markdown"))
    [sent] = robots.sent
    assert sent.problem == ""
    assert sent.body["msgtype"] == "markdown"
    field = sent.body["markdown"]
    text = field.get("text") or field["content"]
    assert text.startswith("#### ［告警 1］ atlas gpu-1：GPU 2 掉卡\n【严重】gpu-1：GPU 2 掉卡  \n")
    assert text.endswith("以上 a∗b∗ 'c' ＃1")
    assert "https://example.org/rules/a_b.md  \n" in text


def test_feishu_post_has_lines_and_links(robots: Robots, tmp_path: Path) -> None:
    send(channel(tmp_path, URLS["feishu"]))
    post = robots.sent[0].body["content"]["post"]["zh_cn"]
    link = "https://example.org/rules/a_b.md"
    assert post["title"] == TITLE
    assert post["content"][1] == [
        {"tag": "text", "text": "  手册："},
        {"tag": "a", "text": link, "href": link},
    ]
    assert post["content"][2] == [{"tag": "text", "text": " "}]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (
            f"https://oapi.dingtalk.com/robot/send?access_token={TOKEN}&secret={SECRET}",
            "oapi.dingtalk.com",
        ),
        (f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}?secret={SECRET}", "open.feishu.cn"),
        (f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={KEY}", "qyapi.weixin.qq.com"),
    ],
)
def test_addresses_as_the_robots_pages_show_them(
    robots: Robots, tmp_path: Path, url: str, host: str
) -> None:
    send(channel(tmp_path, url))
    assert [(sent.host, sent.problem) for sent in robots.sent] == [(host, "")]


@pytest.mark.parametrize("kind", [*URLS, "markdown"])
def test_long_texts_are_cut_to_what_the_service_takes(
    robots: Robots, tmp_path: Path, kind: str
) -> None:
    url = URLS.get(kind, f"wecombot://{KEY}/?format=markdown")
    found = channel(tmp_path, url)
    text = '严"重\n' * 20_000
    room = found.room.max_bytes - len(TITLE.encode()) - 1
    send(found, text=text.encode()[:room].decode(errors="ignore"))
    if kind in ("dingtalk", "feishu", "lark", "wecom", "markdown"):
        send(found, text=text)
    assert [sent.problem for sent in robots.sent] == [""] * len(robots.sent)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"dingtalk://{SECRET}@wrong/", "code 300001: token unknown"),
        (f"dingtalk://SECother@{TOKEN}/", "code 310000: keyword, signature or address"),
        (f"dingtalk://{TOKEN}/", "code 310000"),
        (f"feishu://{SECRET}@wrong/", "code 19001: token unknown"),
        (f"feishu://{TOKEN}/", "code 19021: signature not accepted"),
        ("wecombot://wrong/", "code 93000: key unknown"),
        (
            "https://hooks.slack.com/services/T0EXAMPLE/B0EXAMPLE/0123456789abcdefABCDXXXX",
            "HTTP 403",
        ),
        (f"https://{TEAMS_HOST}{TEAMS_PATH}?sig=wrong", "HTTP 401"),
        (f"pagerduty://wrong@{API_KEY}/hub/node", "HTTP 400"),
    ],
)
def test_a_wrong_secret_is_a_refusal_with_its_code(
    robots: Robots, tmp_path: Path, url: str, expected: str
) -> None:
    """DingTalk, Feishu and WeCom say so with HTTP 200."""
    assert str(refused(channel(tmp_path, url))).startswith(expected)
    assert len(robots.sent) == 1


@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("status", [429, 500, 503, 302])
def test_refusals_of_http(robots: Robots, tmp_path: Path, kind: str, status: int) -> None:
    elsewhere = {"Retry-After": "17", "Location": f"http://127.0.0.1:{robots.port}/stolen"}
    robots.answers = [Response(status, b"", elsewhere)]
    error = refused(channel(tmp_path, URLS[kind]))
    assert str(error) == f"HTTP {status}"
    # Apprise does not pass it on.
    assert error.retry_after == (17.0 if kind in ROBOTS else None)
    assert len(robots.sent) == 1, "neither tried again nor redirected"


@pytest.mark.parametrize(
    ("kind", "body", "seconds"),
    [
        ("dingtalk", b'{"errcode": 130101, "errmsg": "send too fast"}', 600.0),
        ("feishu", b'{"code": 11232, "msg": "frequency limited"}', 60.0),
        ("wecom", b'{"errcode": 45009, "errmsg": "api freq out of limit"}', 60.0),
    ],
)
def test_too_many_messages_say_how_long_to_wait(
    robots: Robots, tmp_path: Path, kind: str, body: bytes, seconds: float
) -> None:
    robots.answers = [Response(200, body)]
    error = refused(channel(tmp_path, URLS[kind]))
    assert "too many messages" in str(error)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"ok", b"{}", b'{"errcode": "0"}', b'{"errcode": null}', b"[" * 9999]
)
def test_an_answer_that_is_not_understood_is_no_success(
    robots: Robots, tmp_path: Path, body: bytes
) -> None:
    robots.answers = [Response(200, body)]
    assert "not understood" in str(refused(channel(tmp_path, URLS["dingtalk"])))


def test_an_endless_answer_is_given_up(robots: Robots, tmp_path: Path) -> None:
    robots.answers = [Response(200, b"x" * 1_000_000)]
    assert "more than 65536 bytes" in str(refused(channel(tmp_path, URLS["dingtalk"])))


@pytest.mark.parametrize("kind", ["dingtalk", "slack"])
def test_a_service_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with socket.socket() as taken:  # bound, and nothing listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{taken.getsockname()[1]}")
        error = refused(channel(tmp_path, URLS[kind]))
    assert "onnect" in str(error)


@pytest.mark.parametrize("kind", ["dingtalk", "slack"])
def test_a_certificate_of_another_authority_is_refused(
    robots: Robots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    assert "ertificate" in str(refused(channel(tmp_path, URLS[kind])))
    assert robots.sent == []


@pytest.mark.parametrize("kind", ["dingtalk", "slack"])
def test_a_service_that_does_not_answer_costs_the_deadline_only(
    held: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(channels, "DEADLINE_SECONDS", 0.3)
    found = channel(tmp_path, URLS[kind])
    assert str(refused(found)) == "no answer within 0.3 s"


def test_attempts_that_hang_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that does not answer holds a robot's thread beyond the deadline."""
    answered = threading.Event()

    def no_answer(*_: Any, **__: Any) -> list[Any]:
        answered.wait()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", no_answer)
    monkeypatch.setattr(channels, "DEADLINE_SECONDS", 0.1)
    found = channel(tmp_path, URLS["dingtalk"])

    async def several() -> list[str]:
        reasons = []
        for _ in range(channels.MAX_HANGING + 1):
            try:
                await found.send(TITLE, TEXT)
            except DeliveryError as error:
                reasons.append(str(error))
        return reasons

    *waited, last = asyncio.run(several())
    answered.set()
    for thread in threading.enumerate():
        if thread.name == "notify":
            thread.join()
    assert waited == ["no answer within 0.1 s"] * channels.MAX_HANGING
    assert last == f"{channels.MAX_HANGING} earlier attempts have not ended yet"


def test_a_webhook_of_a_site_gets_json(robots: Robots, tmp_path: Path) -> None:
    found = channel(tmp_path, f"json://127.0.0.1:{robots.port}/tickets/new")
    send(found, context=Context(severity="critical"))
    send(found, context=Context(severity="critical", resolved=True))
    first, second = robots.sent
    assert (first.path, first.problem, found.kind) == ("/tickets/new", "", "webhook")
    assert (first.body["title"], first.body["message"]) == (TITLE, TEXT)
    assert (first.body["type"], second.body["type"]) == ("failure", "success")


def test_channels_that_send_at_the_same_time_have_their_own_results(
    robots: Robots, tmp_path: Path
) -> None:
    found = []
    for number in range(8):
        (tmp_path / str(number)).mkdir()
        token = TOKEN if number % 2 else "wrong"
        urls = (URLS["slack"], f"dingtalk://{SECRET}@{token}/", f"https://{TEAMS_HOST}/workflows/x")
        found.append(channel(tmp_path / str(number), urls[number % 3]))

    async def outcome(one: Channel) -> str:
        try:
            await one.send(TITLE, TEXT)
        except DeliveryError as error:
            return str(error)
        return "sent"

    async def together() -> list[str]:
        return await asyncio.gather(*(outcome(one) for one in found))

    unknown, odd = "code 300001: token unknown", "not a URL that Apprise understands"
    assert asyncio.run(together()) == ["sent", "sent", odd, "sent", unknown, odd, "sent", "sent"]


def test_pager_opens_and_resolves_one_incident(robots: Robots, tmp_path: Path) -> None:
    found = channel(tmp_path, URLS["pagerduty"])
    send(found, context=Context("critical", False, "20261102-120000-abcdef"))
    send(found, "other", "other", context=Context("critical", True, "20261102-120000-abcdef"))
    first, second = (sent.body for sent in robots.sent)
    assert first["payload"]["severity"] == "critical"
    assert first["payload"]["summary"].startswith(TITLE)
    assert [body["event_action"] for body in (first, second)] == ["trigger", "resolve"]
    assert first["dedup_key"] == second["dedup_key"] == "20261102-120000-abcdef"


def test_mail_has_chinese_subject_text_and_thread(tmp_path: Path) -> None:
    with MailServer() as server:
        url = f"mailto://{server.address}?from=hub@example.org&to=ops@example.org&mode=insecure"
        found = channel(tmp_path, url)
        send(found, context=Context(thread="20261102-120000-abcdef"))
        assert found.kind == "email"
    [mail] = server.mails
    assert mail["Subject"] == TITLE
    assert mail["References"] == "<20261102-120000-abcdef@nodevitals>"
    assert mail["To"] == "ops@example.org"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().strip().replace("\r\n", "\n") == TEXT


@pytest.mark.parametrize(
    ("command", "answer", "expected"),
    [
        (b"AUTH", b"535 5.7.8 pa55w0rd of hub is wrong", "SMTP 535"),
        (b"MAIL", b"421 4.3.2 busy", "SMTP 421"),
        (b"RCPT", b"550 5.1.1 no such user", "SMTP 550"),
        (b"DATA", b"451 4.7.1 try later", "SMTP 451"),
    ],
)
def test_a_mail_server_that_refuses(
    tmp_path: Path, command: bytes, answer: bytes, expected: str
) -> None:
    with MailServer({command: answer}) as server:
        login = "hub:pa55w0rd@" if command == b"AUTH" else ""
        url = f"mailto://{login}{server.address}?from=hub@example.org&to=ops@example.org"
        assert str(refused(channel(tmp_path, f"{url}&mode=insecure"))) == expected
    assert server.mails == []


def test_mail_of_an_owner_goes_to_the_owner_only(tmp_path: Path) -> None:
    with MailServer() as server:
        url = f"mailto://{server.address}?from=hub@example.org&to={{owner}}@example.org"
        found = channel(tmp_path, url + "&mode=insecure")
        send(found, owner="team-vision")
        for owner in ("", "a@evil.example,b", "a&to=x", "a/b", "..", "a?b", "x" * 99, "é", "a\n"):
            assert "owner" in str(refused(found, owner=owner))
    assert [mail["To"] for mail in server.mails] == ["team-vision@example.org"]


@pytest.mark.parametrize(
    "url",
    [
        "json://{owner}/x",
        "json://{owner}@host/x",
        "{owner}://host/x",
        "json://host.{owner}:80/",
        "json://host:{owner}/",
    ],
)
def test_an_owner_never_chooses_the_host(robots: Robots, tmp_path: Path, url: str) -> None:
    assert "change the URL" in str(refused(channel(tmp_path, url), owner="evil.example"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "has 0 lines"),
        ("json://a/\njson://b/\n", "has 2 lines"),
        ("nothing", "not a URL that Apprise understands"),
        ("unknown://s3cret@host/", "not a URL that Apprise understands"),
        ("dingtalk://s3cret/../x/", "not the URL of a robot of dingtalk: write it like"),
        ("dingtalk://", "not the URL of a robot"),
        ("feishu://a%2fs3cret/", "not the URL of a robot"),
        ("https://[s3cret/", "not a URL"),
        ("https://[s3cret]/", "not a URL"),
        ("json://hub:s3cret@ho\u2100st/", "not a URL"),
    ],
)
def test_files_that_have_no_good_url(tmp_path: Path, content: str, expected: str) -> None:
    found = channel(tmp_path, "json://127.0.0.1/")
    (tmp_path / "url").write_text(content)
    error = str(refused(found))
    assert expected in error
    assert "s3cret" not in error


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    found = Channel("ops", ChannelSettings(url_file=str(tmp_path / "none")))
    assert str(refused(found)) == f"{tmp_path}/none: No such file or directory"
    assert (found.kind, found.room.max_bytes) == ("other", 20_000)
    os.mkfifo(tmp_path / "none")
    assert "not a regular file" in str(refused(found))


def test_a_file_that_was_replaced_is_read_again(robots: Robots, tmp_path: Path) -> None:
    found = channel(tmp_path, f"json://127.0.0.1:{robots.port}/old")
    send(found)
    (tmp_path / "new").write_text(f"json://127.0.0.1:{robots.port}/other\n")
    (tmp_path / "new").replace(tmp_path / "url")
    send(found)
    assert [sent.path for sent in robots.sent] == ["/old", "/other"]


def test_a_file_that_all_may_read_is_reported_once(
    robots: Robots, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = channel(tmp_path, URLS["wecom"])
    send(found)
    assert caplog.text == ""
    (tmp_path / "url").chmod(0o644)
    send(found)
    send(found)
    [record] = caplog.records
    assert f"every user can read {tmp_path}/url" in record.getMessage()


def test_no_secret_is_logged(
    robots: Robots, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pytest's own handler nothing is hidden: it is at the loggers of libraries as well."""
    stream, errors = io.StringIO(), []
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    # A hub that another test ran in this process has raised it.
    monkeypatch.setattr(logging.getLogger("asyncio"), "isEnabledFor", lambda _: True)
    try:
        for url in (*URLS.values(), "json://user:pa55w0rd@127.0.0.1:1/t0ken"):
            found = channel(tmp_path, url)
            answers = [Response(429, b""), Response(200, b"{broken"), Response(302, b"")]
            for answer in answers:
                robots.answers = [answer]
                try:
                    send(found)
                except DeliveryError as error:
                    errors.append(str(error))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    said = [stream.getvalue(), *errors, *capfd.readouterr()]
    assert len(errors) > 2 * len(URLS)
    assert "asyncio" in said[0] or "selector" in said[0], "messages of level debug"
    for secret in (*SECRETS, "pa55w0rd", "t0ken"):
        assert not [text for text in said if secret in text]
