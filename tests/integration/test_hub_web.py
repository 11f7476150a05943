"""The hub's REST API and pages: access, refusals, other sites' requests, escaping."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import hashlib
import html
import io
import re
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals.checks.model import Check, RunResult
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.runners import PlannedRun, Runner
from nodevitals_hub.store.check_store import Issued
from nodevitals_hub.web.form import fields_of, request_of
from nodevitals_hub.web.heatmap import MOST, Overviews
from testbed.hubpages import ORIGIN, Site, keep, matrix_check, site

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = {"alice": HASH, "bob": HASH}
TOKEN = "a-token-of-the-pipeline"
IDENTITY = "20260101-000000-abcdef"
EVIL = "<script>alert(1)</script>"
PAIR = {"kind": "pair", "nodes": ["gpu-1", "gpu-2"], "test": {"tool": "iperf3"}}


def basic(user: str, password: str = "secret") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def run(folder: Path, steps: Any, anonymous: Any = "read", users: Any = None) -> None:
    """Run a coroutine function of a site with a finished check."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens = folder / "tokens.yaml"
    tokens.write_text(f"- {{name: ci, role: act, sha256: {digest}}}\n")
    access = {"anonymous": anonymous, "users": {"alice": "run"}, "tokens_file": str(tokens)}

    async def whole() -> None:
        async with site(folder, access, USERS if users is None else users) as found:
            await keep(found.hub.store, *matrix_check(8, "gpu-7", IDENTITY, EVIL))
            await steps(found)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "headers"),
    [
        (400, "POST", "/api/v1/checks", None, {"content_type": "application/json"}),
        (401, "POST", "/api/v1/checks", PAIR, {"authorization": ""}),
        (401, "GET", "/api/v1/me", None, {"authorization": "Bearer wrong"}),
        (401, "GET", "/api/v1/me", None, {"authorization": basic("alice", "wrong")}),
        (401, "GET", "/api/v1/me", None, {"authorization": "Basic %%%"}),
        (403, "POST", "/api/v1/checks", PAIR, {"authorization": basic("bob")}),
        (403, "POST", "/api/v1/checks", {**PAIR, "force": True}, {}),
        (404, "GET", "/api/v1/checks/20260101-000000-zzzzzz", None, {}),
        (404, "GET", "/api/v1/../../etc/passwd", None, {}),
        (405, "PATCH", "/api/v1/checks", {}, {}),
        (409, "DELETE", f"/api/v1/checks/{IDENTITY}", None, {}),
        (413, "POST", "/api/v1/checks", {"note": "x" * 300_000}, {}),
        (414, "GET", "/?node=" + "x" * 5000, None, {}),
        (415, "POST", "/api/v1/checks", PAIR, {"content_type": "text/plain"}),
        (422, "POST", "/api/v1/checks", {"kind": "other"}, {}),
        (422, "POST", "/api/v1/checks", {**PAIR, "nodes": ["gpu-1", "--help"]}, {}),
        (422, "POST", "/api/v1/checks", {**PAIR, "unknown": 1}, {}),
        (422, "GET", "/api/v1/checks?limit=x", None, {}),
    ],
)
def test_a_refusal_has_its_status_and_one_line(
    tmp_path: Path, status: int, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    async def steps(found: Site) -> None:
        sent = {"authorization": basic("alice"), **headers}
        sent = {name: value for name, value in sent.items() if value}
        answer = await found.call(method, path, body, **sent)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error
        assert "\n" not in error
        assert ("www-authenticate" in answer.headers) == (status == 401)

    run(tmp_path, steps)


def test_each_role_may_do_what_it_should(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        who = {"read": basic("bob"), "run": basic("alice"), "act": f"Bearer {TOKEN}"}
        for role, sent in who.items():
            assert (await found.call("GET", "/api/v1/me", authorization=sent)).json()[
                "role"
            ] == role
            for path in ("/", "/checks/new", f"/checks/{IDENTITY}", "/api/v1/openapi.json"):
                assert (await found.call("GET", path, authorization=sent)).status_code == 200
            answer = await found.call("DELETE", f"/api/v1/checks/{IDENTITY}", authorization=sent)
            assert answer.status_code == (403 if role == "read" else 409)

    run(tmp_path, steps)


def test_without_an_anonymous_role_only_health_is_open(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        for path in ("/", "/checks/new", f"/checks/{IDENTITY}", "/api/v1/nodes", "/nothing"):
            assert (await found.call("GET", path)).status_code == 401
        assert (await found.call("GET", "/healthz")).status_code == 200

    run(tmp_path, steps, anonymous=None)


def test_what_a_page_of_another_site_sends_is_refused(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        path = f"/checks/{IDENTITY}/cancel"
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}):
            assert (await found.call("POST", path, **headers)).status_code == 403
        cross = await found.call("POST", path, sec_fetch_site="cross-site")
        assert cross.status_code == 403
        own = await found.call("POST", path, origin=ORIGIN, sec_fetch_site="same-origin")
        assert own.status_code == 409
        token = {"authorization": f"Bearer {TOKEN}", "origin": "https://evil.example"}
        assert (await found.call("POST", path, **token)).status_code == 409

    run(tmp_path, steps, anonymous="run")


def test_every_text_is_escaped_in_both_languages(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        for path in ("/", f"/checks/{IDENTITY}", f"/checks/new?copy={IDENTITY}"):
            for language in ("en", "zh"):
                answer = await found.call("GET", path, accept_language=language)
                assert answer.status_code == 200
                assert "<script" not in answer.text
                assert "&lt;script&gt;" in answer.text
                assert f'lang="{language}"' in answer.text
                assert "default-src 'none'" in answer.headers["content-security-policy"]

    run(tmp_path, steps)


def test_the_page_names_the_slow_node_and_its_share(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        text = (await found.call("GET", f"/checks/{IDENTITY}")).text
        assert ">41</td>" in text
        assert text.index("gpu-7") < text.index('class="map')

    run(tmp_path, steps)


def test_a_tournament_of_many_nodes_makes_a_small_page(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        identity = "20260101-000001-abcdef"
        await keep(found.hub.store, *matrix_check(100, "gpu-7", identity))
        text = (await found.call("GET", f"/checks/{identity}")).text
        assert 'class="map' not in text
        assert len(text) < 100_000

    run(tmp_path, steps)


def test_the_page_of_a_running_check_has_the_results_of_now(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        check, results = matrix_check(4, "gpu-3", "20260101-000001-abcdef")
        store, path = found.hub.store, f"/checks/{check.id}"
        running = replace(check, phase="running", ended=None, verdict=None, runs_done=0)
        await store.add(replace(running, phase="queued"), "")
        for number, result in enumerate(results, 1):
            await store.record(check.id, result)
            await store.update(replace(running, runs_done=number))
            text = (await found.call("GET", path)).text
            assert f"<td>{len(results)}</td><td>{number}</td>" in text, "tests planned and spent"
        await store.finish(check, results)
        assert "Run again" in (await found.call("GET", path)).text
        assert 'class="verdict bad"' in (await found.call("GET", path)).text

    run(tmp_path, steps)


def test_overviews_of_the_checks_looked_at_last_are_kept(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        overviews = Overviews(found.hub.checks)
        checks = []
        for number in range(MOST + 1):
            check, results = matrix_check(3, "gpu-1", f"20260101-{number:06}-bbbbbb")
            await keep(found.hub.store, check, results)
            checks.append(check)
        first, second = [await overviews.of(check) for check in checks[:2]]
        for check in checks[2:]:
            await overviews.of(check)
            assert await overviews.of(checks[1]) is second
        assert await overviews.of(checks[0]) is not first
        assert await overviews.of(checks[0]) == first

    run(tmp_path, steps)


def test_each_test_has_a_page_with_its_raw_output(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        page = (await found.call("GET", f"/checks/{IDENTITY}")).text
        assert f'href="/checks/{IDENTITY}/runs/3"' in page
        own = (await found.call("GET", f"/checks/{IDENTITY}/runs/3")).text
        assert EVIL not in own
        assert html.escape(EVIL) in own
        text = await found.call("GET", f"/checks/{IDENTITY}/runs/3/output.txt")
        assert text.headers["content-type"] == "text/plain; charset=utf-8"
        assert text.headers["content-disposition"].startswith("attachment")
        assert EVIL in text.text
        for number in ("28", "-1", "x", "9" * 30):
            for end in ("", "/output.txt"):
                answer = await found.call("GET", f"/checks/{IDENTITY}/runs/{number}{end}")
                assert answer.status_code in (400, 404), (number, answer.text)

    run(tmp_path, steps)


def test_all_tests_of_a_check_are_listed_page_by_page(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        identity = IDENTITY.replace("000000", "000001")
        await keep(found.hub.store, *matrix_check(40, "gpu-7", identity))
        seen: list[int] = []
        path: str | None = f"/checks/{identity}/runs"
        while path:
            page = (await found.call("GET", path)).text
            shown = [int(one) for one in re.findall(rf"{identity}/runs/([0-9]+)\"", page)]
            assert len(shown) <= 100
            seen += shown
            later = re.search(r'href="([^"]+)" rel="next"', page)
            path = later and f"/checks/{identity}/runs{html.unescape(later[1])}"
        assert seen == list(range(40 * 39 // 2))
        of_node = (await found.call("GET", f"/checks/{identity}/runs?node=gpu-7")).text
        assert len(re.findall(rf"{identity}/runs/[0-9]+\"", of_node)) == 39

    run(tmp_path, steps)


def test_a_check_is_compared_with_one_chosen_from_a_list(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        newer, fewer = (IDENTITY.replace("000000", f"00000{n}") for n in (2, 1))
        await keep(found.hub.store, *matrix_check(5, "gpu-2", fewer))
        await keep(found.hub.store, *matrix_check(8, "gpu-3", newer))
        page = (await found.call("GET", f"/checks/{newer}")).text
        options = re.findall(r'<option value="([^"]+)"', page)
        assert options == [IDENTITY, fewer], "the same nodes first"
        assert "option" not in (await found.call("GET", f"/checks/{IDENTITY}")).text
        compared = (await found.call("GET", f"/checks/{newer}?with={IDENTITY}")).text
        rows = re.findall(r"<bdi>(gpu-[0-9])</bdi></th>.*?>([0-9]+) %<", compared)
        assert rows[:2] == [("gpu-7", "244"), ("gpu-3", "41")]
        path = f"/api/v1/checks/{newer}/comparison?with={IDENTITY}"
        changes = (await found.call("GET", path)).json()
        assert (changes["check"], changes["earlier"]) == (newer, IDENTITY)
        second = changes["nodes"][1]
        assert second["nodes"] == ["gpu-3"]
        assert second["ratio"] == pytest.approx(second["now"] / second["earlier"])
        for other, status in (("20260101-000000-zzzzzz", 404), (newer, 422)):
            for place in (f"/checks/{newer}?with={other}", path.replace(IDENTITY, other)):
                assert (await found.call("GET", place)).status_code == status

    run(tmp_path, steps)


def test_a_check_that_is_gone_says_how_long_checks_are_kept(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        gone = "/checks/20260101-000000-zzzzzz"
        answer = await found.call("GET", f"/api/v1{gone}")
        assert answer.status_code == 404
        assert "after 90 days (limits.keep)" in answer.json()["error"]
        page = await found.call("GET", f"{gone}?lang=zh", accept="text/html")
        assert page.status_code == 404
        assert "90 天" in page.text
        other = await found.call("GET", "/api/v1/checks/something")
        assert "limits.keep" not in other.json()["error"]

    run(tmp_path, steps)


def test_command_lines_are_on_the_page_below_their_nodes(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        check, results = matrix_check(8, "gpu-7", identity := IDENTITY.replace("000000", "000001"))
        texts = {
            result.number: f"# {result.nodes[1]}\niperf3 -s\n# {result.nodes[0]}\niperf3 -c {EVIL}"
            for result in results
        }
        results = [replace(result, commands=(texts[result.number],)) for result in results]
        await keep(found.hub.store, check, results)
        page = (await found.call("GET", f"/checks/{identity}")).text
        shown = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
        slow = {html.escape(texts[r.number]) for r in results if "gpu-7" in r.nodes}
        assert set(shown) < slow
        assert len(shown) == 3
        own = await found.call("GET", f"/checks/{identity}/runs/5")
        assert html.escape(texts[5]) in own.text
        text = await found.call("GET", f"/checks/{identity}/runs/5/output.txt")
        assert text.text.startswith(texts[5])
        table = (await found.call("GET", f"/api/v1/checks/{identity}/results.csv")).text
        rows = list(csv.DictReader(io.StringIO(table)))
        assert [row["commands"] for row in rows] == [texts[int(row["run"])] for row in rows]

    run(tmp_path, steps)


def test_the_form_shows_what_its_preset_fills_in(tmp_path: Path) -> None:
    async def whole() -> None:
        test = {"tool": "iperf3", "device": "fab0", "sizes": "128KiB"}
        presets = {"links": {"kind": "matrix", "test": test}}
        async with site(tmp_path, {"anonymous": "run"}, {}, presets=presets) as found:
            form = (await found.call("GET", "/checks/new?kind=matrix&preset=links")).text
            for text in ("default: iperf3", 'placeholder="fab0"', 'placeholder="128KiB"'):
                assert text in form
            without = (await found.call("GET", "/checks/new?kind=matrix")).text
            assert "default: perftest" in without
            assert "fab0" not in without.replace("fab0 128KiB", "")

    asyncio.run(whole())


class HeldRunner(Runner):
    """Runs of gpu-3 do not end; the others have a figure at once."""

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        if "gpu-3" in run.nodes:
            await asyncio.Event().wait()
        row = ResultRow(message_bytes=131072, bandwidth_bytes_per_second=1e9)
        report = Report(outcome="ok", rows=(row,))
        return RunResult(number=run.number, nodes=run.nodes, reports=(report,))


def test_the_page_of_an_open_check_shows_what_runs_and_what_it_waits_for(tmp_path: Path) -> None:
    wanted = {**PAIR, "kind": "matrix", "nodes": ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]}

    async def whole() -> None:
        async with site(tmp_path, {"anonymous": "run"}, {}, runner=HeldRunner()) as found:
            checks = found.hub.checks
            first = (await found.call("POST", "/api/v1/checks", wanted)).json()["id"]
            second = (await found.call("POST", "/api/v1/checks", PAIR)).json()["id"]
            while (check := await checks.check(first)).runs_done == 0 or not (
                checks.progress(check).running
            ):
                await asyncio.sleep(0.01)
            page = (await found.call("GET", f"/checks/{first}")).text
            now = page.partition("Runs now")[2].partition("</ul>")[0]
            shown = re.findall("<bdi>(.*?)</bdi>", now)
            assert len(shown) == 1
            assert "gpu-3" in shown[0]
            assert "8 Gb/s" in page, "the figure of the test that has ended"
            assert "At this pace" in page
            assert "at the latest" in page
            waits = (await found.call("GET", f"/checks/{second}")).text
            assert f'in use by earlier checks: <a href="/checks/{first}">' in waits
            await found.call("DELETE", f"/api/v1/checks/{first}")
            assert "Runs now" not in (await found.call("GET", f"/checks/{first}")).text
            while (await checks.check(second)).phase != "done":
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_tokens_in_clear_that_others_may_read_are_not_valid(tmp_path: Path) -> None:
    from nodevitals_hub.web.access import Tokens

    path = tmp_path / "tokens.yaml"
    path.write_text(f"- {{name: ci, role: run, token: {TOKEN}}}\n")
    tokens = Tokens()
    path.chmod(0o644)
    tokens.refresh(str(path))
    assert tokens.find(TOKEN) is None
    path.chmod(0o600)
    tokens.refresh(str(path))
    assert tokens.find(TOKEN) is not None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.dictionaries(
            st.sampled_from(["kind", "nodes", "where", "port", "seconds", "rounds", "force"]),
            st.text(max_size=20),
        ).map(lambda fields: "&".join(f"{k}={v}" for k, v in fields.items()).encode("utf-8")),
    )
)
def test_any_form_gives_a_request_or_a_refusal(body: bytes) -> None:
    with contextlib.suppress(RefusedError):
        assert request_of(fields_of(body)).kind in ("pair", "matrix", "collective", "node")


def test_a_key_is_that_of_its_client(tmp_path: Path) -> None:
    """Otherwise a client could take the key of a schedule, and keep it from starting."""

    async def steps(found: Site) -> None:
        started = []
        for authorization in (basic("alice"), f"Bearer {TOKEN}", basic("alice")):
            headers = {"authorization": authorization, "idempotency_key": "schedule-nightly-7"}
            answer = await found.call("POST", "/api/v1/checks", PAIR, **headers)
            assert answer.status_code == 201, answer.text
            started.append(answer.json()["id"])
        assert started[0] == started[2] != started[1]
        assert await found.hub.store.by_key("schedule-nightly-7") is None

    run(tmp_path, steps)


def test_no_name_and_key_are_those_of_another_client(tmp_path: Path) -> None:
    """A name may have spaces, and so may a key."""
    tokens = tmp_path / "tokens.yaml"
    entries = {"ci": "token-of-a-pipeline", "ci 1": "token-of-another-one"}
    lines = [f"- {{name: {name}, role: run, token: {text}}}" for name, text in entries.items()]
    tokens.write_text("\n".join(lines))
    tokens.chmod(0o600)

    async def whole() -> None:
        async with site(tmp_path, {"tokens_file": str(tokens)}, {}) as found:
            started = set()
            for name, key in (("ci", "1 2"), ("ci 1", "2")):
                headers = {"authorization": f"Bearer {entries[name]}", "idempotency_key": key}
                answer = await found.call("POST", "/api/v1/checks", PAIR, **headers)
                assert answer.json()["requester"]["name"] == name
                started.add(answer.json()["id"])
            assert len(started) == 2

    asyncio.run(whole())


def test_the_sum_of_no_token_lets_no_one_in(tmp_path: Path) -> None:
    """It is what a script writes whose variable with the token is not set."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"- {{name: ci, role: act, sha256: {hashlib.sha256(b'').hexdigest()}}}\n")

    async def whole() -> None:
        async with site(tmp_path, {"tokens_file": str(tokens)}, {}) as found:
            for sent in ("Bearer", "Bearer ", "Bearer  "):
                answer = await found.call("GET", "/api/v1/me", authorization=sent)
                assert answer.status_code == 401

    asyncio.run(whole())
