"""Labels of nodes in a form: lists of values to choose from, and a text for all others.

In: the nodes on the hub's lists, the fields of a form. Out: the lists; the labels that are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodevitals.quantities import shown
from nodevitals_hub.web.spellings import lines_of, pairs_of

LABEL = "where."
"""Before the name of a label, of which a value is chosen from a list."""


def labels_of(
    members: Iterable[Any], most_values: int = 30, most_labels: int = 8
) -> dict[str, dict[str, int]]:
    """The labels of the members that a short list can show, with the number of nodes per value.
    A label whose values all differ names nodes, and is left out.
    """
    counts: dict[str, dict[str, int]] = {}
    total = 0
    for member in members:
        total += 1
        for name, value in member.labels.items():
            if value:
                values = counts.setdefault(name, {})
                if value in values or len(values) <= most_values:
                    values[value] = values.get(value, 0) + 1
    chosen = [
        name
        for name, values in sorted(counts.items())
        if len(values) <= most_values and (total <= 2 or len(values) < total)
    ]
    return {name: dict(sorted(counts[name].items())) for name in chosen[:most_labels]}


def wanted_labels(fields: Mapping[str, str]) -> dict[str, str]:
    """The labels of the text and of the lists. Raises ValueError."""
    typed = pairs_of(fields.get("where", ""))
    chosen = {
        name[len(LABEL) :]: value
        for name, value in fields.items()
        if name.startswith(LABEL) and value and len(name) > len(LABEL)
    }
    if twice := typed.keys() & chosen.keys():
        raise ValueError(f"{shown(min(twice))} is chosen above, too: remove one")
    return {**typed, **chosen}


def with_lists(
    fields: Mapping[str, str], labels: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """The fields, with labels of the text chosen in the lists that have them."""
    found = dict(fields)
    try:
        where = pairs_of(found.get("where", ""))
    except ValueError:
        return found
    left = {}
    for name, value in where.items():
        if value in labels.get(name, ()) and not found.get(LABEL + name):
            found[LABEL + name] = value
        else:
            left[name] = value
    found["where"] = lines_of(left)
    return found
