"""A real browser: Chromium's headless shell of .tools/browser, over the DevTools protocol.

In: addresses of pages, and what a person would do there. Out: the text of the page, pictures. The
protocol runs over two pipes, a message per NUL: https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import base64
import json
import os
import platform
import select
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.node import ROOT, wait_until

FOLDER = ROOT / ".tools/browser"
SHELL = FOLDER / "usr/lib/chromium/chromium-headless-shell"
ANSWER_SECONDS = 120.0
# The program takes the pipes as these descriptors.
_PIPES = 'exec "$@" 3<&"$READS" 4>&"$WRITES"'
_FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir>
<alias><family>sans-serif</family>
<prefer><family>DejaVu Sans</family><family>Droid Sans Fallback</family></prefer></alias>
</fontconfig>
"""
# No sandbox: tests run as root. No /dev/shm: a container's is small.
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
    *("--remote-debugging-pipe", "about:blank"),
)


class BrowserError(Exception):
    """The browser refused a command."""


class Browser:
    """One page of a browser; it runs inside the with block."""

    def __init__(self, width: int = 1280, height: int = 900, language: str = "en") -> None:
        self.size = (width, height)
        self.language = language
        self._number = 0
        self._session = ""
        self._pending = b""
        self._messages: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        self._folder = tempfile.TemporaryDirectory(prefix="browser-")
        home = Path(self._folder.name)
        fonts = _FONTS.format(fonts=FOLDER / "usr/share/fonts", cache=home / "fonts")
        (home / "fonts.conf").write_text(fonts)
        reads, self._commands = os.pipe()
        self._answers, writes = os.pipe()
        libraries = f"{platform.machine()}-linux-gnu"
        pulse = f"usr/lib/{libraries}/pulseaudio"
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "READS": str(reads),
            "WRITES": str(writes),
            "HOME": str(home),
            "LD_LIBRARY_PATH": ":".join(
                f"{FOLDER}/{one}" for one in (f"usr/lib/{libraries}", f"lib/{libraries}", pulse)
            ),
            "FONTCONFIG_FILE": str(home / "fonts.conf"),
        }
        flags = (f"--user-data-dir={home}", f"--lang={self.language}", *_FLAGS)
        argv = ["bash", "-c", _PIPES, "bash", "setpriv", "--pdeathsig", "KILL", "--", str(SHELL)]
        self._log = (home / "log").open("wb")
        self.process = subprocess.Popen(
            [*argv, *flags],
            env=environment,
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._commands)
        os.close(self._answers)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self._log.close()
        self._folder.cleanup()

    def _attach(self) -> None:
        pages = self._send("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        attached = self._send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._send(f"{domain}.enable")
        headers = {"Accept-Language": self.language}
        self._send("Network.setExtraHTTPHeaders", headers=headers)
        self.resize(*self.size)

    def resize(self, width: int, height: int) -> None:
        """Change the size of the page; a narrow one is a phone's."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def emulate(self, scheme: str = "light", media: str = "screen") -> None:
        """Prefer `light` or `dark` colours; show the page as on `screen` or as `print`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._send("Emulation.setEmulatedMedia", media=media, features=features)

    def send_headers(self, **headers: str) -> None:
        """Send these with each request, as `Authorization`."""
        self._send("Network.setExtraHTTPHeaders", headers=headers)

    def ignore_certificates(self) -> None:
        """Accept certificates of an authority that is not installed."""
        self._send("Security.setIgnoreCertificateErrors", ignore=True)

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._leave(lambda: self._navigate(address))

    def _navigate(self, address: str) -> None:
        failure = self._send("Page.navigate", url=address).get("errorText")
        if failure:
            raise BrowserError(f"{address}: {failure}")

    def click(self, selector: str) -> None:
        """Click at the middle of an element, which leads to another page."""
        self._leave(lambda: self._press(selector))

    def press(self, selector: str) -> None:
        """Click at the middle of an element, which changes this page only, as a check box does."""
        self._press(selector)

    def _press(self, selector: str) -> None:
        place = self.evaluate(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            "if (!one) return null; one.scrollIntoView({block: 'center'});"
            "const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]})()"
        )
        if place is None:
            raise BrowserError(f"no element {selector} in: {self.text()[:500]}")
        more = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, **more)

    def fill(self, selector: str, text: str) -> None:
        """Type a text into a field, in place of what is in it."""
        self._press(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self._send("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list by its value."""
        chosen = self.evaluate(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            f"one.value = {json.dumps(value)}; one.dispatchEvent(new Event('change', "
            "{bubbles: true})); return one.value})()"
        )
        if chosen != value:
            raise BrowserError(f"{selector} has no option {value}")

    def text(self) -> str:
        """The text of the page, as a person reads it."""
        return str(self.evaluate("document.body ? document.body.innerText : ''") or "")

    def address(self) -> str:
        """The address of the page."""
        return str(self.evaluate("location.href"))

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        done = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in done:
            raise BrowserError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def wait_for(self, text: str, seconds: float = 120.0) -> str:
        """Wait until the page has a text, also after it has reloaded itself. Returns the page's."""

        def found() -> str:
            with suppress(BrowserError):  # between two pages
                page = self.text()
                return page if text in page else ""
            return ""

        try:
            return str(wait_until(found, seconds))
        except AssertionError:
            raise AssertionError(f"no {text!r} within {seconds:g} s in:\n{self.text()}") from None

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write what is shown, or the whole page, as PNG."""
        done = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(done["data"]))

    def _leave(self, act: Any) -> None:
        """Do what leads to another page, and wait until that is loaded."""
        self._messages.clear()
        act()
        self._await(lambda one: one.get("method") == "Page.loadEventFired")

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._await(lambda one, number=self._number: one.get("id") == number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _await(self, wanted: Any) -> dict[str, Any]:
        """The first message of a kind; those before it are kept."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            for message in self._messages:
                if wanted(message):
                    self._messages.remove(message)
                    return message
            self._read(deadline)

    def _read(self, deadline: float) -> None:
        ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(self._answers, 1 << 20) if ready else b""
        if not data:
            log = Path(self._log.name).read_text(errors="replace")[-2000:]
            raise BrowserError(f"no answer of the browser in {ANSWER_SECONDS:g} s; its log:\n{log}")
        *whole, self._pending = (self._pending + data).split(b"\0")
        self._messages += [json.loads(one) for one in whole]
