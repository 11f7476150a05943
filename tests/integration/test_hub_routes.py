"""Each route of the hub's web application: roles, OpenAPI, refusals, any body and any query."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar import Litestar

from nodevitals.checks.model import CheckRequest, Role
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.web.app import build_app
from nodevitals_hub.web.gate import HEADERS, is_own_host, is_own_origin
from testbed.hubpages import ORIGIN, Site, keep, matrix_check, site

IDENTITY = "20260101-000000-abcdef"
TOKENS: dict[Role, str] = {role: f"a-token-with-the-role-{role}" for role in ("read", "run", "act")}
PAIR = {"kind": "pair", "nodes": ["gpu-1", "gpu-2"], "test": {"tool": "iperf3"}}

# Method and path: status without a login, then with the roles read, run, act.
TABLE = {
    "GET /": (401, 200, 200, 200),
    "GET /healthz": (200, 200, 200, 200),
    "GET /static/style.css": (200, 200, 200, 200),
    "GET /metrics": (401, 200, 200, 200),
    "GET /login": (401, 303, 303, 303),
    "GET /checks/new": (401, 200, 200, 200),
    "GET /checks/for": (401, 303, 303, 303),
    "POST /checks/new": (401, 403, 422, 422),
    "GET /checks/{identity:str}": (401, 200, 200, 200),
    "GET /checks/{identity:str}/runs": (401, 200, 200, 200),
    "GET /checks/{identity:str}/runs/{number:int}": (401, 200, 200, 200),
    "GET /checks/{identity:str}/runs/{number:int}/output.txt": (401, 200, 200, 200),
    "POST /checks/{identity:str}/cancel": (401, 403, 409, 409),
    "GET /schedules": (401, 200, 200, 200),
    "GET /leases": (401, 200, 200, 200),
    "POST /leases": (401, 403, 422, 422),
    "POST /leases/{identity:str}/end": (401, 403, 404, 404),
    "GET /isolations": (401, 200, 200, 200),
    "POST /isolations/{identity:str}/{what:str}": (401, 403, 403, 404),
    "GET /api/v1/isolations": (401, 200, 200, 200),
    "POST /api/v1/isolations/{identity:str}/approve": (401, 403, 403, 404),
    "POST /api/v1/isolations/{identity:str}/return": (401, 403, 403, 404),
    "GET /alerts/{fingerprint:str}": (401, 404, 404, 404),
    "GET /api/v1/openapi.json": (401, 200, 200, 200),
    "GET /api/v1/openapi.json/openapi.json": (401, 200, 200, 200),
    "GET /api/v1/openapi.json/{path:str}": (401, 404, 404, 404),
    "GET /api/v1/checks": (401, 200, 200, 200),
    "POST /api/v1/checks": (401, 403, 422, 422),
    "POST /api/v1/checks/estimate": (401, 422, 422, 422),
    "GET /api/v1/checks/{identity:str}": (401, 200, 200, 200),
    "DELETE /api/v1/checks/{identity:str}": (401, 403, 409, 409),
    "GET /api/v1/checks/{identity:str}/results.csv": (401, 200, 200, 200),
    "GET /api/v1/checks/{identity:str}/comparison": (401, 422, 422, 422),
    "GET /api/v1/nodes": (401, 200, 200, 200),
    "GET /api/v1/presets": (401, 200, 200, 200),
    "GET /api/v1/me": (401, 200, 200, 200),
    "GET /incidents": (401, 200, 200, 200),
    "GET /incidents/of/{fingerprint:str}": (401, 404, 404, 404),
    "GET /incidents/{identity:str}": (401, 404, 404, 404),
    "POST /incidents/{identity:str}/acknowledge": (401, 404, 404, 404),
    "POST /incidents/{identity:str}/mark": (401, 403, 422, 422),
    "GET /notifications": (401, 200, 200, 200),
    "GET /api/v1/deliveries": (401, 200, 200, 200),
    "GET /api/v1/incidents": (401, 200, 200, 200),
    "GET /api/v1/incidents/{identity:str}": (401, 404, 404, 404),
    "POST /api/v1/incidents/{identity:str}/acknowledge": (401, 403, 404, 404),
    "POST /api/v1/incidents/{identity:str}/mark": (401, 403, 422, 422),
    "POST /api/v1/notifications": (401, 403, 400, 400),
    "GET /api/v1/drills": (401, 200, 200, 200),
    "POST /api/v1/drills": (401, 403, 403, 422),
    "DELETE /api/v1/drills/{identity:str}": (401, 403, 403, 404),
    "GET /api/v1/leases": (401, 200, 200, 200),
    "POST /api/v1/leases": (401, 403, 422, 422),
    "DELETE /api/v1/leases/{identity:str}": (401, 403, 404, 404),
    "GET /api/v1/schedules": (401, 200, 200, 200),
    "POST /api/v1/alerts": (401, 403, 400, 400),
    "GET /api/v1/sd/fast": (401, 200, 200, 200),
}


def run(folder: Path, steps: Any, anonymous: Any = None, **more: Any) -> None:
    """Run a coroutine function of a site with a finished check."""
    tokens = folder / "tokens.yaml"
    rows = ((role, hashlib.sha256(text.encode()).hexdigest()) for role, text in TOKENS.items())
    tokens.write_text("".join(f"- {{name: {r}, role: {r}, sha256: {d}}}\n" for r, d in rows))
    access = {"anonymous": anonymous, "tokens_file": str(tokens)}

    async def whole() -> None:
        async with site(folder, access, {}, **more) as found:
            await keep(found.hub.store, *matrix_check(8, "gpu-7", IDENTITY))
            await steps(found)

    asyncio.run(whole())


def routes_of(found: Site) -> set[str]:
    """Each method and path of the application."""
    app: Litestar = build_app(
        found.hub, found.parts.handlers(), lambda: pytest.fail("not asked"), str
    )
    return {
        f"{method} {route.path}"
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method != "OPTIONS"
    }


def test_each_route_has_the_statuses_of_the_table(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        assert routes_of(found) == set(TABLE)
        for route, expected in TABLE.items():
            method, path = route.split(" ")
            path = path.replace("{identity:str}", IDENTITY).replace("{path:str}", "nothing")
            path = path.replace("{fingerprint:str}", "0123456789abcdef")
            path = path.replace("{what:str}", "return").replace("{number:int}", "3")
            body: Any = {} if method == "POST" and path.startswith("/api/") else None
            for token, status in zip((None, *TOKENS.values()), expected, strict=True):
                sent = {} if token is None else {"authorization": f"Bearer {token}"}
                answer = await found.call(method, path, body, **sent)
                assert answer.status_code == status, (route, token, answer.text)
                if status >= 400:
                    is_page = status == 422 and path.startswith(("/checks/", "/leases"))
                    is_page |= status == 404 and path.endswith("/nothing")
                    assert is_page or set(answer.json()) == {"error"}
                for name, value in HEADERS.items():
                    if (path, name) != ("/static/style.css", "cache-control"):
                        assert answer.headers[name] == value, (route, name)

    run(tmp_path, steps)


def test_openapi_describes_the_routes_of_the_api(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        sent = {"authorization": f"Bearer {TOKENS['read']}"}
        text = (await found.call("GET", "/api/v1/openapi.json", **sent)).json()
        described = {
            f"{method.upper()} {path}" for path, item in text["paths"].items() for method in item
        }
        own = {
            re.sub(r"\{(\w+):str\}", r"{\1}", route)
            for route in TABLE
            if "/api/v1/" in route and "{path" not in route and "openapi" not in route
        }
        assert described == own

    run(tmp_path, steps)


def test_openapi_has_no_expression_that_only_python_knows(tmp_path: Path) -> None:
    """Clients' validators read those of ECMA; Litestar leaves out the patterns of our types."""

    async def steps(found: Site) -> None:
        sent = {"authorization": f"Bearer {TOKENS['act']}"}
        text = (await found.call("GET", "/api/v1/openapi.json", **sent)).text
        patterns = re.findall(r'"pattern":"((?:[^"\\]|\\.)*)"', text)
        assert [one for one in patterns if re.search(r"\\\\[AZ]|\(\?P", one)] == []

    run(tmp_path, steps)


ACT = {"authorization": f"Bearer {TOKENS['act']}"}
REFUSALS: list[tuple[int, str, str, Any, dict[str, str]]] = [
    (400, "POST", "/checks/new", None, {"content_length": "1", "transfer_encoding": "chunked"}),
    (401, "GET", "/", None, {"authorization": ""}),
    (401, "GET", "/", None, {"authorization": "Bearer e"}),
    (403, "POST", "/checks/new", None, {"authorization": f"Bearer {TOKENS['read']}"}),
    (404, "GET", "/checks/20260101-000000-zzzzzz", None, {}),
    (405, "PUT", "/", None, {}),
    (409, "POST", f"/checks/{IDENTITY}/cancel", None, {}),
    (413, "POST", "/checks/new", {"a": "x" * 300_000}, {}),
    (414, "GET", "/?" + "x" * 5000, None, {}),
    (415, "POST", "/api/v1/checks", PAIR, {"content_type": "text/plain"}),
    (422, "POST", "/api/v1/checks", {"kind": "x"}, {}),
    (431, "GET", "/", None, {"cookie": "x" * 20_000}),
]


@pytest.mark.parametrize(("status", "method", "path", "body", "headers"), REFUSALS)
def test_a_refusal_is_json_for_programs_and_a_page_for_browsers(
    tmp_path: Path, status: int, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    async def steps(found: Site) -> None:
        for accept in ("*/*", "text/html,application/xhtml+xml"):
            sent = {**ACT, "accept": accept, **headers}
            answer = await found.call(method, path, body, **sent)
            assert answer.status_code == status, answer.text
            is_page = accept != "*/*" and not path.startswith("/api/")
            assert answer.headers["content-type"].startswith("text/html") == is_page
            if is_page:
                assert answer.text.count("<h1>") == 1
            else:
                assert "\n" not in answer.json()["error"]
            assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]

    run(tmp_path, steps)


def test_a_store_that_cannot_be_read_is_503(tmp_path: Path) -> None:
    shown: list[str] = []

    async def steps(found: Site) -> None:
        sent = {"authorization": f"Bearer {TOKENS['act']}"}
        await found.hub.store.close()
        shown.clear()
        for path in ("/", "/api/v1/checks"):
            answer = await found.call("GET", path, **sent)
            assert answer.status_code == 503
            shown.append(path)
            assert "\n" not in answer.json()["error"]

    with contextlib.suppress(StoreError):  # closed twice
        run(tmp_path, steps)
    assert len(shown) == 2


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (409, {}),
        (409, {"origin": ORIGIN}),
        (409, {"origin": ORIGIN.upper()}),
        (409, {"origin": "https://hub.example.org", "sec_fetch_site": "same-origin"}),
        (409, {"sec_fetch_site": "none"}),
        (403, {"origin": "https://hub.example.org"}),
        (403, {"origin": "https://evil.example", "sec_fetch_site": "same-origin"}),
        (403, {"origin": f"{ORIGIN}.evil.example"}),
        (403, {"origin": f"{ORIGIN}:81"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://[", "sec_fetch_site": "same-origin"}),
        (403, {"origin": ORIGIN, "sec_fetch_site": "same-site"}),
        (403, {"sec_fetch_site": "cross-site"}),
        (403, {"sec_fetch_site": "nonsense"}),
        (409, {"origin": "null", **ACT}),
    ],
)
def test_which_pages_may_send_a_form(tmp_path: Path, status: int, headers: dict[str, str]) -> None:
    async def steps(found: Site) -> None:
        for method, path in (
            ("POST", f"/checks/{IDENTITY}/cancel"),
            ("DELETE", f"/api/v1/checks/{IDENTITY}"),
        ):
            assert (await found.call(method, path, **headers)).status_code == status

    run(tmp_path, steps, anonymous="run")


def test_a_name_of_another_site_is_refused_where_the_own_name_is_known(tmp_path: Path) -> None:
    async def steps(found: Site) -> None:
        assert (await found.call("GET", "/api/v1/nothing")).json() == {"error": "no such page"}
        evil = {"host": "evil.example:9857", "origin": "http://evil.example:9857"}
        answer = await found.call("POST", f"/checks/{IDENTITY}/cancel", **evil)
        assert answer.status_code == 421
        for path, status in (("/", 421), ("/api/v1/checks", 421), ("/metrics", 200)):
            assert (await found.call("GET", path, **evil)).status_code == status
        assert (await found.call("GET", "/", **evil, **ACT)).status_code == 200
        assert (await found.call("GET", "/")).status_code == 200

    run(tmp_path, steps, anonymous="run", external_url=ORIGIN)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("hub.example.org", True),
        ("HUB.example.org", True),
        ("10.1.2.3:9857", True),
        ("[::1]:9857", True),
        ("localhost:9857", True),
        ("nodevitals-hub.monitoring.svc:9857", True),
        ("hub.example.org.evil.example", False),
        ("evil.example", False),
        ("evil.example.", False),
        ("[::1", False),
        ("", False),
        ("10.1.2.3.evil.example", False),
    ],
)
def test_hosts_of_this_hub(host: str, own: bool) -> None:
    assert is_own_host(host, "https://hub.example.org") is own
    assert is_own_host(host, "")


@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=12))
def test_any_host_and_origin_get_an_answer(host: str, origin: str, site_: str) -> None:
    is_own_host(host, "https://hub.example.org")
    is_own_origin("http", {"host": host, "origin": origin, "sec-fetch-site": site_}, "")


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["gpu-1", "gpu-2", "--help", "../etc", "a\nb", "8B..8GiB x2", "64KiB", "mlx5_0", "\x00"]
    ),
)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none())
LABELS = st.dictionaries(WORDS, WORDS, max_size=3)
TOOLS = st.sampled_from(["perftest", "iperf3", "nccl", "hccl", "", None])
TEST = st.fixed_dictionaries(
    {},
    optional={
        "tool": TOOLS,
        "operation": st.one_of(WORDS, st.sampled_from(["write_bw", "tcp", "all_reduce"])),
        **dict.fromkeys(("device", "sizes"), WORDS),
        **dict.fromkeys(("port", "iterations", "seconds", "queue_pairs", "gid_index"), NUMBERS),
        **dict.fromkeys(("traffic_class", "devices_per_node"), NUMBERS),
        **dict.fromkeys(("environment", "mca"), LABELS),
    },
)
KINDS = st.sampled_from(["pair", "matrix", "collective", "node", "x"])
NAMES = st.lists(st.one_of(st.sampled_from([f"gpu-{n}" for n in range(1, 9)]), WORDS), max_size=9)
BODY = st.one_of(
    st.binary(max_size=100),
    st.recursive(st.none() | WORDS, lambda x: st.lists(x) | st.dictionaries(WORDS, x)),
    st.fixed_dictionaries(
        {"kind": KINDS, "nodes": NAMES, "test": TEST},
        optional={
            "where": LABELS,
            "rounds": NUMBERS,
            "share": NUMBERS,
            "expected_bytes_per_second": NUMBERS,
            "limit_seconds": NUMBERS,
            "note": st.text(max_size=30),
            "preset": WORDS,
            "isolate": st.booleans(),
            "force": st.booleans(),
        },
    ),
)
QUERY = st.dictionaries(
    st.sampled_from(["limit", "before", "kind", "node", "outcome", "copy", "lang", "x"]),
    st.one_of(st.text(max_size=12), st.integers().map(str), st.just(IDENTITY)),
    max_size=5,
)
DEEP = (b"[" * 100_000, b'{"a":' * 40_000, b'{"kind":' + b"[" * 100_000, b'{"share":1e999}')


def test_no_body_and_no_query_is_a_defect_and_what_is_stored_is_valid(tmp_path: Path) -> None:
    folder = tmp_path
    loop = asyncio.new_event_loop()
    stack = contextlib.AsyncExitStack()
    nodes = {"anonymous": "act"}
    found: Site = loop.run_until_complete(stack.enter_async_context(site(folder, nodes, {})))

    def ask(method: str, path: str, data: bytes | None = None, **query: str) -> int:
        answer = loop.run_until_complete(
            found.client.request(
                method,
                path,
                content=data,
                params=query,
                headers={"content-type": "application/json"},
            )
        )
        assert answer.status_code < 500, (answer.status_code, answer.text)
        if answer.status_code >= 400 and path.startswith("/api/"):
            assert "\n" not in answer.json()["error"]
        return int(answer.status_code)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(BODY)
    def bodies(body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        for path in ("/api/v1/checks/estimate", "/api/v1/checks"):
            ask("POST", path, data)

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(QUERY)
    def queries(query: dict[str, str]) -> None:
        for path in ("/", "/checks/new", "/api/v1/checks", "/api/v1/leases"):
            ask("GET", path, None, **query)

    try:
        for data in DEEP:
            assert ask("POST", "/api/v1/checks", data) in (400, 422)
        bodies()
        queries()
        stored = loop.run_until_complete(found.hub.store.list(1000, "", "", "", ""))
        names = {one.name for one in found.hub.checks.members()}
        for check in stored:
            again = msgspec.json.decode(msgspec.json.encode(check.request), type=CheckRequest)
            assert again == check.request
            assert set(check.request.nodes) <= names
            assert re.fullmatch(r"[a-zA-Z0-9._-]*", check.request.test.device)
            assert re.fullmatch(r"[0-9a-zA-Z., ]*", check.request.test.sizes)
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()
