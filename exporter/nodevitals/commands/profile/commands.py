"""`nodevitals profile show | learn | diff | check | facts`."""

from __future__ import annotations

import argparse
from typing import Union

from nodevitals.commands.profile.facts import Node, profile_of, read_either, read_node
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    GOOD,
    CommandError,
    Subparsers,
    document_error,
    print_json,
    print_table,
)
from nodevitals.document import DocumentError, read_file
from nodevitals.probes.profile.conditions import conforms_found
from nodevitals.probes.profile.document import KNOWN, PREFIXES, Profile, parse_profile

AGENT = "http://localhost:9855"
_HTTP_CONFIG = "user, password, CA for it, in promtool's --http.config.file format (default: none)"
EXAMPLES = """\
examples:
  nodevitals profile learn --name 'HGX H100' > /etc/nodevitals/profile.yaml
  nodevitals profile diff http://gpu-7:9855 http://gpu-8:9855
  nodevitals profile diff http://gpu-7:9855 /etc/nodevitals/profile.yaml"""


def add_to(commands: Subparsers) -> None:
    """Add `profile` and its subcommands to the command line."""
    parser = commands.add_parser(
        "profile", help="the expected state of a kind of node: learn, compare, check"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print the facts of a node, and what is wanted of them")
    _add_agent(show)
    show.add_argument("--differing", action="store_true", help="only what differs from the profile")
    show.add_argument("--json", action="store_true", help="one JSON object")
    show.set_defaults(run=_show)
    learn = actions.add_parser(
        "learn", help="print a profile of a healthy node, to be edited", epilog=EXAMPLES
    )
    _add_agent(learn)
    learn.add_argument(
        "--name", required=True, metavar="NAME", help="name of the kind of node (needed)"
    )
    learn.set_defaults(run=_learn)
    diff = actions.add_parser(
        "diff", help="compare two nodes, or a node with a profile", epilog=EXAMPLES
    )
    for place in ("first", "second"):
        text = "URL of an agent, a file with its metrics, or a profile"
        diff.add_argument(place, metavar=place.upper(), help=text)
    diff.add_argument("--http.config.file", dest="url_http", metavar="FILE", help=_HTTP_CONFIG)
    diff.add_argument("--json", action="store_true", help="one JSON object")
    diff.set_defaults(run=_diff)
    check = actions.add_parser("check", help="print every error of a profile")
    check.add_argument("file", metavar="FILE", help="the profile")
    check.set_defaults(run=_check)
    facts = actions.add_parser("facts", help="print the facts that a profile can name")
    facts.set_defaults(run=_facts)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    text = f"the agent, with its telemetry path if that is not /metrics (default {AGENT})"
    parser.add_argument("--url", default=AGENT, metavar="URL", help=text)
    parser.add_argument("--http.config.file", dest="url_http", metavar="FILE", help=_HTTP_CONFIG)


def _show(options: argparse.Namespace) -> int:
    node = read_node(options.url, options.url_http)
    wanted = {name: one for name, one in node.items() if one.conforms is False}
    shown = wanted if options.differing else node
    if options.json:
        print_json({name: one._asdict() for name, one in shown.items()})
    else:
        words = {True: "ok", False: "wrong", None: ""}
        rows = [
            (name, one.found, one.wanted, "unknown" if _unknown(one) else words[one.conforms])
            for name, one in shown.items()
        ]
        print_table(("FACT", "FOUND", "WANTED", "STATE"), rows)
    if wanted:
        return FOUND_WRONG
    return COULD_NOT_TELL if any(map(_unknown, node.values())) else GOOD


def _unknown(one: object) -> bool:
    return bool(getattr(one, "wanted", "")) and getattr(one, "conforms", None) is None


def _learn(options: argparse.Namespace) -> int:
    print(profile_of(options.name, read_node(options.url, options.url_http)), end="")
    return GOOD


def _diff(options: argparse.Namespace) -> int:
    first, second = (read_either(one, options.url_http) for one in (options.first, options.second))
    if isinstance(first, Profile) and isinstance(second, Profile):
        raise CommandError("two profiles: name a node and a profile, or two nodes")
    rows, unknown = _differences(first, second)
    if options.json:
        print_json({name: {"first": one, "second": other} for name, one, other in rows})
    elif rows:
        print_table(("FACT", "FIRST", "SECOND"), rows)
    else:
        print("no difference")
    if rows:
        return FOUND_WRONG
    return COULD_NOT_TELL if unknown else GOOD


def _differences(
    first: Union[Node, Profile], second: Union[Node, Profile]
) -> tuple[list[tuple[str, str, str]], bool]:
    """What differs, and whether something wanted is unknown."""
    if isinstance(first, Profile):
        rows, unknown = _differences(second, first)
        return [(name, other, one) for name, one, other in rows], unknown
    if not isinstance(second, Profile):
        names = sorted({*first, *second})
        found = [
            (name, *(one[name].found if name in one else "" for one in (first, second)))
            for name in names
        ]
        return [(name, one, other) for name, one, other in found if one != other], False
    rows, unknown = [], False
    for name, condition in sorted(second.conditions.items()):
        text = first[name].found if name in first else ""
        answer = conforms_found(condition, text)
        unknown = unknown or answer is None
        if not answer:
            rows.append((name, text or "unknown", condition.text))
    return rows, unknown


def _check(options: argparse.Namespace) -> int:
    try:
        profile = parse_profile(read_file(options.file))
    except DocumentError as error:
        raise document_error(options.file, error) from None
    print(f"{options.file}: ok: {profile.name}, {len(profile.conditions)} checks")
    return GOOD


def _facts(_options: argparse.Namespace) -> int:
    rows = [(name, fact.kind, fact.help) for name, fact in KNOWN.items()]
    rows += [(f"{prefix}NAME", fact.kind, fact.help) for prefix, fact in PREFIXES.items()]
    print_table(("FACT", "KIND", "MEANING"), rows)
    return GOOD
