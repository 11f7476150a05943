"""Families: names and labels that Prometheus' conventions allow, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodevitals import catalogue, probes
from nodevitals.probe import Family, Readings, Sample

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


def test_every_probe_has_the_name_of_its_file_and_declares_its_families_once() -> None:
    for name, kind in probes.registered().items():
        assert kind.__module__ == f"nodevitals.probes.{name}"
    assert list(catalogue.all_families()) == sorted(catalogue.all_families())


def test_a_carry_of_another_version_is_no_carry() -> None:
    """Else a probe would fail for ever after an upgrade."""
    assert Readings(b"").recalled(Sample) is None
    assert Readings(b"\xc1").recalled(Sample) is None
    assert Readings(msgspec.msgpack.encode({"other": 1})).recalled(Sample) is None
    kept = Sample("family", ("label",), 1.0)
    assert Readings(msgspec.msgpack.encode(kept)).recalled(Sample) == kept
