"""Facts of a node: read from a running agent, a saved exposition or a profile, and written as one.

In: a URL or a path. Out: what each has, by fact, and a profile in YAML for a person to edit. Raises
CommandError.
"""

from __future__ import annotations

import json
import math
import time
from typing import NamedTuple, Union

from nodevitals.commands.doctor.findings import parse_samples
from nodevitals.commands.doctor.http import ask, endpoint, read_http_config
from nodevitals.commands.terminal import CommandError, document_error
from nodevitals.document import DocumentError, read_file
from nodevitals.probes.profile.conditions import found_texts
from nodevitals.probes.profile.document import CHECK_INFO, CONFORMS, Profile, known, parse_profile

MAX_BYTES = 32 << 20
SECONDS = 20.0


class Checked(NamedTuple):
    """One fact of a node: what its own profile wants, and whether that is so (None: unknown)."""

    wanted: str
    found: str
    conforms: Union[bool, None]


Node = dict[str, Checked]


def read_node(url: str, http_config: Union[str, None] = None) -> Node:
    """The facts of a node, as its agent exposes them now."""
    deadline = time.monotonic() + SECONDS
    server = endpoint(url, url, read_http_config(http_config), MAX_BYTES)
    answer = ask(server, server.path or "/metrics", deadline)
    if answer.problem:
        raise CommandError(f"{server.shown}: {answer.problem}")
    return _facts(server.shown, answer.body)


def read_either(name: str, http_config: Union[str, None] = None) -> Union[Node, Profile]:
    """The facts behind a URL or in a saved exposition, or the profile in a file."""
    if name.startswith(("http://", "https://")):
        return read_node(name, http_config)
    try:
        content = read_file(name)
        if b"\n# TYPE " in content or content.startswith((b"# HELP", b"# TYPE")):
            return _facts(name, content)
        return parse_profile(content)
    except DocumentError as error:
        raise document_error(name, error) from None


def _facts(source: str, body: bytes) -> Node:
    try:
        values = parse_samples(body).values
    except ValueError as error:
        raise CommandError(f"{source}: {error}") from None
    answers = {labels["check"]: bool(value) for labels, value in values.get(CONFORMS.name, ())}
    found = {
        labels["check"]: Checked(
            labels.get("wanted", ""), labels.get("found", ""), answers.get(labels["check"])
        )
        for labels, _ in values.get(CHECK_INFO.name, ())
    }
    if not found:
        text = "no facts: is it an agent, and is its probe `profile` enabled?"
        raise CommandError(f"{source}: {text}")
    return dict(sorted(found.items()))


# The kernel's share of the memory differs a little between nodes.
_MEMORY_SHARE = 0.98
_LOWER = ("memory.bytes",)
# What differs between healthy nodes of one kind, or is not what makes a node healthy.
_LEFT_OUT = ("memory.dimm_errors",)


def profile_of(name: str, node: Node) -> str:
    """The text of a profile that this node fulfils."""
    lines = [
        "# Learned from one node. Remove what need not be alike, and loosen what may differ:",
        "# a list of values, at_least, at_most, or matches with * for any characters.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        "expect:",
    ]
    for fact, one in node.items():
        what = known(fact)
        texts = found_texts(one.found)
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
