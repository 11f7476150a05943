"""The rails of a collective: the RDMA devices that it uses on all nodes.

In: the test, and the known RDMA ports of each node. Out: names of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodevitals.checks.model import TestRequest

HCA = "NCCL_IB_HCA"


def rails_of(test: TestRequest, nodes: Iterable[Mapping[str, bool]]) -> tuple[str, ...]:
    """The devices that the request names, otherwise those that all nodes have and that are active
    on most; none where there is only one. `nodes` has for each node its RDMA devices, and whether
    port 1 of each is active.
    """
    known = [node for node in nodes if node]
    asked = test.environment.get(HCA, "")
    if test.tool == "hccl" or (test.device and not asked):
        return ()
    common = _common(known)
    words = _names(asked)
    if not asked or asked.startswith("^"):
        chosen = [name for name in common if not (words and _is_named(name, words, asked))]
    elif common:
        chosen = [name for name in common if _is_named(name, words, asked)]
    else:
        chosen = words
    return tuple(chosen) if len(chosen) > 1 else ()


def _common(nodes: Sequence[Mapping[str, bool]]) -> list[str]:
    names = set(nodes[0]).intersection(*nodes) if nodes else set()
    # A port without a cable is down on all nodes, and no node uses it.
    return sorted(
        (name for name in names if 2 * sum(node[name] for node in nodes) > len(nodes)),
        key=lambda name: (len(name), name),
    )


def _names(asked: str) -> list[str]:
    """The devices that the variable names, by their first port."""
    words = (word.partition(":") for word in asked.lstrip("^=").split(",") if word)
    return [name for name, _, port in words if port in ("", "1")]


def _is_named(name: str, words: Sequence[str], asked: str) -> bool:
    """Whether the variable names the device, as NCCL compares: the whole name after `=`, otherwise
    its beginning.
    """
    return name in words if "=" in asked[:2] else name.startswith(tuple(words))
