"""Whatever stands in a field of the configuration: it is refused with its path and line, or the
agent can work with it.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals import catalogue, probes
from nodevitals.config import Config, parse
from nodevitals.document import DocumentError
from nodevitals.engine.configuration import plan_targets
from nodevitals.engine.lifecycle import Command, Lifecycle
from nodevitals.quantities import Spelling
from nodevitals.wire import decode
from testbed.node import ROOT

PROBES = {name: kind for name, kind in probes.registered().items() if name != "misbehave"}
FABRIC = {
    "enabled": True,
    "static": [{"targets": ["node-1"], "labels": {"leaf": "a"}}],
    "file_sd": [{"files": ["/etc/peers.yaml"], "port": 1}],
    "dns_sd": [{"names": ["peers.example"], "port": 1}],
    "tests": [{"tool": "perftest", "operation": "write_bw", "device": "mlx5_0"}],
    "token_file": "/etc/token",
    "tls": {"cert_file": "/c", "key_file": "/k", "ca_file": "/a"},
    "gate": {},
    "budget": {},
}
# A valid value of each field that has parts.
BASE: dict[str, Any] = {
    "labels": {"rack": "r1"},
    "history": {},
    "defaults": {},
    "probes": {
        **{name: {} for name in PROBES},
        "mounts": {"targets": [{"path": "/data", "access": "none"}]},
        "peers": {
            "targets": [{"host": "node-1"}],
            "file_sd": [{"files": ["/etc/peers.yaml"], "port": 1}],
            "dns_sd": [{"names": ["peers.example"], "port": 1}],
        },
        "fabric": FABRIC,
        "disks": {"raid": [{"device": "sda", "types": ["megaraid,0"]}]},
        "scripts": {
            "folder": "/etc/scripts",
            "scripts": [{"name": "nhc"}],
            "textfiles": [{"path": "/run/nccl"}],
        },
        "rdma": {"expected": {"mlx5_0/1": "400Gb/s"}},
        "network": {"expected": {"eth0": "100Gb/s"}},
    },
}
Path = tuple[str | int, ...]


def structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the Settings classes in a type: of a union, of the items of a list."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from structs_in(part)


def fields(struct: type[msgspec.Struct], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the type of each field, those of nested settings as well."""
    for name, hint in typing.get_type_hints(struct, include_extras=True).items():
        here = (*path, name)
        yield here, hint
        is_list = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
        for inner in structs_in(hint):
            yield from fields(inner, (*here, 0) if is_list else here)


FIELDS = [
    *(found for found in fields(Config, ()) if found[0] != ("probes",)),
    *(found for name, kind in PROBES.items() for found in fields(kind.Settings, ("probes", name))),
]

NUMBERS = st.text("0123456789", min_size=1, max_size=450)
TRAPS = r"""
1:30
01:30:00
1:30.5
0777
0o17
0x1F
0b11
1_000
1_0.5
.inf
-.inf
.nan
.5
1e400
1.0e+400
-0
+1
yes
no
on
off
y
True
~
null
=
<<
2024-01-01
2024-99-99
2024-01-01T00:00:00Z
!!binary YQ==
!!int "1"
!!set {a}
!!omap [a: 1]
!!str [a]
!!python/name:os.system
""
"\0"
"\ud800"
"a\nb"
"/"
"/data"
[]
{}
[[]]
[~]
{a: b}
{a: 1, a: 2}
{"a\nb": c}
&a [*a]
*b
[1, 2]
@
%
|
>
?
{? [a] : b}
18446744073709551616
-9223372036854775809
9223372036854775807
mlx5_0
auto
write
1
22
4096
65536
0.1
10ms
365d
2s
400Gb/s
""".strip().splitlines()
RAW = st.one_of(
    st.sampled_from(TRAPS),
    NUMBERS,
    st.builds("{}{}".format, NUMBERS, st.sampled_from(["ms", "s", "d", "Gb/s", "."])),
    st.builds("0.{}{}".format, NUMBERS, st.sampled_from(["ms", "s", "", "e9", "e+99"])),
    st.text(max_size=20).map(json.dumps),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x85\u2028\u2029"), max_size=20),
    st.integers().map(str),
    st.floats().map(str),
    st.builds('"{}"'.format, st.text("a", min_size=4000, max_size=5000)),
)


def document(path: Path, raw: str) -> bytes:
    """Return the base with this text as one value, a key per line."""
    placed = json.loads(json.dumps(BASE))
    place = placed
    for step in path[:-1]:
        if isinstance(step, str) and isinstance(place, dict):
            place = place.setdefault(step, {})
        else:
            place = place[step]
    place[path[-1]] = "@"
    return json.dumps(placed, indent=1).replace('"@"', raw, 1).encode("utf-8", "surrogatepass")


def parsed(text: bytes) -> Config | DocumentError:
    """Return the configuration, or what is wrong with it."""
    try:
        return parse(text, PROBES)
    except DocumentError as error:
        return error


def check(text: bytes) -> None:
    """Parse a configuration and, where it is valid, take the first steps of each of its targets."""
    config = parsed(text)
    if isinstance(config, DocumentError):
        for problem in config.problems:
            assert "\n" not in str(problem)
            assert len(problem.message) < 1000
            assert problem.line or " YAML" in problem.message, problem
        return
    for spec in plan_targets(config):
        assert spec.problem == ""
        kind = catalogue.probe_class(spec.probe)
        decode(spec.settings, kind.TargetSettings or kind.Settings)
        for seconds in msgspec.structs.astuple(spec.timing):
            assert 0.01 <= seconds <= 3 * 365 * 86400
        step_through(Lifecycle(spec.timing, 0.5, 1e6, spec.start_seconds))


def step_through(lifecycle: Lifecycle) -> None:
    """A run that succeeds, and three that do not end."""
    now = lifecycle.wake
    assert lifecycle.command(now) is Command.START
    lifecycle.answered(now, stays=False)
    lifecycle.exited(now)
    for _ in range(3):
        assert now <= lifecycle.wake < math.inf
        now = lifecycle.wake
        assert lifecycle.command(now) is Command.START
        assert lifecycle.command(lifecycle.wake) is Command.TERM
        assert lifecycle.command(lifecycle.wake) is Command.KILL
        lifecycle.exited(lifecycle.wake)


def test_base_is_valid() -> None:
    parse(json.dumps(BASE).encode(), PROBES)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(FIELDS), RAW)
def test_any_value_in_any_field(field: tuple[Path, Any], raw: str) -> None:
    check(document(field[0], raw))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(map(str, field[0])))
@pytest.mark.parametrize("letter", ["a", "/a"])
def test_a_long_text_in_any_field(field: tuple[Path, Any], letter: str) -> None:
    """A message holds the beginning of it."""
    check(document(field[0], json.dumps(letter * (4000 // len(letter)))))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
def test_any_text(text: bytes) -> None:
    """Not YAML, or YAML of any other shape."""
    found = parsed(text)
    if isinstance(found, DocumentError):
        assert found.problems
        assert all("\n" not in str(problem) for problem in found.problems)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(map(str, field[0])))
def test_number_has_bounds_declared_once(field: tuple[Path, Any]) -> None:
    """A number is a duration or a rate, or its type has a lowest and a highest value."""
    _, hint = field
    for part in parts_of(hint):
        if part.base in (int, float):
            bounds = [one for one in part.marks if isinstance(one, msgspec.Meta)]
            spelled = any(isinstance(one, Spelling) for one in part.marks)
            lowest = any(one.ge is not None or one.gt is not None for one in bounds)
            assert spelled or (lowest and any(one.le is not None for one in bounds))


class Part(typing.NamedTuple):
    base: Any
    marks: tuple[Any, ...]


def parts_of(hint: Any) -> Iterator[Part]:
    """Yield the plain types in a type, with what marks them."""
    if get_origin(hint) in (typing.Union, types.UnionType, tuple, dict):
        for part in get_args(hint):
            yield from parts_of(part)
    elif get_origin(hint) is typing.Annotated:
        base, *marks = get_args(hint)
        yield from (Part(one.base, (*marks, *one.marks)) for one in parts_of(base))
    else:
        yield Part(hint, ())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("1:30", "'1:30' is not a plain decimal number"),
        ("0777", "'0777' is not a plain decimal number"),
        ("1_000", "'1_000' is not a plain decimal number"),
        (".inf", "'.inf' is not a plain decimal number"),
        (".nan", "'.nan' is not a plain decimal number"),
        ("9" * 400, "is not a plain decimal number"),
        ("on", "'on' is a boolean in YAML"),
        ("No", "'No' is a boolean in YAML"),
        ("2024-01-01", "'2024-01-01' is a date in YAML"),
        ('"a\\nb"', "contains a control character"),
        (f'"{"a" * 5000}"', "a text of over 4096 characters"),
        ("!!binary YQ==", "not valid YAML for a setting: the tag"),
    ],
)
@pytest.mark.parametrize("key", ["max_rows", "max_age"])
def test_what_yaml_reads_in_another_way_is_refused(raw: str, message: str, key: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(f"labels: {{}}\nhistory:\n  {key}: {raw}\n".encode(), PROBES)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == (f"history.{key}", 3)
    assert message in problem.message


@pytest.mark.parametrize("key", ["on", "1:30", "2024-01-01", "0777"])
def test_key_that_yaml_reads_in_another_way_is_refused(key: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(f"labels:\n  rack: a\n  {key}: b\n".encode(), PROBES)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == (f"labels.{key}", 3)


def test_chain_of_aliases_is_limited_in_depth() -> None:
    """Each is within the limit of values, and together they are deeper than any recursion."""
    chain = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 5000))]
    with pytest.raises(DocumentError, match="nested deeper than 32 levels"):
        parse("\n".join(chain).encode(), PROBES)


def test_number_of_values_is_limited_before_they_take_memory() -> None:
    with pytest.raises(DocumentError, match="over 200000 values"):
        parse(b"a: [" + b"a," * 250_000 + b"]", PROBES)


def test_thousands_of_errors_are_reported_as_the_first_ones() -> None:
    text = "labels: {" + ", ".join(f"a{n}: {n}" for n in range(5000)) + "}"
    with pytest.raises(DocumentError) as caught:
        parse(text.encode(), PROBES)
    assert len(caught.value.problems) == 51
    assert caught.value.problems[-1].message == "and 4950 more errors"


def test_key_without_end_is_refused() -> None:
    with pytest.raises(
        DocumentError, match="a key that is no plain text of at most 256 characters"
    ):
        parse(b'labels: {"' + b"a" * 1000 + b'": b}', PROBES)


def test_example_shows_the_bounds() -> None:
    text = (ROOT / "exporter/packaging/nodevitals.example.yaml").read_text()
    assert "# Number of GPUs that the node must have. From 1 to 128." in text
    assert "from 10ms\n# to 365d" in text
