"""What the rules cost: CPU of a real Prometheus with and without them, side by side, and a storm.

A fleet of NODES nodes (100; each exposes what a real agent with eight GPUs, two RDMA ports, mounts
and fabric tests exposes) is scraped every 15 s, after a past of one hour of what rules read over
minutes or more. Shares of a core are given for 1,000 nodes. COMPARE=<revision> adds the rules of
another revision. In the last part, 1,000 GPUs of all nodes are lost at once, at most eight of each:
STORM=no leaves it out, and STORM=only leaves out all others, which makes more nodes possible.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.measure import table
from testbed import agentpage
from testbed.node import ROOT, wait_until
from testbed.replicas import STEP_SECONDS, Replicas
from testbed.rulecost import Rule, RulesServer, Spent, families_over_time, spend

SCALED_TO = 1000
PAST_SECONDS = 3500
SETTLING_SECONDS = 70
SECONDS = 120
STORM_SECONDS = 90
STORM_FAULTS, GPUS = 1000, 8
DEAREST = 12
WITHOUT, WITH = "without", "shipped"
RECORDED = '{__name__=~"nodevitals:.+|ALERTS.*"}'


def main(folder: Path) -> None:
    """Print the tables."""
    nodes, ports = int(os.environ.get("NODES", "100")), int(os.environ.get("PORTS", "2"))
    trees: dict[str, Path | None] = {WITHOUT: None, WITH: ROOT / "rules"}
    if compare := os.environ.get("COMPARE"):
        trees[compare] = checked_out(folder, compare)
    parts = os.environ.get("STORM", "")
    if parts == "only":
        trees = {WITH: ROOT / "rules"}
    page = agentpage.read(folder, ports)
    past_of = set().union(*(families_over_time(one) for one in trees.values() if one))
    with ExitStack() as stack:
        fleet = stack.enter_context(
            Replicas(page, nodes, 0 if parts == "only" else PAST_SECONDS, past_of)
        )
        servers = [stack.enter_context(RulesServer(folder, name, fleet)) for name in trees]
        stormed = servers[list(trees).index(WITH)]
        for server in servers:
            wait_until(lambda one=server: fleet.is_present(one.reader), 400, "the past")  # type: ignore[misc]
        # One complete scrape of the present, then the first evaluations of every group.
        time.sleep(2 * STEP_SECONDS)
        for server in servers:
            if rules := trees[server.reader]:
                server.load(rules)
        time.sleep(SETTLING_SECONDS)
        print(f"{nodes} nodes of {fleet.series} series; shares of a core for {SCALED_TO} nodes.\n")
        up = stormed.count('up{job="nodevitals", instance=~"node-.+"} == 1')
        assert up == nodes, f"{up} nodes of {nodes} were scraped: the machine is too busy"
        faults = stormed.ask("query", query="count by (fault) (nodevitals:fault)")["result"]
        assert not faults, f"faults on nodes that are well: {faults}"
        if parts != "only":
            report(servers, spend(servers, SECONDS), SCALED_TO / nodes)
        if parts != "no":
            storm(fleet, stormed)


def checked_out(folder: Path, revision: str) -> Path:
    """Return a folder with the rules of a revision of this repository."""
    argv = ["git", "-C", str(ROOT), "archive", revision, "rules"]
    archive = subprocess.run(argv, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder / "revision", filter="data")
    return folder / "revision/rules"


def report(servers: list[RulesServer], spent: dict[str, Spent], scale: float) -> None:
    """Print the cost of each set of rules, of the groups and of the dearest rules."""
    base, rows = spent[WITHOUT], []
    series = {one.reader: one.count('{__name__=~".+"}') for one in servers}
    memory = {one.reader: one.memory_bytes() for one in servers}
    for server in servers:
        name, one = server.reader, spent[server.reader]
        share = (one.cpu / one.wall - base.cpu / base.wall) * scale
        quiet = sum(map(one.quiet, one.evaluations)) * scale
        typical = sum(map(one.typical, one.evaluations)) * scale
        rows.append(
            [
                *(name, f"{one.cpu / one.wall * scale:.3f}", f"{share:.3f}"),
                *(f"{quiet:.3f}", f"{typical:.3f}"),
                f"{server.count(RECORDED) * scale:.0f}",
                f"{(series[name] - series[WITHOUT]) * scale:.0f}",
                f"{(memory[name] - memory[WITHOUT]) * scale / 2**20:.0f} MiB",
                f"{missed(server):.0f}",
            ]
        )
    head = ["rules", "CPU", "more than without", "evaluations, shortest", "median"]
    table([*head, "series recorded", "series more", "memory more", "missed"], rows)
    for name, one in spent.items():
        if one.evaluations:
            print(f"Rules: {name}\n")
            print_groups(one, scale)


def print_groups(spent: Spent, scale: float) -> None:
    """Print the groups and the dearest rules, by the shortest evaluation of each rule."""
    groups: dict[str, list[Rule]] = {}
    for rule in spent.evaluations:
        groups.setdefault(rule.group, []).append(rule)
    costs = {group: sum(map(spent.quiet, rules)) * scale for group, rules in groups.items()}
    table(
        ["group", "interval", "of a core", "one evaluation"],
        [
            [
                *(group, f"{groups[group][0].interval:g} s", f"{cost:.4f}"),
                f"{cost * groups[group][0].interval * 1000:.0f} ms",
            ]
            for group, cost in sorted(costs.items(), key=lambda one: -one[1])
        ],
    )
    dearest = sorted(spent.evaluations, key=spent.quiet, reverse=True)[:DEAREST]
    table(
        ["rule", "group", "of a core", "median"],
        [
            [
                *(rule.title, rule.group),
                *(f"{share(rule) * scale:.4f}" for share in (spent.quiet, spent.typical)),
            ]
            for rule in dearest
        ],
    )


def missed(server: RulesServer) -> float:
    """Return the number of evaluations that were left out."""
    return sum(server.own("prometheus_rule_group_iterations_missed_total").values())


def storm(fleet: Replicas, server: RulesServer) -> None:
    """Lose many GPUs at once; print the time of the groups, not scaled, and what was missed."""
    before = missed(server)
    each = min(GPUS, max(1, STORM_FAULTS // len(fleet.nodes)))
    for node in fleet.nodes:
        for device in range(each):
            node.change("nodevitals_accelerator_up", f'device="{device}"', 0)
    # The alerts wait for two minutes.
    time.sleep(STORM_SECONDS)
    spent = spend([server], STORM_SECONDS)[server.reader]
    alerts = server.count('ALERTS{alertstate="firing"}')
    print(
        f"Storm: {each} GPUs of each of {len(fleet.nodes)} nodes are lost at once. {alerts} alerts "
        f"fire; {missed(server) - before:.0f} evaluations missed, {before:.0f} before; "
        f"{spent.cpu / spent.wall:.3f} of a core with ingestion; not scaled.\n"
    )
    print_groups(spent, 1)
