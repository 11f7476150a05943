"""`nodevitals fabric check`: test every pair of some nodes now, by ssh."""

from __future__ import annotations

import argparse
import signal
import sys

from nodevitals.checks import remote, ssh_pairs
from nodevitals.checks.pair_report import Verdict, as_csv, judge, matrix
from nodevitals.commands.fabric.options import (
    add_node_options,
    chosen_nodes,
    expected_rate,
    refuse_nodes_in_use,
)
from nodevitals.commands.terminal import CommandError, Subparsers, print_json, print_table
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS, TestSettings

EXAMPLES = """\
examples:
  nodevitals fabric check --nodes gpu-1,gpu-2,gpu-3 --device mlx5_0
  nodevitals fabric check --pool train --config.file nodevitals.yaml --tool iperf3"""


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "check", help="test every pair of some nodes now, by ssh", epilog=EXAMPLES
    )
    add_node_options(parser)
    add = parser.add_argument
    add("--tool", choices=TOOLS, default="perftest", help="tool on the nodes (default perftest)")
    operations = f"one of {', '.join(OPERATIONS)} (default write_bw)"
    add("--operation", default="write_bw", metavar="NAME", help=operations)
    add("--device", default="", metavar="DEVICE", help="such as mlx5_0; not needed for iperf3")
    add("--port", type=int, default=1, metavar="N", help="port of the device (default 1)")
    add("--message-bytes", type=int, default=65536, metavar="N", help="per message (default 65536)")
    add("--iterations", type=int, default=1000, metavar="N", help="per test (default 1000)")
    add("--expected", metavar="RATE", help="such as 380Gb/s (default: the median of the nodes)")
    share = "slow is below this share of --expected, 0 to 1 (default 0.8)"
    add("--share", type=float, default=0.8, metavar="SHARE", help=share)
    timeout = "longest time of a pair, in seconds (default 20)"
    add("--timeout", type=float, default=20.0, metavar="SECONDS", help=timeout)
    governors = "do not set the CPU frequency governors (default: performance while testing)"
    add("--no-governor", action="store_true", help=governors)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--csv", action="store_true", help="comma-separated, a line per pair")
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


def _measured(nodes: list[str], test: TestSettings, governors: bool) -> list[ssh_pairs.Pair]:
    """Test with the processors at full speed, and restore their governors whatever happens."""
    gids = remote.gid_indexes(nodes, test) if test.tool == "perftest" else dict.fromkeys(nodes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if governors:
            remote.set_governors(nodes)
        return ssh_pairs.run(nodes, test, gids, _progress)
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
    results: list[ssh_pairs.Pair],
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
