"""A profile of what a healthy node has. In: its facts. Out: YAML, for a person to edit."""

from __future__ import annotations

import json
import math

from nodevitals.commands.profile.source import Node
from nodevitals.probes.profile.conditions import found_texts
from nodevitals.probes.profile.document import known

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
