"""Which targets share a process."""

from __future__ import annotations

from nodevitals import probes
from nodevitals.config import parse
from nodevitals.engine.configuration import HISTORY_TIMEOUT_SECONDS, plan_targets
from nodevitals.engine.protocol import TargetSpec


def specs() -> dict[tuple[str, str], TargetSpec]:
    return {spec.key: spec for spec in plan_targets(parse(b"{}", probes.registered()))}


def test_residents_have_processes_of_their_own() -> None:
    residents = {key[0]: spec for key, spec in specs().items() if spec.resident}
    assert {"history", "kernel_log", "network", "nvidia", "rdma"} <= residents.keys()
    assert not any(spec.shared for spec in residents.values())


def test_disks_are_asked_in_a_process_of_their_own() -> None:
    found = specs()
    assert found["disks", "devices"].shared
    assert not found["disks", "health"].shared


def test_the_history_s_timeout_is_not_capped_at_its_interval() -> None:
    """A batch is written as often as it is wanted, and may wait for the lock of another agent."""
    config = parse(b"{state_directory: /state, history: {interval: 1s}}", probes.registered())
    [history] = [spec for spec in plan_targets(config) if spec.probe == "history"]
    assert history.timing.interval_seconds == 1
    assert history.timing.timeout_seconds == HISTORY_TIMEOUT_SECONDS
