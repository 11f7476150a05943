"""When a changed snapshot is published. Times are those of a clock that the test moves."""

from __future__ import annotations

import pytest

from nodevitals.engine.schedule import LONGEST_SECONDS, PUBLISH_SECONDS, Publisher
from nodevitals.exposition import Snapshot, Source, Variant
from nodevitals.families import Families

metrics = Families("example")
COUNT = metrics.gauge("count", "Number of examples.")
SOURCE = Source("example", "example", "readings")
TEXT = Variant(openmetrics=False, compressed=False)


@pytest.fixture
def snapshot() -> Snapshot:
    return Snapshot({COUNT.name: COUNT})


def change(snapshot: Snapshot, value: int) -> None:
    snapshot.put(SOURCE, {COUNT.name: f"{COUNT.name} {value}\n".encode()})


def seconds_until_published(publisher: Publisher, now: float = 0.0) -> float:
    """How long after a change it is published, in steps of 10 ms."""
    began = now
    while not publisher.publish(now, eager=False):
        now += 0.01
        assert now - began < 60
    return now - began


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [(0.1, PUBLISH_SECONDS), (1, 4 / 15), (15, LONGEST_SECONDS), (600, LONGEST_SECONDS)],
)
def test_a_result_waits_for_a_share_of_its_interval(
    snapshot: Snapshot, interval: float, seconds: float
) -> None:
    publisher = Publisher(snapshot)
    change(snapshot, 1)
    publisher.expect(0.0, interval)
    assert seconds_until_published(publisher) == pytest.approx(seconds, abs=0.02)
    assert snapshot.scrape(TEXT, 0.0).endswith(b" 1\n")


def test_what_is_no_result_waits_longest(snapshot: Snapshot) -> None:
    """As a run that has read and counted nothing: only its number has changed."""
    publisher = Publisher(snapshot)
    change(snapshot, 1)
    assert seconds_until_published(publisher) == pytest.approx(LONGEST_SECONDS, abs=0.02)


def test_the_result_that_is_due_first_decides(snapshot: Snapshot) -> None:
    publisher = Publisher(snapshot)
    change(snapshot, 1)
    publisher.expect(0.0, 15)
    assert not publisher.publish(0.0, eager=False)
    change(snapshot, 2)
    publisher.expect(1.0, 0.1)
    assert not publisher.publish(1.0, eager=False)
    assert publisher.publish(1.0 + PUBLISH_SECONDS, eager=False)
    assert snapshot.scrape(TEXT, 0.0).endswith(b" 2\n")


def test_nothing_is_published_twice(snapshot: Snapshot) -> None:
    publisher = Publisher(snapshot)
    change(snapshot, 1)
    assert publisher.publish(0.0, eager=True)
    assert not publisher.publish(100.0, eager=True)
