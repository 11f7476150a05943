"""Which targets share a process, and which stay open in it."""

from __future__ import annotations

import pytest

from nodevitals import probes
from nodevitals.config import parse
from nodevitals.engine.plan import plan_targets
from nodevitals.engine.protocol import TargetSpec
from nodevitals.linux.capabilities import VARIABLE

KEPT_OPEN = {"kernel_log", "network", "rdma"}


def specs() -> dict[tuple[str, str], TargetSpec]:
    return {spec.key: spec for spec in plan_targets(parse(b"{}", probes.registered()))}


def test_residents_that_call_no_vendor_s_library_stay_open_in_a_shared_process() -> None:
    found = specs()
    assert {key[0] for key, spec in found.items() if spec.kept_open} == KEPT_OPEN
    for probe in ("nvidia", "history"):
        spec = found[probe, probe]
        assert (spec.resident, spec.shared) == (True, False)


def test_disks_are_asked_in_a_process_of_their_own() -> None:
    found = specs()
    assert found["disks", "devices"].shared
    assert not found["disks", "health"].shared


def test_resident_that_keeps_a_capability_shares_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "kernel_log=SYSLOG disks=SYS_ADMIN")
    found = specs()
    log = found["kernel_log", "kernel_log"]
    assert (log.resident, log.shared) == (True, False)
    assert found["disks", "devices"].shared
    monkeypatch.setenv(VARIABLE, "nonsense")
    assert specs()["kernel_log", "kernel_log"].kept_open
