"""The browser of the test bed: it fills a form as a person does, and shows Chinese."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from PIL import Image

from testbed.browser import Browser, BrowserError
from testbed.http_server import HttpServer, Request, Response
from testbed.node import free_port

FORM = """<!doctype html><meta charset=utf-8><body style="font: 80px sans-serif">
<form method=post><input name=node value=old><select name=kind><option>pair<option>matrix</select>
<input type=checkbox name=force><button>start</button></form><p>{text}</p>"""


def respond(request: Request) -> Response:
    """A form; what is sent with it is the next page."""
    text = FORM.format(text={"/zh": "慢", "/other": "快"}.get(request.path, ""))
    if request.method == "POST":
        sent = parse_qs(request.body.decode())
        fields = sorted(f"{name}={values[0]}" for name, values in sent.items())
        text = f"<body>got {' '.join(fields)} {request.headers['Accept-Language']}"
    return Response(200, text.encode(), {"Content-Type": "text/html; charset=utf-8"})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with HttpServer(respond) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(800, 400, language="zh-CN") as browser:
        yield browser


def test_form_is_filled_and_sent(browser: Browser, address: str) -> None:
    browser.open(f"{address}/")
    browser.fill("input[name=node]", "gpu-7")
    browser.choose("select", "matrix")
    browser.press("input[name=force]")
    browser.click("button")
    assert browser.wait_for("got").startswith("got force=on kind=matrix node=gpu-7 zh-CN")


def test_chinese_characters_are_drawn(browser: Browser, address: str, tmp_path: Path) -> None:
    """Without a font for them, each is the same box."""
    pictures = []
    for page in ("zh", "other"):
        browser.open(f"{address}/{page}")
        browser.picture(tmp_path / f"{page}.png")
        with Image.open(tmp_path / f"{page}.png") as image:
            assert image.width == 800
            pictures.append(image.convert("L").tobytes())
    assert pictures[0] != pictures[1]


def test_what_is_not_there_is_an_error(browser: Browser, address: str) -> None:
    browser.open(f"{address}/")
    with pytest.raises(BrowserError, match="no element #nothing"):
        browser.click("#nothing")
    with pytest.raises(BrowserError, match="has no option other"):
        browser.choose("select", "other")
    with pytest.raises(BrowserError, match="ERR_CONNECTION_REFUSED"):
        browser.open(f"http://127.0.0.1:{free_port()}/")
