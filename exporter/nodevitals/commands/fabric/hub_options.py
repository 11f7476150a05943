"""The options of a check on the hub, and the request that they make. Raises CommandError."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Optional

import msgspec

from nodevitals.checks.model import CheckRequest
from nodevitals.commands.fabric.options import expected_rate
from nodevitals.commands.hub_client import add_hub_options
from nodevitals.commands.terminal import CommandError

HUB_ONLY = ("where", "preset", "limit", "note", "token_file", "ca_file")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """The options that only a hub has."""
    group = parser.add_argument_group("on the hub")
    add_hub_options(group)
    add = group.add_argument
    where = "nodes of the hub with this label; may be repeated (default: any)"
    add("--where", action="append", default=[], metavar="LABEL=VALUE", help=where)
    preset = "parameters that the hub has under this name (default: none)"
    add("--preset", default="", metavar="NAME", help=preset)
    limit = "longest time of the whole check, in seconds (default: by its cost)"
    add("--limit", type=float, metavar="SECONDS", help=limit)
    add("--note", default="", metavar="TEXT", help="why, for people (default: none)")


def add_test_options(parser: argparse.ArgumentParser) -> None:
    """What is measured, on a hub and without one."""
    add = parser.add_argument
    seconds = "seconds per size, in place of iterations (default: iterations)"
    add("--seconds", type=int, metavar="N", help=seconds)
    pairs = "queue pairs, or streams of iperf3 (default 1)"
    add("--queue-pairs", type=int, metavar="N", help=pairs)
    gid = "GID index of the ports (default: chosen on each node)"
    add("--gid-index", type=int, metavar="N", help=gid)
    add("--traffic-class", type=int, metavar="N", help="traffic class of the packets (default 0)")


def refuse_given(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise CommandError where one of these options was given."""
    parser: argparse.ArgumentParser = options.parser
    for name in names:
        if getattr(options, name) != parser.get_default(name):
            raise CommandError(f"--{name.replace('_', '-')} {why}")


def request_of(options: argparse.Namespace, kind: str, test: dict[str, Any]) -> CheckRequest:
    """The request of these options; `test` has the fields of a TestRequest, None where not given.
    Only what cannot be a request is refused: the hub knows its presets, nodes and limits.
    """
    nodes = [one.strip() for one in (options.nodes or "").split(",") if one.strip()]
    where = {**_labels(options.where), **({"pool": options.pool} if options.pool else {})}
    if not nodes and not where:
        raise CommandError("which nodes? --nodes A,B,C, --pool NAME or --where LABEL=VALUE")
    fields = {
        "kind": "pair" if kind == "matrix" and len(set(nodes)) == 2 and not where else kind,
        "nodes": list(dict.fromkeys(nodes)),
        "where": where,
        "preset": options.preset,
        "test": _given(test),
        "rounds": getattr(options, "rounds", None),
        "expected_bytes_per_second": expected_rate(options.expected),
        "share": options.share,
        "isolate": not getattr(options, "no_isolate", False),
        "limit_seconds": options.limit,
        "force": options.force,
        "note": options.note,
    }
    try:
        return msgspec.convert(_given(fields), CheckRequest)
    except msgspec.ValidationError as error:
        raise CommandError(f"{error}") from None


def sizes_of(options: argparse.Namespace) -> Optional[str]:
    """The sizes of --sizes or --message-bytes, as the hub takes them; None where not given."""
    size: Optional[int] = options.message_bytes
    return options.sizes if size is None else f"{size}B"


def either(given: Optional[int], default: int) -> int:
    """What was given, also where it is 0."""
    return default if given is None else given


def assignments(option: str, given: Iterable[str]) -> Optional[dict[str, str]]:
    """The mapping of an option that is repeated as NAME=VALUE; None where it was not given."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise CommandError(f"{option}: {one!r} is not NAME=VALUE")
        found[name] = value
    return found or None


def _labels(given: Iterable[str]) -> dict[str, str]:
    return assignments("--where", given) or {}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
