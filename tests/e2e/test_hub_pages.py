"""Every page of the hub in a browser: nothing beyond its edge, every text readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.browser import Browser
from testbed.hubgallery import TOKEN, gallery

LEGIBILITY = Path(__file__).parents[1] / "testbed/legibility.js"
PHONE = (390, 844)
REFUSED = "kind=matrix&nodes=gpu-1+gpu-99&port=0&sizes=7x&share=200&rounds=x&limit=soon&where=pool"
FORMS = (f"/checks/new?{REFUSED}", "/checks/new?kind=matrix&device=mlx5_0&nodes=gpu-1+gpu-2")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    with gallery(tmp_path_factory.mktemp("gallery")) as found:
        yield found


def problems(browser: Browser, page: str) -> list[str]:
    """What cannot be read on the page that is open."""
    found: list[str] = browser.evaluate(LEGIBILITY.read_text())
    return [f"{page}: {one}" for one in found]


@pytest.mark.parametrize(
    ("scheme", "language"), [("dark", "en"), ("light", "zh")], ids=["dark", "light"]
)
def test_every_page_is_legible_on_a_phone(
    hub: tuple[str, dict[str, str]], scheme: str, language: str
) -> None:
    url, paths = hub
    found: list[str] = []
    with Browser(*PHONE, language) as browser:
        browser.emulate(scheme)
        for name, path in paths.items():
            browser.open(url + path)
            assert browser.evaluate("document.querySelector('h1').innerText"), name
            found += problems(browser, name)
        for path in FORMS:
            browser.open(url + path)
            browser.click("button[value=cost]")
            found += problems(browser, path)
        browser.open(f"{url}/leases")
        browser.click("form.new button")
        found += problems(browser, "a refused lease")
        browser.send_headers(Authorization=f"Bearer {TOKEN}")
        for path in ("/checks/new?kind=pair", "/leases", paths["running"]):
            browser.open(url + path)
            found += problems(browser, f"{path} of a reader")
    assert found == []


def test_a_printed_page_has_no_buttons_and_all_details(hub: tuple[str, dict[str, str]]) -> None:
    url, paths = hub
    with Browser(718, 1000) as browser:  # the width of A4 between its margins
        browser.emulate(media="print")
        browser.open(url + paths["matrix-64"])
        text = browser.text()
        assert "gpu-40" in text
        assert "Message sizes" in text, "the parameters, which a click opens on a screen"
        assert "Run again" not in text
        assert problems(browser, "print") == []
        browser.open(f"{url}/leases")
        assert "End now" not in browser.text()
