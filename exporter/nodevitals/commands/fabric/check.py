"""`nodevitals fabric check`: test every pair of some nodes now, by ssh."""

from __future__ import annotations

import argparse
import signal
import sys

from nodevitals.commands.fabric import pairs, remote
from nodevitals.commands.fabric.options import (
    add_node_options,
    chosen_nodes,
    expected_rate,
    refuse_nodes_in_use,
)
from nodevitals.commands.fabric.verdicts import Verdict, as_csv, judge, matrix
from nodevitals.commands.terminal import CommandError, Subparsers, print_json, print_table
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS, TestSettings


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("check", help="test every pair of some nodes now, by ssh")
    add_node_options(parser)
    add = parser.add_argument
    add("--tool", choices=TOOLS, default="perftest")
    add("--operation", default="write_bw", metavar="NAME", help=f"one of {', '.join(OPERATIONS)}")
    add("--device", default="", metavar="DEVICE", help="such as mlx5_0; not needed for iperf3")
    add("--port", type=int, default=1, metavar="N", help="port of the device (default 1)")
    add("--message-bytes", type=int, default=65536, metavar="N", help="default 65536")
    add("--iterations", type=int, default=1000, metavar="N", help="default 1000")
    add("--expected", metavar="RATE", help="such as 380Gb/s; default: the median of the nodes")
    add("--share", type=float, default=0.8, help="slow is below this share (default 0.8)")
    add("--timeout", type=float, default=20.0, metavar="SECONDS", help="per pair (default 20)")
    add("--no-governor", action="store_true", help="do not change the CPU frequency governors")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true")
    output.add_argument("--csv", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Test every pair; 1 where there is a problem."""
    test = _test(options)
    expected = expected_rate(options.expected)
    if test.is_latency and expected is not None:
        raise CommandError("--expected is a rate: latencies are compared with each other")
    chosen = chosen_nodes(options)
    lost = remote.unreachable(chosen)
    for node, why in lost.items():
        print(f"{node}: ssh: {why}", file=sys.stderr)
    nodes = [node for node in chosen if node not in lost]
    if len(nodes) < 2:
        raise CommandError("fewer than two nodes can be reached: try `ssh -o BatchMode=yes NODE`")
    refuse_nodes_in_use(nodes, options)
    results = _measured(nodes, test, governors=not options.no_governor)
    verdicts = [Verdict(subject=node, problem=f"ssh: {why}") for node, why in lost.items()]
    verdicts += judge(results, test, expected, options.share)
    _print(results, verdicts, test, options)
    return int(bool(verdicts))


def _test(options: argparse.Namespace) -> TestSettings:
    operation = "tcp" if options.tool == "iperf3" else options.operation
    if operation in ("write", "read", "send"):
        operation += "_bw"
    test = TestSettings(
        tool=options.tool,
        operation=operation,
        device=options.device,
        ib_port=options.port,
        message_bytes=options.message_bytes,
        iterations=options.iterations,
        timeout=options.timeout,
    )
    problems = [f"--{problem.path}: {problem.message}" for problem in test.problems()]
    if test.tool == "perftest" and not test.device:
        problems.append("--device: which RDMA device, as in /sys/class/infiniband?")
    if problems:
        raise CommandError("\n".join(problems))
    return test


def _measured(nodes: list[str], test: TestSettings, governors: bool) -> list[pairs.Pair]:
    """Test with the processors at full speed, and restore their governors whatever happens."""
    gids = remote.gid_indexes(nodes, test) if test.tool == "perftest" else dict.fromkeys(nodes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if governors:
            remote.set_governors(nodes)
        return pairs.run(nodes, test, gids, _progress)
    finally:
        if governors:
            remote.restore_governors(nodes)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        filled = 40 * done // total
        bar = "#" * filled + "." * (40 - filled)
        end = "\n" if done == total else ""
        print(f"\r[{bar}] {done}/{total} pairs", end=end, file=sys.stderr, flush=True)


def _print(
    results: list[pairs.Pair],
    verdicts: list[Verdict],
    test: TestSettings,
    options: argparse.Namespace,
) -> None:
    if options.json:
        print_json({"pairs": results, "verdicts": verdicts})
    elif options.csv:
        print(as_csv(results), end="")
    else:
        head, *rows = matrix(results, test)
        print_table(head, rows)
        print()
        print_table(("WHAT", "PROBLEM"), [(one.subject, one.problem) for one in verdicts])
        if not verdicts:
            print(f"all {len(results)} pairs are well")
