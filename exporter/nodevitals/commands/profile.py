"""`nodevitals profile show | learn | diff | check | facts`.

Facts are read from a running agent, a saved exposition or a profile. `learn` prints a profile in
YAML for a person to edit.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import NamedTuple, Union

from nodevitals.commands.doctor.findings import parse_samples
from nodevitals.commands.doctor.http import ask, endpoint, read_http_config
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
from nodevitals.probes.profile.conditions import conforms_found, found_texts
from nodevitals.probes.profile.document import (
    CHECK_INFO,
    CONFORMS,
    KNOWN,
    PREFIXES,
    Profile,
    known,
    parse_profile,
)

AGENT = "http://localhost:9855"
_HTTP_CONFIG = "user, password, CA for it, in promtool's --http.config.file format (default: none)"
MAX_BYTES = 32 << 20
SECONDS = 20.0
# The kernel's share of the memory differs a little between nodes.
_MEMORY_SHARE = 0.98
_LOWER = ("memory.bytes",)
# What differs between healthy nodes of one kind, or is not what makes a node healthy.
_LEFT_OUT = ("memory.dimm_errors",)
EXAMPLES = """\
examples:
  nodevitals profile learn --name 'HGX H100' > /etc/nodevitals/profile.yaml
  nodevitals profile diff http://gpu-7:9855 http://gpu-8:9855
  nodevitals profile diff http://gpu-7:9855 /etc/nodevitals/profile.yaml"""


class Checked(NamedTuple):
    """One fact of a node: what its own profile wants, and whether that is so (None: unknown)."""

    wanted: str
    found: str
    conforms: Union[bool, None]


Node = dict[str, Checked]


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
    wanted = {name: fact for name, fact in node.items() if fact.conforms is False}
    shown = wanted if options.differing else node
    if options.json:
        print_json({name: fact._asdict() for name, fact in shown.items()})
    else:
        words = {True: "ok", False: "wrong", None: ""}
        rows = [
            (name, fact.found, fact.wanted, "unknown" if _unknown(fact) else words[fact.conforms])
            for name, fact in shown.items()
        ]
        print_table(("FACT", "FOUND", "WANTED", "STATE"), rows)
    if wanted:
        return FOUND_WRONG
    return COULD_NOT_TELL if any(map(_unknown, node.values())) else GOOD


def _unknown(fact: Checked) -> bool:
    return bool(fact.wanted) and fact.conforms is None


def _learn(options: argparse.Namespace) -> int:
    print(profile_of(options.name, read_node(options.url, options.url_http)), end="")
    return GOOD


def _diff(options: argparse.Namespace) -> int:
    first, second = (
        read_either(place, options.url_http) for place in (options.first, options.second)
    )
    if isinstance(first, Profile) and isinstance(second, Profile):
        raise CommandError("two profiles: name a node and a profile, or two nodes")
    rows, unknown = _differences(first, second)
    if options.json:
        print_json({name: {"first": left, "second": right} for name, left, right in rows})
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
        return [(name, right, left) for name, left, right in rows], unknown
    if not isinstance(second, Profile):
        names = sorted({*first, *second})
        texts = [
            (name, *(node[name].found if name in node else "" for node in (first, second)))
            for name in names
        ]
        return [(name, left, right) for name, left, right in texts if left != right], False
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


def read_node(url: str, http_config: Union[str, None] = None) -> Node:
    """The facts of a node, as its agent exposes them now."""
    deadline = time.monotonic() + SECONDS
    server = endpoint(url, url, read_http_config(http_config), MAX_BYTES)
    answer = ask(server, server.path or "/metrics", deadline)
    if answer.problem:
        text = f"{server.shown}: {answer.problem}"
        raise CommandError(f"{text}: run nodevitals doctor on that node, or choose another --url")
    return _parsed(server.shown, answer.body)


def read_either(name: str, http_config: Union[str, None] = None) -> Union[Node, Profile]:
    """The facts behind a URL or in a saved exposition, or the profile in a file."""
    if name.startswith(("http://", "https://")):
        return read_node(name, http_config)
    try:
        content = read_file(name)
        if b"\n# TYPE " in content or content.startswith((b"# HELP", b"# TYPE")):
            return _parsed(name, content)
        return parse_profile(content)
    except DocumentError as error:
        raise document_error(name, error) from None


def _parsed(source: str, body: bytes) -> Node:
    try:
        values = parse_samples(body).values
    except ValueError as error:
        raise CommandError(f"{source}: {error}") from None
    answers = {labels["check"]: bool(value) for labels, value in values.get(CONFORMS.name, ())}
    facts = {
        labels["check"]: Checked(
            labels.get("wanted", ""), labels.get("found", ""), answers.get(labels["check"])
        )
        for labels, _ in values.get(CHECK_INFO.name, ())
    }
    if not facts:
        text = "no facts: is it an agent, and is its probe `profile` enabled?"
        raise CommandError(f"{source}: {text}")
    return dict(sorted(facts.items()))


def profile_of(name: str, node: Node) -> str:
    """The text of a profile that this node fulfils."""
    lines = [
        "# Learned from one node. Remove what need not be alike, and loosen what may differ:",
        "# a list of values, at_least, at_most, or matches with * for any characters.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        "expect:",
    ]
    for fact, checked in node.items():
        what = known(fact)
        texts = found_texts(checked.found)
        if what is None or fact in _LEFT_OUT:
            continue
        if not texts:
            lines.append(f"  # {fact}: unknown, or not alike on the devices of this node")
        elif fact in _LOWER:
            low = math.floor(float(texts[0]) * _MEMORY_SHARE)
            lines.append(f"  {fact}: {{at_least: {low}}}")
        else:
            values = [text if what.kind == "number" else json.dumps(text) for text in texts]
            value = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
            lines.append(f"  {fact}: {value}")
    return "\n".join(lines) + "\n"
