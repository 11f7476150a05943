"""`nodevitals fabric collective`: run a collective over some nodes now, or print a manifest of it.

The site's own launcher starts the ranks: mpirun over ssh, Volcano, or the MPI operator; or the hub
does all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.launchers import manifests
from nodevitals.checks.launchers.launcher import Launched, commands_in
from nodevitals.checks.launchers.mpirun import MpirunLauncher
from nodevitals.checks.model import CheckRequest, RunResult, Verdict
from nodevitals.checks.requests.collective import Collective, of_request, verify
from nodevitals.checks.ssh import remote
from nodevitals.checks.verdicts.verdict import verdict_of
from nodevitals.commands.fabric.hub import (
    HUB_ONLY,
    STATUSES,
    Progress,
    add_request_options,
    assignments,
    checked_here,
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
from nodevitals.commands.terminal import (
    CommandError,
    Subparsers,
    print_json,
    print_table,
)
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.report import COLLECTIVES, Report, ResultRow

EXAMPLES = """\
examples:
  nodevitals fabric collective --nodes gpu-1,gpu-2 --expected 370Gb/s
  nodevitals fabric collective --nodes gpu-1,gpu-2 --render volcano --image IMAGE > job.yaml
  nodevitals fabric collective --hub https://hub.example.org --pool train --sizes "8B..8GiB x2\""""
LOCAL_ONLY = (
    *("config", "timeout", "program", "push"),
    *("render", "apply", "image", "name", "namespace", "rdma_resource", "rdma_count"),
    *("networks", "host_network", "shared_memory", "queue"),
)


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "collective",
        help="run a collective over some nodes now, by mpirun or on the hub",
        epilog=EXAMPLES,
    )
    add_node_options(parser)
    add = parser.add_argument
    backend = "nccl (NVIDIA) or hccl (Ascend) (default nccl)"
    add("--backend", choices=("nccl", "hccl"), help=backend)
    operation = "the collective (default all_reduce)"
    add("--operation", choices=COLLECTIVES, help=operation)
    add("--devices-per-node", type=int, metavar="N", help="ranks per node (default 8)")
    process = "devices that one process drives, for nccl (default 1)"
    add("--devices-per-process", type=int, metavar="N", help=process)
    data = "float, half, bfloat16, ... for nccl, fp32, fp16, ... for hccl (default float, fp32)"
    add("--data-type", metavar="TYPE", help=data)
    operator = "sum, prod, min, max; avg for nccl (default sum)"
    add("--reduction", metavar="OPERATOR", help=operator)
    warm_up = "iterations before those that are timed (default 5)"
    add("--warm-up-iterations", type=int, metavar="N", help=warm_up)
    size = parser.add_mutually_exclusive_group()
    help_text = "bytes of a message (default 1 GiB)"
    size.add_argument("--message-bytes", type=int, metavar="N", help=help_text)
    sweep = "sizes of a message: 8B,64KiB or 8B..8GiB x2 (default: one size)"
    size.add_argument("--sizes", metavar="SIZES", help=sweep)
    add("--iterations", type=int, metavar="N", help="runs per size (default 20)")
    variable = "variable of the ranks, such as NCCL_ALGO=Ring; may be repeated (default: none)"
    add("--env", action="append", default=[], metavar="NAME=VALUE", help=variable)
    parameter = "MCA parameter of Open MPI; may be repeated (default: none)"
    add("--mca", action="append", default=[], metavar="NAME=VALUE", help=parameter)
    traffic_class = "traffic class of the packets (default: the library chooses)"
    add("--traffic-class", type=int, metavar="N", help=traffic_class)
    add("--gid-index", type=int, metavar="N", help="GID index of the ports (default: chosen)")
    pairs = "queue pairs per connection (default: the library chooses)"
    add("--queue-pairs", type=int, metavar="N", help=pairs)
    timeout = "longest time of the whole run, in seconds (default 300)"
    add("--timeout", type=float, default=300.0, metavar="SECONDS", help=timeout)
    add("--program", default="", metavar="PATH", help="the tool on the nodes (default: on PATH)")
    hca = "NCCL_IB_HCA, such as mlx5_0,mlx5_1 (default: NCCL chooses)"
    add("--hca", default="", metavar="LIST", help=hca)
    interface = "interface for sockets, such as eth0 (default: the library chooses)"
    add("--interface", default="", metavar="NAME", help=interface)
    expected = "bus bandwidth, such as 370Gb/s; without it the outcome is unknown (default: none)"
    add("--expected", metavar="RATE", help=expected)
    share = "share of --expected, 0 to 1 (default 0.8)"
    add("--share", type=float, default=0.8, metavar="SHARE", help=share)
    whole = "on the hub: do not search for the node or link at fault (default: search)"
    add("--no-isolate", action="store_true", help=whole)
    add("--push", metavar="URL", help="push the result to this Pushgateway (default: do not)")
    add("--json", action="store_true", help="one JSON object")
    add_request_options(parser)
    render = parser.add_argument_group("manifests")
    add = render.add_argument
    add(
        "--render",
        choices=("volcano", "mpijob"),
        help="print a manifest, run nothing (default: run)",
    )
    add("--apply", action="store_true", help="with --render: create it, as kubectl would")
    add("--image", metavar="IMAGE", help="for --render: an image with the tool, mpirun and sshd")
    name = "for --render: the name of the object (default nodevitals-collective)"
    add("--name", default="nodevitals-collective", help=name)
    namespace = "for --render: where to create it (default default)"
    add("--namespace", default="default", help=namespace)
    resource = "for --render: resource of the RDMA devices, such as rdma/hca (default: none)"
    add("--rdma-resource", default="", metavar="NAME", help=resource)
    count = "for --render: number of that resource per worker (default 1)"
    add("--rdma-count", type=int, default=1, metavar="N", help=count)
    networks = "for --render: networks of multus, NAMESPACE/NAME (default: none)"
    add("--networks", default="", metavar="LIST", help=networks)
    host = "for --render: run in the network of the nodes (default: do not)"
    add("--host-network", action="store_true", help=host)
    memory = "for --render: size of /dev/shm (default 16Gi)"
    add("--shared-memory", default="16Gi", metavar="SIZE", help=memory)
    queue = "for --render: queue of the job (default: that of the cluster)"
    add("--queue", default="", metavar="NAME", help=queue)
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Run the collective, or print its manifest; 1 where it is slow or a device failed,
    2 where that is unknown.
    """
    if options.hub:
        refuse_given(options, LOCAL_ONLY, "is for a run without a hub: leave it out, or --hub")
        return run_on_hub(request_of(options, "collective", _requested(options)), options)
    refuse_given(options, (*HUB_ONLY, "no_isolate"), "needs --hub")
    nodes = chosen_nodes(options, least=1)
    wanted_check = request_of(options, "collective", _requested(options))
    request = checked_here(replace(wanted_check, nodes=tuple(nodes), where={}))
    wanted = _collective(request, options)
    if options.render:
        return _render(wanted, options)
    lost = remote.unreachable(nodes)
    if lost:
        raise CommandError("\n".join(f"{node}: ssh: {why}" for node, why in lost.items()))
    refuse_nodes_in_use(nodes, options)
    if wanted.gid_index is None:
        wanted = replace(wanted, gid_index=_common_gid_index(nodes, options.hca))
    done = _launched(wanted, options.timeout)
    reports = done.reports
    # The rows of all sizes, up to the failed one.
    rows = tuple(row for report in reports for row in report.rows)
    report = replace(reports[-1], rows=rows)
    if options.push:
        _push(options.push, wanted, report)
    run_of_all = RunResult(number=0, nodes=wanted.nodes, reports=reports)
    verdict = verdict_of(request, 1, [run_of_all])
    if options.json:
        commands = commands_in(done.raw).splitlines()
        print_json({**msgspec.to_builtins(report), "verdict": verdict, "commands": commands})
    else:
        _print(wanted, report, verdict)
    return STATUSES[verdict.outcome]


def _requested(options: argparse.Namespace) -> dict[str, object]:
    """The fields of the hub's TestRequest."""
    own = {"NCCL_IB_HCA": options.hca, "NCCL_SOCKET_IFNAME": options.interface}
    if options.backend == "hccl":
        own = {"HCCL_SOCKET_IFNAME": options.interface}
    given = {name: value for name, value in own.items() if value}
    return {
        "tool": options.backend,
        "operation": options.operation,
        "sizes": sizes_of(options),
        "iterations": options.iterations,
        "devices_per_node": options.devices_per_node,
        "devices_per_process": options.devices_per_process,
        "data_type": options.data_type,
        "reduction": options.reduction,
        "warm_up_iterations": options.warm_up_iterations,
        "queue_pairs": options.queue_pairs,
        "gid_index": options.gid_index,
        "traffic_class": options.traffic_class,
        "environment": {**given, **(assignments("--env", options.env) or {})} or None,
        "mca": assignments("--mca", options.mca),
    }


def _push(url: str, wanted: Collective, report: Report) -> None:
    """Push the result; a failed push is no failure of the collective."""
    from nodevitals.commands.fabric.push import PushError, push  # imports prometheus_client

    try:
        push(url, wanted, report)
    except PushError as error:
        print(f"--push: {error}", file=sys.stderr)


def _launched(wanted: Collective, seconds: float) -> Launched:
    """Run the collective by mpirun."""
    progress, sizes = Progress(), len(wanted.sizes)
    name = f"command-{os.getpid()}"

    def show(reports: Sequence[Report]) -> None:
        progress("running", len(reports), sizes, "sizes")

    done = asyncio.run(MpirunLauncher().run(wanted, name, seconds, show))
    progress.end()
    return done


def _collective(request: CheckRequest, options: argparse.Namespace) -> Collective:
    try:
        wanted = of_request(request.test, request.nodes)
        wanted = replace(wanted, program=options.program, interface=options.interface)
        verify(wanted)
    except CheckError as error:
        raise CommandError(str(error)) from None
    return wanted


def _render(wanted: Collective, options: argparse.Namespace) -> int:
    if not options.image:
        raise CommandError("--render: which image has the tool, mpirun and sshd? --image IMAGE")
    settings = manifests.JobOptions(
        image=options.image,
        namespace=options.namespace,
        rdma_resource=options.rdma_resource,
        rdma_count=options.rdma_count,
        networks=options.networks,
        host_network=options.host_network,
        shared_memory=options.shared_memory,
        queue=options.queue,
    )
    arguments = (wanted, options.render, settings, options.name, options.timeout)
    print(manifests.manifest(*arguments), end="")
    if options.apply:
        try:
            from nodevitals.checks.launchers.kubernetes_api import apply  # imports lightkube

            created = asyncio.run(apply(manifests.document(*arguments)))
        except CheckError as error:
            raise CommandError(f"--apply: {error}") from None
        print(f"{created} created", file=sys.stderr)
    return 0


def _common_gid_index(nodes: list[str], hca: str) -> int | None:
    """The GID index of the first HCA, chosen as for pair tests; None where nodes differ."""
    device, _, port = hca.partition(",")[0].lstrip("=^").partition(":")
    if not device or hca.startswith("^"):
        return None
    test = TestSettings(
        tool="perftest", operation="write_bw", device=device, ib_port=int(port or "1")
    )
    indexes = {port.gid_index for port in remote.ports(nodes, [test]).values()}
    return indexes.pop() if len(indexes) == 1 else None


def _print(wanted: Collective, report: Report, verdict: Verdict) -> None:
    if report.outcome != "ok":
        print(f"{wanted.operation} over {wanted.ranks} ranks: {report.reason}: {report.message}")
        return
    word = "SLOW" if verdict.outcome == "bad" else verdict.outcome
    rows = [
        (wanted.operation, wanted.ranks, row.message_bytes, f"{_bus(row):.2f}", word)
        for row in report.rows
    ]
    print_table(("OPERATION", "RANKS", "BYTES", "BUS GB/s", "VERDICT"), rows)
    if verdict.outcome != "ok":
        print(f"{verdict.outcome}: {verdict.message}")


def _bus(row: ResultRow) -> float:
    return (row.bus_bandwidth_bytes_per_second or 0.0) / 1e9
