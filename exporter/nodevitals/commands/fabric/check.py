"""`nodevitals fabric check`: test every pair of some nodes now, by ssh or on the hub."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    NodeVerdict,
    Requester,
    RunResult,
    Verdict,
)
from nodevitals.checks.requests.cost import cost
from nodevitals.checks.requests.devices import expanded, is_complete
from nodevitals.checks.requests.runs import pair_tests
from nodevitals.checks.ssh import remote
from nodevitals.checks.ssh.pairs import Tests
from nodevitals.checks.verdicts.findings import some
from nodevitals.checks.verdicts.verdict import judge, to_repeat
from nodevitals.commands.fabric.hub import (
    HUB_ONLY,
    STATUSES,
    Progress,
    add_request_options,
    add_test_options,
    checked_here,
    print_detail,
    refuse_given,
    request_of,
    run_on_hub,
    sizes_of,
)
from nodevitals.commands.fabric.options import (
    add_node_options,
    chosen_nodes,
    refuse_nodes_in_use,
)
from nodevitals.commands.terminal import CommandError, Subparsers
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS

EXAMPLES = """\
examples:
  nodevitals fabric check --nodes gpu-1,gpu-2,gpu-3 --device all --operation write_bw,read_lat
  nodevitals fabric check --pool train --config.file nodevitals.yaml --tool iperf3
  nodevitals fabric check --hub https://hub.example.org --pool train --device mlx5_0 --rounds 3"""
SSH_ONLY = ("config", "timeout", "no_governor")


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "check", help="test every pair of some nodes now, by ssh or on the hub", epilog=EXAMPLES
    )
    add_node_options(parser)
    add = parser.add_argument
    add("--tool", choices=TOOLS, help="tool on the nodes (default perftest)")
    operations = f"some of {', '.join(OPERATIONS)} (default write_bw, of iperf3 tcp)"
    add("--operation", metavar="NAMES", help=operations)
    devices = "mlx5_0, a list, a pattern mlx5_*, or all; not needed for iperf3"
    add("--device", metavar="DEVICES", help=devices)
    crossed = "test each device with every device of the other node (default: the same name)"
    add("--crossed", action="store_true", help=crossed)
    add("--port", type=int, metavar="N", help="port of the device (default 1)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--message-bytes", type=int, metavar="N", help="per message (default 1 MiB)")
    sweep = "sizes of a message: 8B,64KiB or 8B..8GiB x2 (default: one size)"
    size.add_argument("--sizes", metavar="SIZES", help=sweep)
    add("--iterations", type=int, metavar="N", help="per test (default 1000, of 1 MiB 200)")
    add_test_options(parser)
    expected = "of a healthy link, such as 380Gb/s (default: 0.8 of the rate of physical ports)"
    add("--expected", metavar="RATE", help=expected)
    latency = "of a healthy link, in microseconds (default: 5 on InfiniBand, 10 on RoCE)"
    add("--expected-latency", type=float, metavar="US", help=latency)
    share = "slow is below this share of --expected, or of the median, 0 to 1 (default 0.8)"
    add("--share", type=float, default=0.8, metavar="SHARE", help=share)
    timeout = "longest time of one test, in seconds (default: by its size)"
    add("--timeout", type=float, metavar="SECONDS", help=timeout)
    governors = "do not set the CPU frequency governors (default: performance while testing)"
    add("--no-governor", action="store_true", help=governors)
    add_request_options(parser)
    rounds = "a tournament of so many rounds (default: all pairs)"
    add("--rounds", type=int, metavar="N", help=rounds)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--csv", action="store_true", help="comma-separated, a line per test")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Test every pair; 1 where hardware failed or is slow, 2 where that is unknown."""
    if options.hub:
        refuse_given(options, SSH_ONLY, "is for tests by ssh: leave it out, or --hub")
        return run_on_hub(request_of(options, "matrix", _requested(options)), options)
    refuse_given(options, HUB_ONLY, "needs --hub")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = chosen_nodes(options)
    wanted = request_of(options, "matrix", _requested(options))
    request = checked_here(replace(wanted, nodes=tuple(chosen), where={}))
    if options.timeout is not None and options.timeout <= (request.test.seconds or 0):
        raise CommandError("--timeout: is not over the duration of a test: choose a longer one")
    lost = remote.unreachable(chosen)
    for node, why in lost.items():
        print(f"{node}: ssh: {why}", file=sys.stderr)
    nodes = tuple(node for node in chosen if node not in lost)
    if len(nodes) < 2:
        raise CommandError("fewer than two nodes can be reached: try `ssh -o BatchMode=yes NODE`")
    refuse_nodes_in_use(list(nodes), options)
    check, results = _tested(_with_devices(replace(request, nodes=nodes)), options)
    verdict = _with_lost(judge(check, results), lost)
    ended = replace(check, phase="done", ended=time.time(), verdict=verdict, runs_done=len(results))
    print_detail(CheckDetail(check=ended, results=tuple(results)), options)
    return STATUSES[verdict.outcome]


def _with_lost(verdict: Verdict, lost: Mapping[str, str]) -> Verdict:
    """The verdict with the nodes that ssh cannot log in to, with the reasons."""
    if not lost:
        return verdict
    findings = tuple(
        NodeVerdict(subject=node, scope="node", reason="harness", message=f"ssh: {why}")
        for node, why in lost.items()
    )
    return replace(
        verdict,
        outcome="unknown" if verdict.outcome == "ok" else verdict.outcome,
        reason=verdict.reason or "harness",
        message=f"{verdict.message}; not tested: {some(list(lost))}",
        findings=(*verdict.findings, *findings),
    )


def _requested(options: argparse.Namespace) -> dict[str, object]:
    """The fields of a TestRequest."""
    return {
        "tool": options.tool,
        "operation": _operations(options.operation),
        "device": options.device,
        "crossed": options.crossed or None,
        "port": options.port,
        "sizes": sizes_of(options),
        "iterations": options.iterations,
        "seconds": options.seconds,
        "queue_pairs": options.queue_pairs,
        "gid_index": options.gid_index,
        "traffic_class": options.traffic_class,
    }


def _operations(text: str | None) -> str | None:
    """`write`, `read` and `send` are bandwidths."""
    if text is None:
        return None
    words = (word.strip() for word in text.split(","))
    return ",".join(f"{word}_bw" if word in ("write", "read", "send") else word for word in words)


def _with_devices(request: CheckRequest) -> CheckRequest:
    """The request with the names of all devices."""
    if is_complete(request.test.device):
        return request
    known = remote.devices(request.nodes, str(request.test.tool)).values()
    try:
        device = expanded(request.test.device, known)
    except CheckError as error:
        raise CommandError(f"--device: {error.problems[0].message}") from None
    return checked_here(replace(request, test=replace(request.test, device=device)))


def _tested(
    request: CheckRequest, options: argparse.Namespace
) -> tuple[Check, Sequence[RunResult]]:
    """Test with the processors at full speed; their governors are restored in any case. What would
    be a finding is repeated.
    """
    check = Check(
        id="",
        request=request,
        requester=Requester(trigger="command", role="act"),
        cost=cost(request),
        created=time.time(),
        started=time.time(),
    )
    tests = Tests(request, remote.ports(request.nodes, pair_tests(request)), options.timeout)
    progress = Progress()
    results: list[RunResult] = []
    try:
        if not options.no_governor:
            remote.set_governors(request.nodes)
        results += tests.run_all(lambda done, total: progress("running", done, total))
        while repeats := to_repeat(check, results):
            for left, repeat in zip(range(len(repeats), 0, -1), repeats):
                progress("running", len(results), len(results) + left)
                results.append(tests.run(*repeat))
    finally:
        progress.end()
        if not options.no_governor:
            remote.restore_governors(request.nodes)
    return check, results
