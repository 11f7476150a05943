"""Families: names and labels that Prometheus' conventions allow, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from nodevitals import catalogue, probes
from nodevitals.probe import Families, Family, LabelError, Readings

GOOD: dict[str, Any] = {"name": "nodevitals_good_seconds", "kind": "gauge", "help": "Good."}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "good_seconds"},
        {"name": "nodevitals_Good"},
        {"name": "nodevitals_events", "kind": "counter"},
        {"name": "nodevitals_events_total"},
        {"name": "nodevitals_wait_milliseconds"},
        {"name": "nodevitals_used_percent"},
        {"help": ""},
        {"help": "two\nlines"},
        {"labels": ("Bad",)},
        {"labels": ("a", "a")},
        {"closed": {"a": ("x",)}},
    ],
)
def test_a_family_that_breaks_a_convention_is_refused(change: dict[str, Any]) -> None:
    Family(**GOOD)
    with pytest.raises(ValueError, match="family"):
        Family(**{**GOOD, **change})


def test_unknown_is_missing() -> None:
    readings = Readings()
    readings.add(Family(**GOOD), None)
    assert readings.samples == []


def test_every_probe_is_usable_and_declares_its_families_once() -> None:
    for name, kind in probes.registered().items():
        assert not kind.unusable, kind.unusable
        assert kind.__module__ in (f"nodevitals.probes.{name}", f"nodevitals.probes.{name}.probe")
        names = [family.name for family in kind.families]
        assert len(names) == len(set(names))
    assert list(catalogue.all_families()) == sorted(catalogue.all_families())


def test_families_of_a_room_share_prefix_and_labels() -> None:
    metrics = Families("disk", "device", kind=("nvme", "sata"))
    wear = metrics.gauge("wear_ratio", "Share of the rated writes that is used.")
    errors = metrics.counter("errors_total", "Number of errors.", "port", reason=("crc", "link"))
    assert wear.name == "nodevitals_disk_wear_ratio"
    assert wear.labels == ("device", "kind")
    assert errors.labels == ("device", "kind", "port", "reason")
    assert errors.closed == {"kind": ("nvme", "sata"), "reason": ("crc", "link")}
    assert list(metrics) == [wear, errors]


METRICS = Families("thing", "item")
VALUE = METRICS.gauge("value", "Value.", kind=("a", "b"))
COUNT = METRICS.counter("count_total", "Number of things.")


@pytest.mark.parametrize(
    "labels", [(), ("x",), ("x", "a", "y"), ("x", "c")], ids=["none", "few", "many", "not closed"]
)
def test_labels_that_do_not_fit_are_refused_where_they_are_added(labels: tuple[str, ...]) -> None:
    with pytest.raises(LabelError, match="nodevitals_thing_value"):
        Readings(families=METRICS).add(VALUE, 1, *labels)


def test_a_series_that_has_a_value_already_is_refused() -> None:
    readings = Readings(families=METRICS)
    readings.add(VALUE, 1, "x", "a")
    readings.add(VALUE, None, "x", "a")
    with pytest.raises(LabelError, match="twice"):
        readings.add(VALUE, 2, "x", "a")


def test_discarded_samples_may_be_added_again() -> None:
    readings = Readings(families=METRICS)
    readings.add(VALUE, 1, "kept", "a")
    mark = readings.mark()
    readings.add(VALUE, 1, "x", "a")
    readings.discard_since(mark)
    readings.add(VALUE, 2, "x", "a")
    assert [(sample.labels[0], sample.value) for sample in readings.samples] == [
        ("kept", 1),
        ("x", 2),
    ]


def test_counters_may_be_raised_several_times() -> None:
    readings = Readings(families=METRICS)
    readings.increment(COUNT, 0, "x")
    readings.increment(COUNT, 2, "x")
    assert len(readings.increments) == 2
    with pytest.raises(LabelError):
        readings.increment(COUNT, 1)


def test_a_family_of_another_probe_is_refused() -> None:
    with pytest.raises(LabelError, match="not among"):
        Readings(families=METRICS).add(Family(**GOOD), 1)
