"""The file of a profile. In: YAML text. Out: a Profile, or every problem with its place."""

from __future__ import annotations

from typing import Any

import msgspec

from nodevitals.document import Problem, meant
from nodevitals.probes.profile.conditions import Condition, read_condition
from nodevitals.probes.profile.known import KNOWN, PREFIXES, known

MAX_CONDITIONS = 500
MAX_NAME_CHARACTERS = 64


class Profile(msgspec.Struct, frozen=True):
    """What one kind of node must be: conditions by fact."""

    name: str
    conditions: dict[str, Condition]


def parse_profile(text: bytes) -> Profile:
    """The profile in a file. Raises DocumentError with every problem."""
    from nodevitals.document import SettingsDocument

    document = SettingsDocument(text)
    raw = document.values()
    problems: list[Problem] = []
    profile = _read(raw, problems)
    error = document.error(problems)
    if error is not None:
        raise error
    assert profile is not None
    return profile


def _read(raw: Any, problems: list[Problem]) -> Profile | None:
    if not isinstance(raw, dict):
        problems.append(Problem("", "not a profile: write the keys name and expect"))
        return None
    problems.extend(
        Problem(str(key), f"unknown key; use name or expect{meant(key, ('name', 'expect'))}")
        for key in raw
        if key not in ("name", "expect")
    )
    name, expect = raw.get("name"), raw.get("expect")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        problems.append(Problem("name", f"not a text of 1 to {MAX_NAME_CHARACTERS} characters"))
    if not isinstance(expect, dict) or not 0 < len(expect) <= MAX_CONDITIONS:
        text = f"not a mapping of 1 to {MAX_CONDITIONS} facts: write FACT: VALUE"
        problems.append(Problem("expect", text))
        return None
    conditions: dict[str, Condition] = {}
    for fact, wanted in expect.items():
        what = known(str(fact))
        if what is None:
            near = meant(fact, (*KNOWN, *PREFIXES))
            text = f"unknown fact{near}; `nodevitals profile facts` lists them"
            problems.append(Problem(f"expect.{fact}", text))
            continue
        condition = read_condition(wanted, what, f"expect.{fact}", problems)
        if condition is not None:
            conditions[str(fact)] = condition
    return Profile(str(name), conditions)
