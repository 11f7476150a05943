"""Configuration files: every error is reported with its path; valid values are typed."""

from __future__ import annotations

import pytest

from nodevitals import probes
from nodevitals.config import load, parse
from nodevitals.document import DocumentError
from nodevitals.quantities import parse_duration


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse(text.encode(), probes.registered())
    return [str(problem) for problem in caught.value.problems]


def test_empty_file_gives_the_defaults() -> None:
    config = parse(b"", probes.registered())
    assert config.defaults.interval == 15.0
    assert set(config.probes) >= {"node", "mounts"}
    assert config == load(None, probes.registered())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nonsense: 1", "nonsense"),
        ("probes: {gpu: {}}", "probes.gpu"),
        ("probes: {node: {intervall: 15s}}", "probes.node.intervall"),
        ("probes: {node: {interval: 15}}", "probes.node.interval"),
        ("probes: {node: {interval: -15s}}", "probes.node.interval"),
        ("probes: {node: {interval: 0s}}", "probes.node.interval"),
        ("probes: {node: {enabled: sometimes}}", "probes.node.enabled"),
        ("probes: {node: {interval: 5s, timeout: 6s}}", "probes.node.timeout"),
        ("defaults: {interval: 5s}\nprobes: {node: {timeout: 6s}}", "probes.node.timeout"),
        ("probes: {node: {stale_after: 1s}}", "probes.node.stale_after"),
        (
            "probes: {mounts: {interval: 5s, targets: [{path: /a}, {path: /b, timeout: 6s}]}}",
            "probes.mounts.targets[1].timeout",
        ),
        (
            "probes: {mounts: {targets: [{path: /a, interval: 60s, stale_after: 45s}]}}",
            "probes.mounts.targets[0].stale_after",
        ),
        (
            "probes: {scripts: {folder: /a, scripts: [{name: b, timeout: 61s}]}}",
            "probes.scripts.scripts[0].timeout",
        ),
        ("probes: {mounts: {targets: [{path: data}]}}", "probes.mounts.targets[0].path"),
        ("probes: {mounts: {targets: [{path: /a/../b}]}}", "probes.mounts.targets[0].path"),
        ("probes: {mounts: {targets: [{path: /a/}]}}", "probes.mounts.targets[0].path"),
        ("probes: {mounts: {targets: [{}]}}", "probes.mounts.targets[0].path"),
        (
            "probes: {mounts: {targets: [{path: /a}, {path: /b}, {path: /a}]}}",
            "probes.mounts.targets[2].path",
        ),
        ("probes: {mounts: {targets: {path: /a}}}", "probes.mounts.targets"),
        (
            "probes: {mounts: {targets: [{path: /a, access: rw}]}}",
            "probes.mounts.targets[0].access",
        ),
        ("probes: {mounts: {block_bytes: 5000}}", "probes.mounts.block_bytes"),
        ("probes: {mounts: [1]}", "probes.mounts"),
        ("labels: {rack: 12}", "labels.rack"),
        ("labels: {1: a}", "labels.1"),
        ("labels: {rack-name: a}", "labels.rack-name"),
        ("labels: {instance: a}", "labels.instance"),
        ("history: {max_rows: 1}", "history.max_rows"),
        ("probes: {node: {interval: 5s, interval: 6s}}", "probes.node.interval"),
    ],
)
def test_each_error_is_reported_with_its_path(text: str, path: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "is a list: write a mapping"),
        ("just words", "'just words' is text: write a mapping"),
        ("a: [", "not valid YAML"),
        ("a: b: c", "not valid YAML: mapping values are not allowed"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("a: !!python/object/apply:os.system [true]", "not valid YAML"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("&a [*a]", "contains itself"),
    ],
)
def test_invalid_document_is_one_problem_on_one_line(text: str, message: str) -> None:
    (problem,) = problems(text)
    assert message in problem
    assert "\n" not in problem


def test_alias_bomb_is_rejected_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert problems("\n".join(lines)) == ["aliases expand to over 200000 values: remove some"]


def test_file_over_the_size_limit_is_rejected() -> None:
    assert problems("#" * (5 * 1024 * 1024)) == ["larger than 4096 KiB: split it"]


def test_aliases_and_merge_keys_are_allowed() -> None:
    text = b"""
probes:
  node: &slow {interval: 60s, timeout: 20s}
  mounts: {<<: *slow, targets: [{path: /data}]}
"""
    config = parse(text, probes.registered())
    assert config.probes["mounts"].interval == 60.0


def test_message_lists_the_allowed_words() -> None:
    assert problems("probes: {node: {enabled: perhaps}}") == [
        "probes.node.enabled: 'perhaps' is none of auto, true, false"
    ]


def test_all_errors_are_reported_at_once() -> None:
    text = "nonsense: 1\nlabels: {a: 1}\nprobes: {node: {x: 1, interval: y}, z: {}}"
    assert len(problems(text)) == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0), ("1.5s", 1.5), ("2d", 172800.0)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "0s", "1 s", "1e3s", "1w", 5, None, "5s "])
def test_parse_duration_rejects_other_text(text: object) -> None:
    with pytest.raises(ValueError, match=r"not a duration|outside 10ms to 365d"):
        parse_duration(text)


def test_inherited_timeout_is_capped_at_the_interval() -> None:
    config = parse(b"probes: {node: {interval: 3s}}", probes.registered())
    timing = config.timing(config.probes["node"])
    assert (timing.interval_seconds, timing.timeout_seconds) == (3.0, 3.0)
    assert timing.stale_after_seconds == 9.0
