"""A hub with an invented check of each kind and outcome, for a browser: every page it has.

In: an empty folder. Out: the address of the hub, and the paths of its pages by name.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckRequest,
    Requester,
    RunResult,
    Trigger,
    Verdict,
)
from nodevitals.checks.requests import cost, runs
from nodevitals.checks.requests.parameters import resolve
from nodevitals.probes.fabric.measurement import argv
from nodevitals.probes.fabric.tools.report import LATENCY, Report, ResultRow, failed
from nodevitals_hub.checks import planning
from nodevitals_hub.leases.lease_book import LeaseWanted
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.web import pages
from nodevitals_hub.web.server import WebServer, bind
from testbed.hubpages import Site, site
from testbed.node import free_port

USUAL = 50e9
LATENCY_SECONDS = 2e-6
START = 1_767_225_600.0
TOKEN = "a-token-of-the-gallery"
LONG = "row-12.rack-07.very-long-name-of-a-cluster-in-the-north-east.gpu-node-0001.example.org"
PERFTEST = {"tool": "perftest", "device": "mlx5_0"}
SWEEP = {**PERFTEST, "sizes": "64KiB..64MiB x4"}
NOTE = "after the change of switch leaf-b-07; see the ticket with the list of optics"
BASIS = "8 ports of 100 Gb/s per node, 90 %"
SETTINGS: dict[str, Any] = {
    "cluster": "atlas-with-a-longer-name",
    "presets": {"links": {"kind": "matrix", "test": {"tool": "iperf3", "sizes": "128KiB"}}},
    "schedules": {
        "nightly": {
            "check": {"kind": "matrix", "where": {"pool": "a"}, "preset": "links", "rounds": 4},
            "every": 86400.0,
            "window": "01:00-05:00",
            "node_hours": 40,
        },
        "weekly-collective": {"check": {"kind": "node", "where": {"pool": "a"}}, "every": 604800.0},
    },
}


def names(count: int) -> list[str]:
    """Names of nodes."""
    return [f"gpu-{number}" for number in range(1, count + 1)]


def _rate(nodes: Sequence[str], slow: dict[str, float]) -> float:
    share = min((slow.get(name, 1.0) for name in (*nodes, "-".join(nodes))), default=1.0)
    # A spread that is the same at every start.
    return USUAL * share * (1 - 0.002 * (sum(map(ord, "".join(nodes))) % 20))


def _report(kind: str, operation: str, size: int, rate: float) -> Report:
    latency = operation in LATENCY
    row = ResultRow(
        operation=operation,
        message_bytes=size,
        iterations=1000,
        bandwidth_bytes_per_second=None if latency else rate,
        bus_bandwidth_bytes_per_second=rate if kind == "collective" else None,
        latency_seconds={"median": LATENCY_SECONDS * USUAL / rate} if latency else None,
    )
    return Report(outcome="ok", rows=(row,))


def _reports(request: CheckRequest, nodes: Sequence[str], slow: dict[str, float]) -> list[Report]:
    """One per operation, device and size; `gpu-7 mlx5_3` is slow on that device only."""
    found = []
    for series in runs.series_of(request.test) if request.kind != "node" else ():
        own = min(slow.get(f"{name} {series.device}", 1.0) for name in nodes)
        for size in series.sizes:
            rate = own * _rate(nodes, slow) * (size / series.sizes[-1]) ** 0.1
            found.append(_report(request.kind, series.operation, size, rate))
    return found or [Report(outcome="ok")]


def _commands(request: CheckRequest, nodes: Sequence[str]) -> tuple[str, ...]:
    """What agents report for each size of a pair."""
    if request.kind not in ("pair", "matrix"):
        return ()
    ends = ((nodes[-1], None), (nodes[0], "192.0.2.7"))
    return tuple(
        runs.by_node((node, shlex.join(argv(test, None, 18515, peer))) for node, peer in ends)
        for test in runs.pair_tests(request)
    )


def _results(request: CheckRequest, slow: dict[str, float], broken: dict[str, Any]) -> Any:
    for run in planning.plan(request):
        why = next((broken[name] for name in run.nodes if name in broken), None)
        if isinstance(why, str):
            yield RunResult(number=run.number, nodes=run.nodes, skipped=why)
            continue
        reports = _reports(request, run.nodes, slow)
        if why is not None:
            reports = [why]
        yield RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=tuple(reports),
            started=START + 60 * run.number,
            seconds=4.2,
            commands=_commands(request, run.nodes),
            outputs=("#bytes  #iterations  BW average[Gb/sec]\n65536   1000         391.2\n" * 3,),
            versions={"perftest": "6.23", "nodevitals": "1.0.0"},
        )


def made(number: int, fields: dict[str, Any], **state: Any) -> tuple[Check, list[RunResult]]:
    """A check, ended unless `phase` says otherwise, with results and the verdict on them."""
    request = resolve(msgspec.convert(fields, CheckRequest), planning.presets_of(_hub_settings()))
    slow, broken = state.pop("slow", {}), state.pop("broken", {})
    trigger: Trigger = state.pop("trigger", "page")
    results = list(_results(request, slow, broken))
    check = Check(
        id=f"20260101-{number:06}-abcdef",
        request=request,
        requester=Requester(trigger=trigger, name="alice"),
        cost=cost.cost(request, 32),
        created=START + number,
        started=START + number + 1,
        ended=START + number + 95,
        phase="done",
        runs_done=len(results),
        baseline=state.pop("baseline", None),
        baseline_ok=state.pop("baseline_ok", True),
        bus=state.pop("bus", None),
    )
    check = planning.judged(check, results)
    if "phase" in state and state["phase"] != "canceled":
        open_ = {"ended": None, "verdict": None, "figure": None}
        check = msgspec.structs.replace(check, **open_, runs_done=len(results) // 3)
        results = results[: len(results) // 3]
    return msgspec.structs.replace(check, **state), results


def _hub_settings() -> Any:
    return msgspec.convert({"state_directory": "/", "presets": SETTINGS["presets"]}, HubSettings)


def _matrix(count: int, **test: Any) -> dict[str, Any]:
    rounds = {"rounds": 8} if count > 64 else {}
    return {"kind": "matrix", "nodes": names(count), "test": {**PERFTEST, **test}, **rounds}


def checks() -> dict[str, tuple[Check, list[RunResult]]]:
    """Checks by name: each kind, outcome, reason and phase."""
    pair = {"kind": "pair", "nodes": ["gpu-1", "gpu-2"], "test": SWEEP}
    nccl = {
        "kind": "collective",
        "nodes": names(8),
        "test": {"tool": "nccl", "sizes": "8B..1GiB x8"},
    }
    nodes = {"kind": "node", "nodes": names(8)}
    no_tool = failed("tool_missing", "ib_write_bw: no such file or directory on gpu-2; install it")
    down = failed("port_down", "mlx5_0 port 1: state is DOWN")
    canceled = Verdict(outcome="unknown", message="canceled by alice")
    rows: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "matrix-ok": (_matrix(8), {"baseline": USUAL}),
        "matrix-bad": ({**_matrix(8), "note": NOTE}, {"slow": {"gpu-7": 0.41}}),
        "matrix-link": (_matrix(16), {"slow": {"gpu-3-gpu-4": 0.3}, "trigger": "schedule"}),
        "matrix-64": (_matrix(64), {"slow": {"gpu-7": 0.62, "gpu-40": 0.1}, "trigger": "alert"}),
        "matrix-200": (_matrix(200), {"slow": {"gpu-7": 0.41, "gpu-150": 0.7}}),
        "matrix-latency": (_matrix(8, operation="send_lat"), {"slow": {"gpu-2": 0.4}}),
        "matrix-rails": (
            _matrix(
                8, device=",".join(f"mlx5_{n}" for n in range(8)), operation="write_bw,read_lat"
            ),
            {"slow": {"gpu-7 mlx5_3": 0.5, "gpu-2": 0.3}},
        ),
        "matrix-noise": (
            _matrix(8),
            {"slow": {f"gpu-{a}-gpu-{a + b}": 0.5 for a in range(1, 7) for b in (1, 2)}},
        ),
        "matrix-long": (
            {**_matrix(2), "nodes": [LONG, LONG.replace("0001", "0002"), *names(4)]},
            {"slow": {LONG: 0.5}, "trigger": "resource"},
        ),
        "pair-ok": (pair, {"baseline": USUAL}),
        "pair-bad": (
            {**pair, "expected_bytes_per_second": USUAL},
            {"slow": {"gpu-1": 0.4}, "trigger": "rest"},
        ),
        "pair-harness": (pair, {"broken": {"gpu-2": no_tool}}),
        "pair-hardware": (pair, {"broken": {"gpu-2": down}}),
        "pair-workload": (pair, {"broken": {"gpu-2": "accelerator_in_use"}, "trigger": "job"}),
        "collective-ok": (nccl, {"baseline": USUAL}),
        "collective-unknown": (nccl, {}),
        "pair-unknown": (pair, {"baseline": USUAL, "baseline_ok": False}),
        "collective-bad": (nccl, {"baseline": 2 * USUAL, "trigger": "command"}),
        "collective-hardware": (
            {**nccl, "nodes": names(2), "test": {"tool": "nccl", "sizes": "32MiB..8GiB x2"}},
            {"bus": BusExpectation(bytes_per_second=90e9, basis=BASIS)},
        ),
        "collective-harness": (nccl, {"broken": {"gpu-1": no_tool}}),
        "node-ok": (nodes, {}),
        "node-bad": (nodes, {"broken": {"gpu-3": down}}),
        "canceled": ({**_matrix(8), "force": True}, {"phase": "canceled", "verdict": canceled}),
        "running": (_matrix(8), {"phase": "running"}),
        "queued": (_matrix(8), {"phase": "queued", "started": None}),
    }
    found = {}
    for number, (name, (fields, state)) in enumerate(rows.items()):
        found[name] = made(number, fields, **state)
    return found


async def fill(found: Site) -> dict[str, str]:
    """Store the checks, ask for leases. Returns the paths of all pages by name."""
    store = found.hub.store
    paths = {
        "list": "/",
        "list-none": "/?node=gpu-99",
        "kinds": "/checks/new",
        **{
            f"new-{one}": f"/checks/new?kind={one}"
            for one in ("pair", "matrix", "collective", "node")
        },
        "leases": "/leases",
        "schedules": "/schedules",
        "error-404": "/checks/20260101-999999-abcdef",
        "login": "/login",
    }
    for name, (check, results) in checks().items():
        paths[name] = f"/checks/{check.id}"
        await store.add(msgspec.structs.replace(check, phase="queued", verdict=None), "")
        if check.phase == "running":
            await store.update(check)
            for one in results:
                await store.record(check.id, one)
        elif check.phase != "queued":
            await store.finish(check, results)
    paths["compared"] = f"{paths['matrix-bad']}?with={paths['matrix-ok'].rpartition('/')[2]}"
    paths["runs"] = f"{paths['matrix-64']}/runs"
    paths["run"] = f"{paths['pair-harness']}/runs/0"
    paths["run-rails"] = f"{paths['matrix-rails']}/runs/3"
    paths["again"] = f"/checks/new?copy={paths['matrix-64'].rpartition('/')[2]}"
    alice = Requester(trigger="page", name="alice")
    for nodes, note in ((names(3), NOTE), (names(8), "")):
        wanted = LeaseWanted(probes=("rdma", "network"), nodes=tuple(nodes), note=note)
        await found.parts.leases.ask(wanted, alice)
    return paths


@contextmanager
def gallery(folder: Path, anonymous: Any = "act") -> Iterator[tuple[str, dict[str, str]]]:
    """The hub, in a thread of its own: its address, and the paths of its pages by name."""
    port, started = free_port(), Future[Any]()
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "viewer", "role": "read", "token": TOKEN}]))
    tokens.chmod(0o600)

    async def serve() -> None:
        access = {"anonymous": anonymous, "tokens_file": str(tokens)}
        async with site(folder, access, {}, **SETTINGS) as found:
            listening = stack.enter_context(bind(f"127.0.0.1:{port}"))
            web = WebServer(found.hub, found.parts.handlers(), "", None, listening)
            paths, ended, loop = await fill(found), asyncio.Event(), asyncio.get_running_loop()
            parts = [found.parts.leases.run(), web.serve()]
            tasks = [asyncio.ensure_future(one) for one in parts]
            started.set_result((paths, lambda: loop.call_soon_threadsafe(ended.set)))
            await ended.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        # A page that loads itself again would be read while it loads.
        stack.callback(setattr, pages, "REFRESH_SECONDS", pages.REFRESH_SECONDS)
        pages.REFRESH_SECONDS = 3600
        serving = thread.submit(lambda: asyncio.run(serve()))
        wait([started, serving], return_when=FIRST_COMPLETED)
        if not started.done():
            serving.result()
        paths, end = started.result()
        try:
            yield f"http://127.0.0.1:{port}", paths
        finally:
            end()
            serving.result()
