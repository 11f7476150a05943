"""What `nodevitals fabric parse | plan | check | collective` do. The agent needs nothing of it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import yaml

from nodevitals import probes
from nodevitals.commands.fabric import check, collective, remote
from nodevitals.commands.fabric.push import PushError, push
from nodevitals.commands.terminal import CommandError, print_table
from nodevitals.config import load as load_config
from nodevitals.document import DocumentError, parse_bit_rate
from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError
from nodevitals.probes.fabric.members import load, roster_of
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tools import PARSERS

DAY_SECONDS = 86400.0


def parse(options: argparse.Namespace) -> int:
    """Print what a tool's output says; 1 where it is no figure."""
    try:
        content = (
            sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        )
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}") from None
    report = PARSERS[options.tool](content.decode(errors="replace"))
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    return int(report.outcome != "ok")


def plan(options: argparse.Namespace) -> int:
    """Print a slot's meetings, or a day of one node's."""
    settings = _settings(options.config)
    try:
        members = load(settings, Host())
    except ProbeError as error:
        raise CommandError(f"{options.config}: {error.message}") from None
    roster = roster_of(members, settings.across_pairs)
    first = int(time.time() // settings.slot) if options.slot is None else options.slot
    if options.node is None:
        rows = [(first, meeting) for meeting in roster.meetings(first)]
    elif options.node in roster:
        slots = range(first, first + int(DAY_SECONDS // settings.slot))
        found = ((slot, roster.meeting(options.node, slot)) for slot in slots)
        rows = [(slot, meeting) for slot, meeting in found if meeting is not None]
    else:
        raise CommandError(f"{options.node} is not among the {len(roster)} peers")
    if options.json:
        records = [
            {"slot": slot, "begins": slot * settings.slot, **msgspec.structs.asdict(meeting)}
            for slot, meeting in rows
        ]
        print(json.dumps(records, indent=2))
        return 0
    print_table(
        ("SLOT", "BEGINS", "SOURCE", "TARGET"),
        [
            (slot, _local_time(slot * settings.slot), meeting.source, meeting.target)
            for slot, meeting in rows
        ],
    )
    return 0


def check_pairs(options: argparse.Namespace) -> int:
    """Test every pair now; 1 where something is wrong."""
    test = _test(options)
    expected = _expected(options.expected)
    if test.is_latency and expected is not None:
        raise CommandError("--expected is a rate: latencies are compared with each other")
    asked = _nodes(options)
    lost = remote.unreachable(asked)
    for node, why in lost.items():
        print(f"{node}: ssh: {why}", file=sys.stderr)
    nodes = [node for node in asked if node not in lost]
    if len(nodes) < 2:
        raise CommandError("fewer than two nodes can be reached: try `ssh -o BatchMode=yes NODE`")
    _refuse_in_use(nodes, options.force)
    pairs = _measured(nodes, test, governors=not options.no_governor)
    verdicts = [check.Verdict(subject=node, problem=f"ssh: {why}") for node, why in lost.items()]
    verdicts += check.judge(pairs, test, expected, options.share)
    if options.json:
        document = {"pairs": pairs, "verdicts": verdicts}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    elif options.csv:
        print(check.as_csv(pairs), end="")
    else:
        head, *rows = check.matrix(pairs, test)
        print_table(head, rows)
        print()
        print_table(("WHAT", "PROBLEM"), [(one.subject, one.problem) for one in verdicts])
        if not verdicts:
            print(f"all {len(pairs)} pairs are well")
    return int(bool(verdicts))


def run_collective(options: argparse.Namespace) -> int:
    """Run a collective now, or print its manifest; 1 where it failed or is slow."""
    nodes = _nodes(options)
    wanted = collective.Collective(
        backend=options.backend,
        operation=options.operation,
        nodes=tuple(nodes),
        devices_per_node=options.devices_per_node,
        message_bytes=options.message_bytes,
        iterations=options.iterations,
        timeout_seconds=options.timeout,
        program=options.program,
        hca=options.hca,
        interface=options.interface,
    )
    if options.render:
        if not options.image:
            raise CommandError("--render: which image has the tool, mpirun and sshd? --image IMAGE")
        kind, name, namespace = options.render, options.name, options.namespace
        text = collective.manifest(wanted, kind, options.image, name, namespace)
        print(text, end="")
        return _apply(text) if options.apply else 0
    expected = _expected(options.expected)
    lost = remote.unreachable(nodes)
    if lost:
        raise CommandError("\n".join(f"{node}: ssh: {why}" for node, why in lost.items()))
    _refuse_in_use(nodes, options.force)
    wanted = msgspec.structs.replace(wanted, gid_index=_common_gid_index(nodes, options.hca))
    report = collective.run(wanted)
    slow = False
    if options.push:
        try:
            push(options.push, wanted, report)
        except PushError as error:
            print(f"--push: {error}", file=sys.stderr)
    if report.outcome == "ok" and expected is not None:
        slow = (report.rows[0].bus_bandwidth_bytes_per_second or 0.0) < options.share * expected
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif report.outcome != "ok":
        print(f"{wanted.operation} over {wanted.ranks} ranks: {report.reason}: {report.message}")
    else:
        row = report.rows[0]
        bus = (row.bus_bandwidth_bytes_per_second or 0.0) / 1e9
        verdict = "SLOW" if slow else "ok" if expected else "nothing to compare with"
        head = ("OPERATION", "RANKS", "BYTES", "BUS GB/s", "VERDICT")
        print_table(
            head, [(wanted.operation, wanted.ranks, row.message_bytes, f"{bus:.2f}", verdict)]
        )
    return int(slow or report.outcome != "ok")


def _apply(text: str) -> int:
    """Create what a manifest describes, in the cluster of the kubeconfig or of this pod."""
    try:
        from kubernetes import client, config
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise CommandError("--apply: pip install 'nodevitals[kubernetes]'") from None
    document = yaml.safe_load(text)
    group, _, version = document["apiVersion"].partition("/")
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    try:
        config.load_config()  # type: ignore[no-untyped-call]
        client.CustomObjectsApi().create_namespaced_custom_object(
            group, version, namespace, f"{document['kind'].lower()}s", document, _request_timeout=30
        )
    except client.ApiException as error:
        raise CommandError(f"--apply: {namespace}/{name}: {error.status} {error.reason}") from None
    except (config.ConfigException, OSError, HTTPError) as error:
        raise CommandError(f"--apply: {' '.join(str(error).split())}") from None
    print(f"{document['kind']} {namespace}/{name} created", file=sys.stderr)
    return 0


def _common_gid_index(nodes: list[str], hca: str) -> int | None:
    """The GID index of the first HCA, by the rule of the tests, where it is the same everywhere."""
    device, _, port = hca.partition(",")[0].lstrip("=^").partition(":")
    if not device or hca.startswith("^"):
        return None
    test = TestSettings(
        tool="perftest", operation="write_bw", device=device, ib_port=int(port or "1")
    )
    found = set(remote.gid_indexes(nodes, test).values())
    return found.pop() if len(found) == 1 else None


def _refuse_in_use(nodes: list[str], force: bool) -> None:
    used = {} if force else remote.in_use(nodes)
    if used:
        lines = (f"{node} {why}; --force tests all the same" for node, why in used.items())
        raise CommandError("\n".join(lines))


def _measured(nodes: list[str], test: TestSettings, governors: bool) -> list[check.Pair]:
    """Test, with the processors at full speed, and leave them as they were whatever happens."""
    gids = remote.gid_indexes(nodes, test) if test.tool == "perftest" else dict.fromkeys(nodes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if governors:
            remote.set_governors(nodes)
        return check.run(nodes, test, gids, _progress)
    finally:
        if governors:
            remote.restore_governors(nodes)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        filled = 40 * done // total
        bar = "#" * filled + "." * (40 - filled)
        end = "\n" if done == total else ""
        print(f"\r[{bar}] {done}/{total} pairs", end=end, file=sys.stderr, flush=True)


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


def _expected(text: str | None) -> float | None:
    try:
        return None if text is None else parse_bit_rate(text)
    except ValueError as error:
        raise CommandError(f"--expected: {error}") from None


def _nodes(options: argparse.Namespace) -> list[str]:
    if options.nodes:
        names = [name.strip() for name in options.nodes.split(",") if name.strip()]
    else:
        if options.config is None:
            raise CommandError("--pool: which file has the peers? --config.file FILE")
        settings = msgspec.structs.replace(_settings(options.config), group_by="pool")
        try:
            members = load(settings, Host())
        except ProbeError as error:
            raise CommandError(f"{options.config}: {error.message}") from None
        names = [name for name, member in members.items() if member.group == options.pool]
    if len(set(names)) < 2:
        raise CommandError(f"a pair takes two nodes; there are: {', '.join(names) or 'none'}")
    for name in names:
        if name.startswith("-"):
            raise CommandError(f"{name!r} is no node")
    return list(dict.fromkeys(names))


def _settings(path: str) -> FabricSettings:
    try:
        settings: FabricSettings = load_config(path, probes.registered()).probes["fabric"]
    except DocumentError as error:
        raise CommandError("\n".join(f"{path}: {problem}" for problem in error.problems)) from None
    return settings


def _local_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(" ", "seconds")
