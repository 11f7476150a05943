"""The hub's /metrics over a real store, with simulated runs, before and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nodevitals import catalogue
from nodevitals.checks.model import CheckRequest, Requester, TestRequest
from nodevitals.probes.fabric.settings import StaticSource
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.context import Hub
from nodevitals_hub.parts import Parts
from nodevitals_hub.settings.hub import HubSettings, NodesSettings
from nodevitals_hub.store.check_store import Store
from nodevitals_hub.triggers.schedule_book import ScheduleState
from testbed.hub import SimulatedRunner

NODES = tuple(f"gpu-{number}" for number in range(1, 7))
MATRIX = CheckRequest(
    kind="matrix",
    where={"pool": "train"},
    test=TestRequest(tool="perftest", operation="write_bw", device="mlx5_0", sizes="64KiB"),
)
PERSON = Requester(trigger="rest", role="run")
LABELS = {"pool": "train", "kind": "matrix", "device": "mlx5_0"}


def with_hub(folder: Path, scene: Callable[[Parts], Awaitable[None]]) -> None:
    """Play a scene with a hub whose node gpu-3 is slow."""

    async def main() -> None:
        source = StaticSource(targets=NODES, labels={"pool": "train"})
        nodes = NodesSettings(static=(source,))
        settings = HubSettings(state_directory=str(folder), nodes=nodes)
        store, members = Store(str(folder)), Members()
        members.read(settings.nodes)
        runner = SimulatedRunner(0.0, frozenset({"gpu-3"}))
        coordinator = Coordinator(settings, store, members, runner)
        parts = Parts(Hub(settings, store, members, coordinator))
        await coordinator.start()
        tasks = [
            asyncio.ensure_future(work)
            for work in (coordinator.run(), parts.metrics.run(), parts.leases.run())
        ]
        try:
            await asyncio.wait_for(scene(parts), 300)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await coordinator.stop()
            await store.close()

    asyncio.run(main())


def total(parts: Parts, family: str, **labels: str) -> float | None:
    """Return the sum of the samples with these labels; None without one."""
    found = [
        sample.value
        for sample in samples(parts)
        if sample.name == family and labels.items() <= sample.labels.items()
    ]
    return sum(found) if found else None


def samples(parts: Parts) -> list[Sample]:
    """Return all samples."""
    text = parts.metrics.text().decode()
    return [sample for one in text_string_to_metric_families(text) for sample in one.samples]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_check_is_exposed_and_again_after_a_restart(tmp_path: Path) -> None:
    async def first(parts: Parts) -> None:
        await until(lambda: (total(parts, "nodevitals_hub_store_bytes") or 0) > 0)
        assert total(parts, "nodevitals_hub_nodes") == 6
        assert total(parts, "nodevitals_check_ended_total") == 0
        assert total(parts, "nodevitals_check_outcome") is None
        await parts.hub.checks.submit(MATRIX, PERSON)
        await until(lambda: total(parts, "nodevitals_check_ended_total", outcome="bad") == 1)
        shown(parts)
        [check] = await parts.hub.checks.list()
        assert pages == {f"https://hub.example.org/checks/{check.id}"}

    def shown(parts: Parts) -> None:
        assert total(parts, "nodevitals_check_outcome", outcome="bad", **LABELS) == 1
        assert total(parts, "nodevitals_check_bandwidth_bytes_per_second", **LABELS) == 10e9
        ratio = total(parts, "nodevitals_check_finding_ratio", subject="gpu-3", **LABELS)
        assert ratio == pytest.approx(0.4)
        assert total(parts, "nodevitals_hub_checks") == 0
        assert total(parts, "nodevitals_check_page_info") is None
        parts.hub.settings = replace(parts.hub.settings, external_url="https://hub.example.org/")
        [sample] = [one for one in samples(parts) if one.name == "nodevitals_check_page_info"]
        assert sample.labels.items() > LABELS.items()
        pages.add(sample.labels["page"])
        address = {"url": "https://hub.example.org"}
        assert total(parts, "nodevitals_hub_address_info", **address) == 1

    async def second(parts: Parts) -> None:
        await until(lambda: total(parts, "nodevitals_check_outcome") == 1)
        shown(parts)
        assert total(parts, "nodevitals_check_ended_total") == 0

    pages: set[str] = set()
    with_hub(tmp_path, first)
    with_hub(tmp_path, second)
    assert len(pages) == 1


def test_every_family_is_in_the_catalogue_with_its_labels(tmp_path: Path) -> None:
    async def scene(parts: Parts) -> None:
        state = ScheduleState("nightly", 60.0, 86400.0, 1.0, 2.0, 3.0)
        parts.schedules.states = lambda: [state]  # type: ignore[method-assign]
        await parts.hub.checks.submit(MATRIX, PERSON)
        await until(lambda: total(parts, "nodevitals_check_ended_total", outcome="bad") == 1)
        known = catalogue.hub_families()
        found = list(text_string_to_metric_families(parts.metrics.text().decode()))
        for one in found:
            for sample in one.samples:
                if sample.name.endswith("_created"):
                    continue
                family = known[sample.name]
                assert (one.type, one.documentation) == (family.kind, family.help)
                assert set(sample.labels) == set(family.labels)
        assert len(found) > 12

    with_hub(tmp_path, scene)
