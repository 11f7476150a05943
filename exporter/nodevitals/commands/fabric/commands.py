"""The arguments of `nodevitals fabric parse | plan | check | collective`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from nodevitals.probes.fabric.report import COLLECTIVES
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS

PARSED_TOOLS = ("hccl", "iperf3", "nccl", "perftest")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `fabric` and its actions to the command line."""
    parser = commands.add_parser("fabric", help="bandwidth tests: plan, parse")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    parse = actions.add_parser("parse", help="what a tool printed, as JSON; exit 1 if it failed")
    parse.add_argument("tool", choices=PARSED_TOOLS)
    parse.add_argument("file", metavar="FILE", help="- for standard input")
    parse.set_defaults(run=_action("parse"))
    plan = actions.add_parser("plan", help="who tests whom in a slot, by a configuration's lists")
    plan.add_argument("--config.file", dest="config", metavar="FILE", required=True)
    plan.add_argument("--slot", type=int, metavar="N", help="its number (default: the present one)")
    plan.add_argument("--node", metavar="NAME", help="only what this node does, for a day of slots")
    plan.add_argument("--json", action="store_true", help="one JSON array")
    plan.set_defaults(run=_action("plan"))
    _add_check(actions)
    _add_collective(actions)


def _add_check(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("check", help="test every pair of some nodes now, by ssh")
    add = parser.add_argument
    nodes = parser.add_mutually_exclusive_group(required=True)
    nodes.add_argument("--nodes", metavar="A,B,C")
    nodes.add_argument("--pool", metavar="NAME", help="the peers of --config.file of this pool")
    add("--config.file", dest="config", metavar="FILE", help="for --pool: where the peers stand")
    add("--tool", choices=TOOLS, default="perftest")
    add("--operation", default="write_bw", metavar="NAME", help=f"one of {', '.join(OPERATIONS)}")
    add("--device", default="", metavar="DEVICE", help="such as mlx5_0; for iperf3 none is needed")
    add("--port", type=int, default=1, metavar="N", help="of the device (default 1)")
    add("--message-bytes", type=int, default=65536, metavar="N")
    add("--iterations", type=int, default=1000, metavar="N")
    add("--expected", metavar="RATE", help="such as 380Gb/s; default: the median of the pairs")
    add("--share", type=float, default=0.8, help="below this share a pair is slow (default 0.8)")
    add("--timeout", type=float, default=20.0, metavar="SECONDS", help="of a pair (default 20)")
    add("--no-governor", action="store_true", help="leave the processors' governors as they are")
    add("--force", action="store_true", help="also where somebody has an accelerator open")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true")
    output.add_argument("--csv", action="store_true")
    parser.set_defaults(run=_action("check_pairs"))


def _add_collective(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("collective", help="a collective over some nodes now, by mpirun")
    add = parser.add_argument
    nodes = parser.add_mutually_exclusive_group(required=True)
    nodes.add_argument("--nodes", metavar="A,B,C")
    nodes.add_argument("--pool", metavar="NAME", help="the peers of --config.file of this pool")
    add("--config.file", dest="config", metavar="FILE", help="for --pool: where the peers stand")
    add("--backend", choices=("nccl", "hccl"), default="nccl")
    add("--operation", choices=COLLECTIVES, default="all_reduce")
    add("--devices-per-node", type=int, default=8, metavar="N", help="default 8")
    add("--message-bytes", type=int, default=1 << 30, metavar="N", help="default 1 GiB")
    add("--iterations", type=int, default=20, metavar="N")
    add("--timeout", type=float, default=300.0, metavar="SECONDS", help="default 300")
    add("--program", default="", metavar="PATH", help="the tool on the nodes; default: on PATH")
    add("--hca", default="", metavar="LIST", help="NCCL_IB_HCA, such as mlx5_0,mlx5_1")
    add("--interface", default="", metavar="NAME", help="for sockets, such as eth0")
    add("--expected", metavar="RATE", help="bus bandwidth, such as 370Gb/s; exit 1 below --share")
    add("--share", type=float, default=0.8, help="default 0.8")
    add("--force", action="store_true", help="also where somebody has an accelerator open")
    add("--push", metavar="URL", help="also tell a Pushgateway, such as http://pushgateway:9091")
    add("--render", choices=("volcano", "mpijob"), help="print a manifest, and run nothing")
    add("--apply", action="store_true", help="with --render: create it, as kubectl would")
    add("--image", metavar="IMAGE", help="for --render: with the tool, mpirun and sshd")
    add("--name", default="nodevitals-collective", help="for --render")
    add("--namespace", default="default", help="for --render")
    add("--json", action="store_true")
    parser.set_defaults(run=_action("run_collective"))


def _action(name: str) -> Callable[[argparse.Namespace], int]:
    """Import it when it is asked for: an agent that serves has no use for it."""

    def run(options: argparse.Namespace) -> int:
        from nodevitals.commands.fabric import actions

        status: int = getattr(actions, name)(options)
        return status

    return run
