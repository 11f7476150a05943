"""Parametrized tests of which `make test` runs a few and `make proof` the rest."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def long_forms(part: str, values: Iterable[Any], short: Container[Any]) -> list[Any]:
    """Values for `parametrize`, tuples for several names: those that are not in `short` are marked
    `proof(part)`.
    """
    mark = pytest.mark.proof(part)
    return [
        value
        if value in short
        else pytest.param(*(value if type(value) is tuple else (value,)), marks=mark)
        for value in values
    ]
