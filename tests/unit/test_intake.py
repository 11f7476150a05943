"""Results whose bytes a vendor's library has overwritten, from the frame to the exposition."""

from __future__ import annotations

import contextlib
import math

from prometheus_client.parser import text_string_to_metric_families

from nodevitals import catalogue
from nodevitals.engine.protocol import TargetSpec
from nodevitals.engine.results import Intake, Status, has_news
from nodevitals.engine.target import StateInput, Target
from nodevitals.exposition import InvalidSampleError, Snapshot, Variant
from nodevitals.probe import Timing
from nodevitals.state.journal import Journal
from nodevitals.state.records import Batch
from nodevitals.wire import (
    Condition,
    Event,
    Message,
    ProbeResult,
    ProtocolError,
    Sample,
    decode,
    encode,
)

FAMILIES = catalogue.all_families()
GAUGE = FAMILIES["nodevitals_mount_present"]
COUNTER = FAMILIES["nodevitals_mount_content_mismatches_total"]
RESULT = ProbeResult(
    outcome="error",
    samples=(Sample(GAUGE.name, tuple("x" for _ in GAUGE.labels), 1.5),),
    increments=(Sample(COUNTER.name, tuple("y" for _ in COUNTER.labels), 2.5),),
    conditions=(Condition("device", "ok"),),
    events=(Event("device", "broken", "", 12.5),),
    messages=(Message("node", b"body"),),
    reason="reason",
    text="text",
    trace="trace",
    duration_seconds=0.25,
    state=b"state",
)


def test_any_overwritten_byte_is_rejected_or_exposed_as_valid_text() -> None:
    """Each byte of a result with each of some values, and each of its places cut off."""
    body = encode(RESULT)
    values = {0, 1, 0x20, 0x7F, 0x80, 0xA0, 0xC0, 0xC1, 0xCA, 0xCB, 0xD9, 0xDF, 0xE2, 0xFF}
    taken = 0
    for place in range(len(body)):
        variants = [body[:place], body[:place] + body]
        variants += [body[:place] + bytes([value]) + body[place + 1 :] for value in values]
        for variant in variants:
            try:
                result = decode(variant, ProbeResult)
            except ProtocolError:
                continue
            _take_in(result)
            taken += 1
    assert taken > 100


def _take_in(result: ProbeResult) -> None:
    spec = TargetSpec("mounts", "/data", b"", Timing(), False, True, 0.0, False)
    snapshot = Snapshot(FAMILIES)
    journal = Journal(FAMILIES, "boot")
    journal.requeue()
    target = Target(spec, StateInput(journal, spec), 0.0, 0.0)
    intake, status = Intake(snapshot, journal), Status(snapshot, journal)
    with contextlib.suppress(InvalidSampleError):
        intake.unfinished(target, result, 0.0)
    taken = intake.finished(target, result, 0.0, 0.0)
    target.last = taken
    target.input.settle(taken)
    status.log(target, taken)
    status.show(target, 1.0)
    status.show_counters(target)
    snapshot.publish(1.0)
    text = snapshot.scrape(Variant(openmetrics=False, compressed=False), 1.0).decode()
    list(text_string_to_metric_families(text))
    batch = decode(encode(journal.take()), Batch)
    assert all(math.isfinite(row.time) for row in batch.rows)
    assert all(total.value >= 0 for total in batch.totals)


def test_news_are_what_a_run_has_read_or_counted() -> None:
    """A run of the kernel log that finds nothing starts its counters at 0, and has none."""
    zero = (Sample(COUNTER.name, ("y",), 0.0),)
    assert not has_news(ProbeResult(outcome="ok"))
    assert not has_news(ProbeResult(outcome="ok", increments=zero))
    assert has_news(ProbeResult(outcome="ok", increments=RESULT.increments))
    assert has_news(ProbeResult(outcome="ok", samples=RESULT.samples))
