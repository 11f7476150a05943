"""Kills a hub at random moments while checks run, and looks for what was lost or done twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from testbed.agentorders import AgentOrders
from testbed.hub import HubProcess
from testbed.node import wait_until

TEST = {"tool": "perftest", "device": "mlx5_0"}
LEASE_SECONDS = 4.0


class KillOutcome(NamedTuple):
    """What came of it."""

    problems: list[str]
    submitted: int
    ended: int
    executed: int
    lost: int
    """Runs that were skipped."""


def kill_at_random_moments(folder: Path, kills: int, seed: int) -> KillOutcome:
    """Submit a check per kill, each with a key, again after each kill if it was not answered."""
    moments = random.Random(seed)
    with (
        AgentOrders(folder, 6, seconds=0.15, lease=LEASE_SECONDS) as agents,
        HubProcess(folder, **agents.config) as hub,
    ):
        for number in range(kills):
            nodes = moments.sample(agents.names, moments.choice((2, 2, 4)))
            kind = "pair" if len(nodes) == 2 else "matrix"
            submitted = False
            while not submitted:
                submitted = _submit(hub, f"key-{number}", kind, nodes)
                if not submitted:
                    hub.start()
                    continue
                # During start and execution alike: a hub takes half a second to start.
                time.sleep(moments.uniform(0.0, 0.4))
                hub.kill()
                hub.start(wait=moments.random() < 0.7)
                if moments.random() < 0.3:
                    time.sleep(moments.uniform(0.0, 0.8))
                    hub.kill()
                    hub.start()
            wait_until(hub._is_up, 30, "the hub")
        wait_until(lambda: all(one.ended for one in hub.list()), 120, "the end of all checks")
        wait_until(lambda: not agents.active(), 30, "the end of all orders")
        return _outcome(hub, agents, kills)


def _submit(hub: HubProcess, key: str, kind: str, nodes: list[str]) -> bool:
    try:
        hub.submit(key, kind=kind, nodes=nodes, test=TEST)
    except OSError:
        return False
    return True


def _outcome(hub: HubProcess, agents: AgentOrders, kills: int) -> KillOutcome:
    checks = hub.list(limit=1000)
    problems = [f"{one.id}: {one.phase}" for one in checks if one.verdict is None]
    problems += [f"{name} ran {n} times" for name, n in agents.executions.items() if n > 1]
    lost = 0
    for check in checks:
        results = hub.detail(check.id).results
        numbers = Counter(one.number for one in results)
        if sorted(numbers) != list(range(check.cost.runs)) or max(numbers.values()) > 1:
            problems.append(f"{check.id}: results {sorted(numbers.elements())}")
        skipped = [one for one in results if one.skipped]
        lost += len(skipped)
        outcome = check.verdict and check.verdict.outcome
        if outcome != ("unknown" if len(skipped) else "ok"):
            problems.append(f"{check.id}: {outcome} with {len(skipped)} runs skipped")
    # Nothing is reserved: a check of all nodes starts and ends.
    last = hub.ended(hub.submit(kind="matrix", nodes=agents.names, test=TEST).id).check
    if last.verdict is None or last.verdict.outcome != "ok":
        problems.append(f"the last: {last.verdict}")
    executed = sum(agents.executions.values())
    return KillOutcome(problems, kills, len(checks), executed, lost)
