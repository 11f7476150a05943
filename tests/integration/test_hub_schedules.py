"""Schedules of a real hub: one check per slot whatever happens to it, idle nodes only, budgets."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import time
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from nodevitals.checks.model import Check
from testbed.agentorders import AgentOrders
from testbed.hub import HubProcess
from testbed.node import ROOT, SOURCES, wait_until

TEST = {"tool": "perftest", "device": "mlx5_0"}
NODES = [f"gpu-{number}" for number in range(1, 6)]
LISTS = {"static": [{"targets": NODES, "labels": {"pool": "train"}}]}
MATRIX = {"kind": "matrix", "where": {"pool": "train"}, "test": TEST}
PAIR = {"kind": "pair", "nodes": NODES[:2], "test": TEST}
BUSY = 'nodevitals_accelerator_processes{vendor="nvidia",device="0"} 1\n'


def slots(hub: HubProcess) -> dict[str, int]:
    """The slots of the stored checks by their ids, oldest first, from their idempotency keys."""
    with closing(sqlite3.connect(hub.state / "hub.db")) as connection:
        rows = connection.execute("SELECT id, key FROM checks ORDER BY sequence").fetchall()
    return {identity: int(key.removeprefix("schedule-often-")) for identity, key in rows}


def is_kept(hub: HubProcess, name: str) -> bool:
    """Whether the hub's database has a schedule's record, which /metrics can show earlier."""
    with closing(sqlite3.connect(hub.state / "hub.db")) as connection:
        found = connection.execute("SELECT 1 FROM schedules WHERE name = ?", (name,)).fetchall()
    return bool(found)


def get(hub: HubProcess, path: str, **headers: str) -> str:
    """A body from the hub's web server, which may start after the rest."""

    def body() -> str | None:
        request = urllib.request.Request(f"http://127.0.0.1:{hub.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return str(response.read().decode())
        except OSError:
            return None

    return str(wait_until(body, 20, path))


def schedule(hub: HubProcess, name: str) -> dict[str, Any]:
    """A schedule as the REST API shows it."""
    found = json.loads(get(hub, "/api/v1/schedules"))
    return next(one for one in found if one["name"] == name)


def of(hub: HubProcess, name: str) -> list[Check]:
    """The checks of a schedule, the newest first."""
    wanted = ("schedule", name)
    return [one for one in hub.list() if (one.requester.trigger, one.requester.name) == wanted]


def has_checks(hub: HubProcess, count: int) -> bool:
    """Whether the schedule `often` has started so many checks."""
    return len(of(hub, "often")) >= count


def test_kills_neither_double_nor_pile_up(tmp_path: Path) -> None:
    often = {"often": {"check": MATRIX, "every": "1s"}}
    with HubProcess(tmp_path, simulated=True, nodes=LISTS, schedules=often) as hub:
        hub.environment["RUN_SECONDS"] = "0.02"
        for count in (1, 2, 4, 5):
            wait_until(partial(has_checks, hub, count), 30)
            hub.kill()
            hub.start()
        before = len(of(hub, "often"))
        hub.kill()
        last = [*slots(hub).values()][-1]
        wait_until(lambda: time.time() >= last + 4)
        restarted = math.floor(time.time())
        hub.start()
        wait_until(lambda: len(of(hub, "often")) > before, 30)
        found = [*slots(hub).values()]
        assert len(set(found)) == len(found)
        # Nothing is made up for that was missed.
        assert not set(found) & set(range(last + 1, restarted))
        checks = of(hub, "often")
        slot_of = slots(hub)  # those of the checks, and of some that were stored since
        for check in checks:
            assert check.created >= slot_of[check.id]
        first = checks[-1]
        verdict = hub.ended(first.id).check.verdict
        assert verdict is not None
        assert verdict.outcome == "ok"


def test_a_restart_within_a_slot_starts_nothing(tmp_path: Path) -> None:
    daily = {"daily": {"check": MATRIX, "every": "365d"}}
    with HubProcess(tmp_path, simulated=True, nodes=LISTS, schedules=daily) as hub:
        wait_until(lambda: of(hub, "daily"), 30)
        first = of(hub, "daily")[0]
        hub.kill()
        hub.start()
        hub.ended(first.id)
        year = 365 * 86400
        wait_until(lambda: schedule(hub, "daily")["next_start"] > time.time() + 1, 20)
        shown = wait_until(lambda: _with_success(schedule(hub, "daily")), 20)
        assert shown["next_start"] == (math.floor(time.time() / year) + 1) * year
        assert (shown["reason"], shown["last"]["id"]) == ("", first.id)
        assert shown["last"]["outcome"] == "ok"
        assert [one.id for one in of(hub, "daily")] == [first.id]
        metrics = get(hub, "/metrics")
        for name in ("last_success", "next"):
            line = f'nodevitals_check_schedule_{name}_timestamp_seconds{{schedule="daily"}}'
            assert line in metrics
        assert f'href="/checks/{first.id}"' in get(hub, "/schedules")
        assert "定时检测" in get(hub, "/schedules", **{"Accept-Language": "zh"})


def metric(hub: HubProcess, name: str) -> float | None:
    """The value of a schedule's only sample of a family."""
    lines = get(hub, "/metrics").splitlines()
    found = [line for line in lines if line.startswith(f"nodevitals_check_schedule_{name}{{")]
    return float(found[0].split()[-1]) if found else None


def test_what_stale_is_counted_from_outlasts_restarts_and_the_removal_of_checks(
    tmp_path: Path,
) -> None:
    daily = {"daily": {"check": MATRIX, "every": "365d", "window": "00:00-23:59"}}
    with HubProcess(tmp_path, simulated=True, nodes=LISTS, schedules=daily) as hub:
        hub.environment["RUN_SECONDS"] = "0.01"
        names = ("enabled_timestamp_seconds", "last_success_timestamp_seconds")
        enabled = wait_until(lambda: metric(hub, names[0]))
        wait_until(lambda: is_kept(hub, "daily"))
        hub.kill()
        with closing(sqlite3.connect(hub.state / "hub.db")) as connection, connection:
            # Limits remove checks, the newest of a rare schedule as well.
            connection.execute("DELETE FROM checks")
            record = {"every": 365 * 86400, "since": enabled - 500, "last_success": enabled - 99}
            text = (json.dumps(record).encode(),)
            assert connection.execute("UPDATE schedules SET record = ?", text).rowcount == 1
        hub.environment["HELD"] = ",".join(NODES)
        hub.start()
        wait_until(lambda: metric(hub, names[0]) is not None)
        assert [metric(hub, one) for one in names] == [enabled - 500, enabled - 99]
        assert metric(hub, "longest_interval_seconds") == 365 * 86400


def _with_success(shown: dict[str, Any]) -> dict[str, Any] | None:
    return shown if shown["last_success"] is not None else None


def test_nodes_in_use_are_left_out_or_nothing_starts(tmp_path: Path) -> None:
    with AgentOrders(tmp_path, 7, seconds=0.05) as agents:
        busy = agents.names[0]
        agents.metrics[busy] = BUSY
        [targets] = agents.config["nodes"]["static"]
        first, rest = targets["targets"][:5], targets["targets"][5:]
        pool = {"targets": first, "labels": {"pool": "train"}}
        lists = {"nodes": {"static": [pool, {"targets": rest}]}}
        schedules = {
            "most": {"check": MATRIX},
            "few": {"check": {"kind": "matrix", "nodes": agents.names[:4], "test": TEST}},
            "pair": {"check": {"kind": "pair", "nodes": agents.names[5:], "test": TEST}},
            "none": {"check": {"kind": "matrix", "where": {"pool": "no"}, "test": TEST}},
        }
        with HubProcess(tmp_path, **{**agents.config, **lists}, schedules=schedules) as hub:
            wait_until(lambda: of(hub, "most") and of(hub, "pair"), 30)
            [check] = of(hub, "most")
            assert set(check.request.nodes) == set(agents.names[1:5])
            assert check.request.note == f"left out, in use: {busy}"
            assert check.request.where == MATRIX["where"]
            verdict = hub.ended(check.id).check.verdict
            assert verdict is not None
            assert verdict.outcome == "ok"
            wait_until(lambda: 'pool="train"' in get(hub, "/metrics"), 20)
            wait_until(lambda: schedule(hub, "few")["reason"], 20)
            text = f"3 of 4 nodes are idle, a matrix needs 4; in use: {busy}"
            assert schedule(hub, "few")["reason"] == text
            wait_until(lambda: "no node has" in schedule(hub, "none")["reason"], 20)
            assert not of(hub, "few")
            assert not of(hub, "none")
            assert schedule(hub, "most")["reason"] == ""


def test_budget_holds_over_a_kill(tmp_path: Path) -> None:
    with HubProcess(tmp_path, simulated=True, nodes=LISTS) as hub:
        cost = hub.call("estimate", request=PAIR)["cost"]
    # Enough for the first, and not for one more after it.
    hours = cost["node_seconds"] / 3600 * (1 + 1e-6)
    limited = {"limited": {"check": PAIR, "every": "1s", "node_hours": hours}}
    with HubProcess(tmp_path, simulated=True, nodes=LISTS, schedules=limited) as hub:
        for _ in range(2):
            wait_until(lambda: "(node_hours)" in schedule(hub, "limited")["reason"], 30)
            assert len(of(hub, "limited")) == 1
            assert schedule(hub, "limited")["spent_node_hours"] > 0
            hub.kill()
            hub.start()


def test_a_schedule_waits_for_the_nodes_and_for_its_own_check(tmp_path: Path) -> None:
    often = {"often": {"check": PAIR, "every": "1s"}}
    with HubProcess(tmp_path, simulated=True, nodes=LISTS) as hub:
        hub.environment["RUN_SECONDS"] = "60"
        hub.kill()
        hub.start()
        other = hub.submit(kind="pair", nodes=NODES[1:3], test=TEST)
        text = hub.config.read_text()
        hub.config.write_text(text + json.dumps({"schedules": often})[1:-1] + "\n")
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)
        has = f"check {other.id} has gpu-2 and has not ended"
        wait_until(lambda: _reasons(hub) == [has], 20)
        assert not of(hub, "often")
        hub.cancel(other.id)
        wait_until(lambda: of(hub, "often"), 20)
        [own] = of(hub, "often")
        wait_until(lambda: _reasons(hub) == [f"its check {own.id} has not ended"], 20)
        hub.config.write_text(text)
        hub.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not _reasons(hub), 20)
        assert len(of(hub, "often")) == 1


def _reasons(hub: HubProcess) -> list[str]:
    return [one["reason"] for one in json.loads(get(hub, "/api/v1/schedules"))]


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    wrong = {"often": {"check": {**MATRIX, "preset": "nope"}, "window": "25:00-26:00"}}
    hub = HubProcess(tmp_path, nodes=LISTS, schedules=wrong)
    found = {**os.environ, "PYTHONPATH": f"{SOURCES}:{ROOT / 'tests'}"}
    ended = subprocess.run(
        hub.argv(), env=found, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "schedules.often.window: '25:00-26:00' is not a time of the day" in ended.stderr
    assert "schedules.often.check: preset: no 'nope': choose" in ended.stderr
    assert "Traceback" not in ended.stderr
