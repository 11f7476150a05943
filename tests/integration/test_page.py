"""The page at /, of real agents: while probes hang, before the first run, after a failed reload."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import bcrypt
import pytest

from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, wait_until

# Prints what other threads than the main one open, list or start.
REPORT = """import sys, threading
def report(event, arguments):
    touches = event in ("open", "os.listdir", "os.scandir", "subprocess.Popen", "os.fork")
    if touches and threading.current_thread() is not threading.main_thread():
        print("a thread touches", event, arguments[:1], file=sys.stderr)
sys.addaudithook(report)
"""
HOSTILE = "<script>alert(1)</script>&\"'\u202e"


class Page(HTMLParser):
    """A page as a browser has it: its rows, links and elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attributes if name == "href"]
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += f" {data}"

    def row(self, name: str) -> list[str]:
        """Return the one row whose second cell begins with a name."""
        (found,) = [row for row in self.rows if row[1].startswith(name)]
        return found


def page_of(node: Node) -> Page:
    response = node.get("/")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    return Page(response.text)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return an agent with a target in each state."""
    folder = tmp_path_factory.mktemp("page")
    behaviours = ["healthy", "sleeps", "hangs", "fails", "absent", f"fails-{HOSTILE}"]
    timing = {"interval": "2s", "timeout": "1500ms"}
    filer = FaultyFileSystem(folder)
    probes = {
        "misbehave": {"behaviours": behaviours, "folder": str(filer.mountpoint), **timing},
        "mounts": {"targets": [{"path": f"{folder}/{HOSTILE[:30]}"}]},
        "node": {"enabled": True},
    }
    started = Node(folder, {"probes": probes}, "--web.enable-lifecycle", NODE_NAME="<b>n-1</b>")
    started.prelude = REPORT
    with filer, started as running:
        filer.fault("hang")
        wait_until(lambda: page_of(running).rows)
        wait_until(lambda: page_of(running).row("misbehave hangs")[0] == "overdue")
        wait_until(lambda: running.get("/readyz").status_code == 200)
        yield running


def test_each_target_has_a_row_with_state_reason_age_and_next_run(node: Node) -> None:
    # Its first run may be late on a machine that is starting twenty workers.
    wait_until(lambda: page_of(node).row("misbehave healthy")[0] == "ok")
    page = page_of(node)
    state, name, last, following = page.row("misbehave fails broken")
    assert (state, name) == ("error", "misbehave fails broken: the thing is broken")
    assert re.fullmatch(r"\d+ s ago took \d+ ms", last)
    assert re.fullmatch(r"in \d+ s|now", following)
    assert page.row("misbehave absent")[:2] == ["absent", "misbehave absent no such hardware"]
    assert page.row("mounts")[0] == "error"
    states = [row[0] for row in page.rows[1:]]
    assert states.index("ok") > max(place for place, state in enumerate(states) if state == "error")


def test_run_that_cannot_be_ended_shows_how_long_it_has_been_running(node: Node) -> None:
    wait_until(lambda: page_of(node).row("misbehave hangs")[0] == "stuck")
    _, name, _, following = page_of(node).row("misbehave hangs")
    assert "not ended by SIGKILL" in name
    assert re.fullmatch(r"running for \d+ s past its deadline", following)
    assert page_of(node).row("misbehave sleeps")[0] == "timeout"


def test_texts_of_others_are_shown_as_text(node: Node) -> None:
    """Also those that change how the text around them looks."""
    page = page_of(node)
    assert {"script", "b", "img"}.isdisjoint(page.tags)
    (row,) = [row for row in page.rows if "alert(1)" in row[1] and "misbehave" in row[1]]
    assert "<script>alert(1)</script>&\"'\\u202e" in row[1]
    assert "<b>n-1</b>" in page.text
    assert "\u202e" not in page.text


def test_policy_forbids_everything_but_the_style_of_the_page(node: Node) -> None:
    response = node.get("/")
    policy = response.headers["Content-Security-Policy"]
    style = re.search("<style>(.*?)</style>", response.text, re.DOTALL)
    assert style is not None
    digest = re.search(r"'sha256-([^']+)'", policy)
    assert digest is not None
    assert len(base64.b64decode(digest[1])) == 32
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.text.startswith('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">')


def test_every_link_opens(node: Node) -> None:
    links = page_of(node).links
    assert "./metrics?collect[]=misbehave" in links
    for link in links:
        assert link.startswith("./")
        assert node.get(link.removeprefix(".")).status_code == 200


def test_page_opens_no_file_and_starts_no_process(node: Node) -> None:
    for _ in range(3):
        page_of(node)
    assert "a thread touches" not in node.log()


def test_head_has_the_headers_of_get(node: Node) -> None:
    head, whole = node.session.head(node.url + "/", timeout=60), node.get("/")
    assert (head.status_code, head.text) == (200, "")
    assert head.headers.keys() == whole.headers.keys()
    assert abs(int(head.headers["Content-Length"]) - len(whole.content)) < 200


def test_failed_reload_is_shown_until_one_succeeds(tmp_path: Path) -> None:
    healthy = {"probes": {"misbehave": {"behaviours": ["healthy"]}}}
    with Node(tmp_path, healthy, "--web.enable-lifecycle") as node:
        good = node.config_file.read_text()
        node.config_file.write_text('{"probes": {"mounts": {"<i>nonsense": 1}}}')
        assert node.session.post(node.url + "/-/reload", timeout=60).status_code == 500
        page = page_of(node)
        assert "The last reload failed; still in use is the configuration of 20" in page.text
        assert "<i>nonsense: unknown key" in page.text
        assert page.row("misbehave healthy")
        node.config_file.write_text(good)
        assert node.session.post(node.url + "/-/reload", timeout=60).status_code == 200
        assert "reload failed" not in page_of(node).text


def test_targets_are_listed_before_their_first_run(tmp_path: Path) -> None:
    """Of more targets than the page has rows, the rest is counted."""
    behaviours = [f"sleeps-{number:04}" for number in range(1200)]
    misbehave = {"behaviours": behaviours, "interval": "1h", "timeout": "30s"}
    with Node(tmp_path, {"probes": {"misbehave": misbehave}}) as node:
        page = wait_until(lambda: page_of(node) if page_of(node).rows else None)
        state, _, last, following = page.row("misbehave sleeps-0000")
        assert (state, last) == ("waiting", "none yet")
        assert following.startswith(("in ", "now"))
        assert len(page.rows) == 1 + 1000
        assert re.search(r"And 20\d more: \d+ waiting", page.text)
        assert len(node.get("/").content) < 400_000


def test_page_has_the_access_rules_of_the_metrics(tmp_path: Path) -> None:
    """A policy that the site has configured is not replaced."""
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    headers = {"content-security-policy": "default-src 'self'"}
    web = {"basic_auth_users": {"reader": hashed}, "http_server_config": {"headers": headers}}
    (tmp_path / "web.yaml").write_text(json.dumps(web))
    with Node(tmp_path, {"probes": {}}, f"--web.config.file={tmp_path}/web.yaml") as node:
        for path in ("/", "/metrics"):
            assert node.get(path).status_code == 401
            assert "nodevitals 0" not in node.get(path).text
        allowed = node.session.get(node.url, auth=("reader", "right"), timeout=60)
        assert allowed.status_code == 200
        assert allowed.headers["Content-Security-Policy"] == "default-src 'self'"
