"""Far sides of channels that answer for ever, too much, with lies, or not at all."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import requests

from nodevitals_hub.notify.channels import channels
from nodevitals_hub.notify.channels.channels import Channel, DeliveryError
from nodevitals_hub.notify.channels.delivery import retry_after
from nodevitals_hub.settings.response import ChannelSettings
from testbed.badserver import BYTES_AT_ONCE, BadServer
from testbed.http_server import Response
from testbed.hub import HubProcess
from testbed.node import PATIENCE_SECONDS, wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send
from testbed.robots import SECRET, TOKEN, Robots

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
Send = Callable[[bytes], None]


def channel(folder: Path, url: str) -> Channel:
    (folder / "url").write_text(f"{url}\n")
    (folder / "url").chmod(0o600)
    return Channel("ops", ChannelSettings(url_file=str(folder / "url")))


def outcome(found: Channel) -> str:
    """Why a message is not delivered; '' where it is."""
    try:
        asyncio.run(found.send("title", "text"))
    except DeliveryError as error:
        return str(error)
    return ""


def assert_no_process_is_left() -> None:
    assert psutil.Process().children() == []


def test_a_body_without_an_end_is_bounded(tmp_path: Path) -> None:
    """The process that reads it ends at its limit of memory, and the hub's does not grow."""

    def answer(send: Send) -> None:
        send(OK + b"\r\n")
        for _ in range(2**30 // BYTES_AT_ONCE):
            send(b"x" * BYTES_AT_ONCE)

    before = psutil.Process().memory_info().rss
    with BadServer(answer) as server:
        assert outcome(channel(tmp_path, f"json://127.0.0.1:{server.port}/x"))
        assert server.sent < 2**30
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    assert_no_process_is_left()


def test_a_body_that_comes_byte_by_byte_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status has come: the message was taken."""
    monkeypatch.setattr(channels, "DEADLINE_SECONDS", 10.0)

    def answer(send: Send) -> None:
        send(OK + b"\r\n")
        server.trickle(send)

    with BadServer(answer) as server:
        assert outcome(channel(tmp_path, f"json://127.0.0.1:{server.port}/x")) == ""
        assert_no_process_is_left()


@pytest.mark.parametrize("scheme", ["json", "mailto"])
def test_an_answer_that_comes_byte_by_byte_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(channels, "DEADLINE_SECONDS", 5.0)
    server = BadServer(lambda send: server.trickle(send), greets=scheme == "mailto")
    with server:
        url = f"{scheme}://127.0.0.1:{server.port}/?from=a@example.org&to=b@example.org"
        found = channel(tmp_path, url + "&mode=insecure" * (scheme == "mailto"))
        assert outcome(found) == "no answer within 5 s"
        assert_no_process_is_left()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_robot_that_answers_too_much_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    body = gzip.compress(bytes(50 << 20)) if compressed else bytes(1 << 20)
    with Robots(tmp_path) as robots:
        for name, value in robots.environment().items():
            monkeypatch.setenv(name, value)
        headers = {"Content-Encoding": "gzip"} if compressed else {}
        robots.answers = [Response(200, body, headers)]
        found = channel(tmp_path, f"dingtalk://{SECRET}@{TOKEN}/")
        assert outcome(found) in (
            "an answer of more than 65536 bytes",
            "HTTP 200 with an answer that is not understood",
        )


@pytest.mark.parametrize("status", [301, 307, 308])
@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://127.0.0.1:1/", "//example.org/"])
def test_no_redirect_is_followed(tmp_path: Path, status: int, target: str) -> None:
    answer = f"HTTP/1.1 {status} X\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    with BadServer(lambda send: send(answer)) as server:
        found = channel(tmp_path, f"json://127.0.0.1:{server.port}/x")
        assert outcome(found) == f"HTTP {status}"
        assert len(server.heads) == 1


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 2", b"HTTP/1.1 99999 X\r\n\r\n", b"\0" * 99])
def test_what_ends_within_its_head_is_a_failure(tmp_path: Path, part: bytes) -> None:
    with BadServer(lambda send: send(part)) as server:
        assert outcome(channel(tmp_path, f"json://127.0.0.1:{server.port}/x"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("17", 17.0),
        ("0", 0.0),
        ("999999999", 3600.0),
        ("9" * 5000, 3600.0),
        ("-1", None),
        ("1.5", None),
        ("tomorrow", None),
        ("", None),
        ("\u0661\u0667", None),
        ("Mon, 23 Nov 2026 07:00:17 GMT", 17.0),
        ("Mon, 23 Nov 2026 06:00:00 GMT", 0.0),
        ("Mon, 23 Nov 9999 06:00:00 GMT", 3600.0),
        ("Mon, 99 Nov 2026 06:00:00 GMT", None),
        ("Mon, 23 Nov 99999999999 06:00:00 GMT", None),
    ],
)
def test_a_wait_that_a_far_side_asks_for_is_bounded(text: str, seconds: float | None) -> None:
    assert retry_after(text, 1795417200.0) == seconds


# Shorter than the 150 s in which the resolver of a deaf hub gives up.
NOT_HELD_UP_SECONDS = 60.0


class DeafHub(HubProcess):
    """A hub whose name server does not answer."""

    def argv(self) -> list[str]:
        """With a file of its own in the place of the resolver's."""
        place = self.folder / "resolv.conf"
        place.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        command = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", command, str(place), *super().argv()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file")
def test_a_name_server_that_does_not_answer_holds_up_robots_only(tmp_path: Path) -> None:
    """More robots than the process has threads for such calls."""
    names = ["first", *(f"robot{number}" for number in range(40))]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf, FarSide() as far:
        try:
            deaf.bind(("127.0.0.1", 53))
        except OSError:
            pytest.skip("this machine has a name server")
        hub = hub_with_channels(tmp_path, far, names)
        hub.__class__ = DeafHub
        for name in names[1:]:
            (tmp_path / f"{name}-url").write_text(f"dingtalk://{SECRET}@{TOKEN}/")
        with hub:
            assert send(hub, message(1), NOT_HELD_UP_SECONDS).ok
            url = f"http://127.0.0.1:{hub.port}/api/v1/deliveries"

            def failed() -> bool:
                found = requests.get(url, timeout=NOT_HELD_UP_SECONDS).json()["waiting"]
                return sum(bool(one.get("error")) for one in found) >= len(names) - 1

            wait_until(failed, 60, "the deadline of all robots")
            assert send(hub, message(2), NOT_HELD_UP_SECONDS).ok
            wait_until(lambda: far.numbers("first") == {1: 1, 2: 1}, 20, "the good channel")


def test_one_bad_channel_delays_no_other_and_no_secret_is_shown(tmp_path: Path) -> None:
    """Of all that a hub shows, while some of its channels never answer."""
    silent = BadServer(lambda _: silent.wait())
    trickling = BadServer(lambda send: trickling.trickle(send))
    refusing = BadServer(lambda send: send(b"HTTP/1.1 429 s3cretReason\r\nRetry-After: -1\r\n\r\n"))
    with FarSide() as far, silent, trickling, refusing:
        names = ("first", "silent", "trickling", "refusing", "odd", "mail")
        hub = hub_with_channels(tmp_path, far, names)
        for name, server in (("silent", silent), ("trickling", trickling), ("refusing", refusing)):
            url = f"json://user:s3cretWord@127.0.0.1:{server.port}/s3cretPath?+X-Token=s3cretHead"
            (tmp_path / f"{name}-url").write_text(url)
        login = f"hub:s3cretWord@127.0.0.1:{refusing.port}"
        (tmp_path / "mail-url").write_text(f"mailto://{login}?from=a@example.org&to=b@example.org")
        with hub:
            # At its start, the hub refuses it.
            (tmp_path / "odd-url").write_text("jsons://hub:s3cretWord@[s3cretHost]/s3cretPath")
            assert send(hub, message(1)).ok
            wait_until(lambda: silent.heads and trickling.heads and refusing.heads, 30, "attempts")
            for number in range(2, 6):
                assert send(hub, message(number)).ok
                wait_until(lambda: far.numbers("first")[number] == 1, 20, "the good channel")  # noqa: B023
            url = f"http://127.0.0.1:{hub.port}"
            pages = ("/api/v1/deliveries", "/notifications", "/metrics", "/notifications?lang=zh")

            def errors() -> set[str]:
                answer = requests.get(f"{url}/api/v1/deliveries", timeout=PATIENCE_SECONDS)
                return {one["channel"] for one in answer.json()["waiting"] if one.get("error")}

            wait_until(lambda: errors() == set(names) - {"first"}, 60, "an error of each")
            answers = [requests.get(url + page, timeout=PATIENCE_SECONDS) for page in pages]
            shown = "".join(one.text for one in answers)
            shown += hub.log.read_text()
            data = b"".join(one.read_bytes() for one in hub.state.glob("respond.db*"))
            for secret in ("s3cretWord", "s3cretPath", "s3cretHead", "s3cretHost", "s3cretReason"):
                assert secret not in shown
                assert secret.encode() not in data
            assert "Traceback" not in shown
