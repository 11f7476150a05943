"""Exposition text: valid in both formats, one block per family, rendered once per result."""

from __future__ import annotations

import gzip
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from nodevitals.exposition import (
    _MAX_SERIES,
    InvalidSampleError,
    Snapshot,
    Source,
    Variant,
    _SeriesCache,
    format_value,
    render_samples,
)
from nodevitals.probe import Family
from nodevitals.wire import Sample

VALUE = Family(name="nodevitals_test_value", kind="gauge", help="A \\ value.", labels=("a", "b"))
EVENTS = Family(
    name="nodevitals_test_events_total",
    kind="counter",
    help="Events.",
    labels=("kind",),
    closed={"kind": ("x", "y")},
)
FAMILIES = {family.name: family for family in (EVENTS, VALUE)}
TEXT = Variant(openmetrics=False, compressed=False)
OPENMETRICS = Variant(openmetrics=True, compressed=False)


def snapshot_of(*sources: tuple[str, list[Sample]]) -> Snapshot:
    snapshot = Snapshot(FAMILIES)
    for probe, samples in sources:
        snapshot.put(Source(probe, "t", "readings"), render_samples(FAMILIES, samples))
    snapshot.publish(0.0)
    return snapshot


@settings(deadline=None)
@given(st.text(), st.text(), st.floats())
def test_any_label_and_value_can_be_parsed_in_both_formats(a: str, b: str, value: float) -> None:
    a, b = (text.encode("utf-8", "replace").decode() for text in (a, b))
    snapshot = snapshot_of(("p", [Sample(VALUE.name, (a, b), value)]))
    expected = {name: text for name, text in (("a", a), ("b", b)) if text}
    for variant, parser in ((TEXT, parse_text), (OPENMETRICS, parse_openmetrics)):
        if "\r" in a + b and parser is parse_text:
            continue  # the Python parser splits lines at it; Prometheus' own does not
        (family,) = parser(snapshot.scrape(variant, 0.0).decode())
        (sample,) = family.samples
        assert sample.labels == expected
        assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


def test_family_of_two_probes_has_one_block() -> None:
    """OpenMetrics parsers reject a repeated header, so two vendors share one block."""
    snapshot = snapshot_of(
        ("nvidia", [Sample(VALUE.name, ("n", ""), 1)]),
        ("ascend", [Sample(VALUE.name, ("a", ""), 2)]),
    )
    text = snapshot.scrape(TEXT, 0.0).decode()
    assert text.count("# TYPE nodevitals_test_value gauge") == 1
    (family,) = parse_openmetrics(snapshot.scrape(OPENMETRICS, 0.0).decode())  # type: ignore[no-untyped-call]
    assert {sample.value for sample in family.samples} == {1, 2}


def test_variant_has_only_its_probes() -> None:
    snapshot = snapshot_of(
        ("p", [Sample(VALUE.name, ("1", ""), 1)]), ("q", [Sample(EVENTS.name, ("x",), 2)])
    )
    text = snapshot.scrape(TEXT._replace(probes=frozenset({"q"})), 0.0).decode()
    assert "events_total" in text
    assert "test_value" not in text


def test_counter_headers_follow_each_format() -> None:
    snapshot = snapshot_of(("p", [Sample(EVENTS.name, ("x",), 2)]))
    assert "# TYPE nodevitals_test_events_total counter" in snapshot.scrape(TEXT, 0.0).decode()
    text = snapshot.scrape(OPENMETRICS, 0.0).decode()
    assert "# TYPE nodevitals_test_events counter\nnodevitals_test_events_total{" in text
    assert text.endswith("# EOF\n")


def test_gzip_variant_has_the_same_text() -> None:
    snapshot = snapshot_of(("p", [Sample(VALUE.name, ("1", ""), 1)]))
    packed = snapshot.scrape(TEXT._replace(compressed=True), 0.0)
    assert gzip.decompress(packed) == snapshot.scrape(TEXT, 0.0)


@pytest.mark.parametrize(
    "sample",
    [
        Sample("nodevitals_other", (), 1),
        Sample(VALUE.name, ("one",), 1),
        Sample(VALUE.name, ("one", "two", "three"), 1),
        Sample(EVENTS.name, ("z",), 1),
    ],
)
def test_sample_that_does_not_fit_its_family_is_rejected(sample: Sample) -> None:
    with pytest.raises(InvalidSampleError):
        render_samples(FAMILIES, [sample])


def test_duplicate_series_is_rejected() -> None:
    with pytest.raises(InvalidSampleError, match="twice"):
        render_samples(FAMILIES, [Sample(EVENTS.name, ("x",), value) for value in (1, 2)])


def test_identical_lines_do_not_change_the_snapshot() -> None:
    snapshot = snapshot_of(("p", [Sample(VALUE.name, ("1", ""), 1)]))
    lines = render_samples(FAMILIES, [Sample(VALUE.name, ("1", ""), 1)])
    snapshot.put(Source("p", "t", "readings"), lines)
    assert not snapshot.changed


def test_dropped_source_is_not_exposed() -> None:
    snapshot = snapshot_of(("p", [Sample(VALUE.name, ("1", ""), 1)]))
    snapshot.drop(Source("p", "t", "readings"))
    snapshot.publish(0.0)
    assert snapshot.scrape(TEXT, 0.0) == b""


def test_requested_variant_is_built_in_advance() -> None:
    """Only the first scrape of a variant joins and compresses it."""
    snapshot = snapshot_of(("p", [Sample(VALUE.name, ("1", ""), 1)]))
    variant = Variant(openmetrics=True, compressed=True)
    snapshot.scrape(variant, 0.0)
    snapshot.publish(1.0)
    assert variant in snapshot._exposition._bodies
    snapshot.publish(1000.0)
    assert variant not in snapshot._exposition._bodies


def test_number_of_cached_variants_is_bounded() -> None:
    snapshot = snapshot_of(("p", [Sample(VALUE.name, ("1", ""), 1)]))
    for number in range(100):
        snapshot.scrape(TEXT._replace(probes=frozenset({str(number)})), 0.0)
    assert len(snapshot._requested) <= 8
    assert len(snapshot._exposition._bodies) <= 18


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.5, "0.5"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (-0.0, "0"),
        (True, "1"),
        (1700000000.25, "1700000000.25"),
    ],
)
def test_format_value(value: float, text: str) -> None:
    assert format_value(value) == text


OPEN = Family(name="nodevitals_test_info", kind="gauge", help="Open.", labels=("a",), open=True)


def test_open_family_has_labels_that_the_sample_names() -> None:
    lines = render_samples({OPEN.name: OPEN}, [Sample(OPEN.name, ("x", "tenant", 'a "b"'), 1.0)])
    [family] = parse_text(lines[OPEN.name].decode())
    assert family.samples[0].labels == {"a": "x", "tenant": 'a "b"'}


@pytest.mark.parametrize(
    "labels",
    [
        (),
        ("x", "tenant"),
        ("x", "a", "again"),
        ("x", "tenant", "1", "tenant", "2"),
        ("x", "no name", "1"),
    ],
)
def test_open_family_refuses_labels_that_no_series_may_have(labels: tuple[str, ...]) -> None:
    with pytest.raises(InvalidSampleError):
        render_samples({OPEN.name: OPEN}, [Sample(OPEN.name, labels, 1.0)])
    closed = Family(name=OPEN.name, kind="gauge", help="Closed.", labels=("a",))
    assert not closed.accepts(("x", "tenant", "1"))


def test_series_are_kept_up_to_a_limit() -> None:
    """A label with ever new values, as names of jobs, takes no more and more memory."""
    cache = _SeriesCache()
    family = Family(name="nodevitals_test_value", kind="gauge", help="A value.", labels=("a", "b"))
    for number in range(3 * _MAX_SERIES):
        labels = (str(number), "same")
        assert cache.get(family, labels) == f'nodevitals_test_value{{a="{number}",b="same"}} '
        assert sum(map(len, cache._known.values())) <= _MAX_SERIES
        assert len(cache._values) <= _MAX_SERIES + 1
    with pytest.raises(InvalidSampleError):
        cache.get(family, ("one",))
