"""`nodevitals fabric check`: test every pair of some nodes now, by ssh or on the hub."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping
from typing import Literal

import msgspec

from nodevitals.checks.model import Outcome
from nodevitals.checks.requests.sizes import parse_sizes, spelled_size
from nodevitals.checks.ssh import remote
from nodevitals.checks.ssh.pairs import Pair
from nodevitals.checks.ssh.pairs import run as run_pairs
from nodevitals.checks.ssh.report import Verdict, as_csv, judge, matrix, to_repeat
from nodevitals.commands.fabric.hub import (
    HUB_ONLY,
    STATUSES,
    add_request_options,
    add_test_options,
    either,
    refuse_given,
    request_of,
    run_on_hub,
    sizes_of,
)
from nodevitals.commands.fabric.options import (
    add_node_options,
    chosen_nodes,
    expected_rate,
    refuse_nodes_in_use,
)
from nodevitals.commands.terminal import (
    CommandError,
    Subparsers,
    print_json,
    print_table,
)
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS, TestSettings

EXAMPLES = """\
examples:
  nodevitals fabric check --nodes gpu-1,gpu-2,gpu-3 --device mlx5_0
  nodevitals fabric check --pool train --config.file nodevitals.yaml --tool iperf3
  nodevitals fabric check --hub https://hub.example.org --pool train --device mlx5_0 --rounds 3"""
GRAVITY: tuple[Outcome, ...] = ("bad", "unknown", "ok")
SSH_ONLY = ("config", "timeout", "no_governor")


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "check", help="test every pair of some nodes now, by ssh or on the hub", epilog=EXAMPLES
    )
    add_node_options(parser)
    add = parser.add_argument
    add("--tool", choices=TOOLS, help="tool on the nodes (default perftest)")
    operations = f"one of {', '.join(OPERATIONS)} (default write_bw, of iperf3 tcp)"
    add("--operation", metavar="NAME", help=operations)
    add("--device", metavar="DEVICE", help="such as mlx5_0; not needed for iperf3")
    add("--port", type=int, metavar="N", help="port of the device (default 1)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--message-bytes", type=int, metavar="N", help="per message (default 65536)")
    sweep = "sizes of a message: 8B,64KiB or 8B..8GiB x2 (default: one size)"
    size.add_argument("--sizes", metavar="SIZES", help=sweep)
    add("--iterations", type=int, metavar="N", help="per test and size (default 1000)")
    add_test_options(parser)
    expected = "of a healthy link, such as 380Gb/s (default: 0.8 of the rate of physical ports)"
    add("--expected", metavar="RATE", help=expected)
    share = "slow is below this share of --expected, or of the median, 0 to 1 (default 0.8)"
    add("--share", type=float, default=0.8, metavar="SHARE", help=share)
    timeout = "longest time of a pair, in seconds (default 20)"
    add("--timeout", type=float, default=20.0, metavar="SECONDS", help=timeout)
    governors = "do not set the CPU frequency governors (default: performance while testing)"
    add("--no-governor", action="store_true", help=governors)
    add_request_options(parser)
    rounds = "on the hub: a tournament of so many rounds (default: all pairs)"
    add("--rounds", type=int, metavar="N", help=rounds)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--csv", action="store_true", help="comma-separated, a line per pair")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Test every pair; 1 where hardware failed or is slow, 2 where that is unknown."""
    if options.hub:
        refuse_given(options, SSH_ONLY, "is for tests by ssh: leave it out, or --hub")
        return run_on_hub(request_of(options, "matrix", _requested(options)), options)
    refuse_given(options, (*HUB_ONLY, "rounds"), "needs --hub")
    tests = _tests(options)
    expected = expected_rate(options.expected)
    if tests[0].is_latency and expected is not None:
        raise CommandError("--expected is a rate: latencies are compared with each other")
    chosen = chosen_nodes(options)
    lost = remote.unreachable(chosen)
    for node, why in lost.items():
        print(f"{node}: ssh: {why}", file=sys.stderr)
    nodes = [node for node in chosen if node not in lost]
    if len(nodes) < 2:
        raise CommandError("fewer than two nodes can be reached: try `ssh -o BatchMode=yes NODE`")
    refuse_nodes_in_use(nodes, options)
    results = _measured(nodes, tests, expected, governors=not options.no_governor)
    verdicts = [
        Verdict(subject=node, problem=f"ssh: {why}", reason="harness") for node, why in lost.items()
    ]
    outcomes: list[Outcome] = ["unknown" for _ in lost]
    for test, pairs in zip(tests, results):
        judged = judge(pairs, test, expected, options.share)
        # Smaller messages need no reference of their own where the largest have one.
        if (judged.outcome, judged.reason) == ("unknown", "threshold") and test is not tests[-1]:
            continue
        outcomes.append(judged.outcome)
        of = f" with {spelled_size(test.message_bytes)}" if len(tests) > 1 else ""
        for problem in judged.problems:
            verdicts.append(msgspec.structs.replace(problem, problem=problem.problem + of))
    outcome = min(outcomes, key=GRAVITY.index)
    _print(tests, results, verdicts, outcome, options)
    return STATUSES[outcome]


def _requested(options: argparse.Namespace) -> dict[str, object]:
    """The fields of the hub's TestRequest."""
    return {
        "tool": options.tool,
        "operation": _operation(options.operation),
        "device": options.device,
        "port": options.port,
        "sizes": sizes_of(options),
        "iterations": options.iterations,
        "seconds": options.seconds,
        "queue_pairs": options.queue_pairs,
        "gid_index": options.gid_index,
        "traffic_class": options.traffic_class,
    }


def _operation(name: str | None) -> str | None:
    return f"{name}_bw" if name in ("write", "read", "send") else name


def _tests(options: argparse.Namespace) -> list[TestSettings]:
    """One test per size."""
    tool: Literal["perftest", "iperf3"] = options.tool or "perftest"
    operation = "tcp" if tool == "iperf3" else _operation(options.operation) or "write_bw"
    try:
        sizes = parse_sizes(options.sizes) if options.sizes else ()
    except ValueError as error:
        raise CommandError(f"--sizes: {error}") from None
    if len(sizes) > 1 and options.csv:
        raise CommandError("--csv has one size: choose --json, or one of --sizes")
    tests = [
        TestSettings(
            tool=tool,
            operation=operation,
            device=options.device or "",
            ib_port=either(options.port, 1),
            message_bytes=size,
            iterations=either(options.iterations, 1000),
            queue_pairs=either(options.queue_pairs, 1),
            seconds=options.seconds,
            gid_index=options.gid_index,
            traffic_class=options.traffic_class,
            timeout=options.timeout,
        )
        for size in sizes or (either(options.message_bytes, 65536),)
    ]
    problems = [f"--{_flag(problem.path)}: {problem.message}" for problem in tests[0].problems()]
    if tool == "perftest" and not options.device:
        problems.append("--device: which RDMA device, as in /sys/class/infiniband?")
    if options.seconds is not None and options.iterations is not None:
        problems.append("--seconds: either these or --iterations")
    if problems:
        raise CommandError("\n".join(problems))
    try:  # the bounds of the numbers
        return msgspec.convert(msgspec.to_builtins(tests), list[TestSettings])
    except msgspec.ValidationError as error:
        raise CommandError(f"{error}") from None


def _flag(path: str) -> str:
    return path.replace("_", "-")


def _measured(
    nodes: list[str], tests: list[TestSettings], expected: float | None, governors: bool
) -> list[list[Pair]]:
    """Test with the processors at full speed; their governors are restored in any case. For each
    test, repetitions that a verdict needs come after all pairs.
    """
    gids: Mapping[str, int | None] = dict.fromkeys(nodes, tests[0].gid_index)
    if tests[0].tool == "perftest" and tests[0].gid_index is None:
        gids = remote.gid_indexes(nodes, tests[0])
    rates = remote.port_rates(nodes, tests[0])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if governors:
            remote.set_governors(nodes)
        results = []
        for test in tests:
            pairs = run_pairs(nodes, test, gids, rates, _progress)
            again = to_repeat(pairs, test, expected)
            if again:
                pairs += run_pairs(nodes, test, gids, rates, _progress, again)
            results.append(pairs)
        return results
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
    tests: list[TestSettings],
    results: list[list[Pair]],
    verdicts: list[Verdict],
    outcome: Outcome,
    options: argparse.Namespace,
) -> None:
    if options.json:
        pairs = [pair for pairs in results for pair in pairs]
        print_json({"pairs": pairs, "verdicts": verdicts, "outcome": outcome})
        return
    if options.csv:
        print(as_csv(results[0]), end="")
        return
    for test, pairs in zip(tests, results):
        if len(tests) > 1:
            print(f"messages of {spelled_size(test.message_bytes)}:")
        head, *rows = matrix(pairs, test)
        print_table(head, rows)
        print()
    print_table(("WHAT", "PROBLEM"), [(verdict.subject, verdict.problem) for verdict in verdicts])
    if not verdicts:
        print(f"all {len(results[0])} pairs are well")
