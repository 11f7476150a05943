"""Probe `mounts`: each target has its own settings and nothing of the others."""

from __future__ import annotations

import json

import msgspec

from nodevitals import probes
from nodevitals.config import parse
from nodevitals.engine.configuration import plan_targets
from nodevitals.engine.protocol import TargetSpec
from nodevitals.probes.mounts.probe import MountsProbe, MountsSettings, MountTarget
from nodevitals.wire import encode


def test_settings_of_3000_targets_together_are_under_one_megabyte() -> None:
    """With every mount in each target's settings they were 543 MB."""
    settings = MountsSettings(
        targets=tuple(
            MountTarget(
                path=f"/mnt/projects/project-{number:04}/checkpoints",
                access="write",
                fstype="nfs4",
                source=f"filer-{number % 8}.storage.example:/export/project-{number:04}",
            )
            for number in range(3000)
        )
    )
    pairs = MountsProbe.targets(settings)
    assert len(pairs) == 3000
    assert sum(len(encode(pair)) for pair in pairs) < 1_000_000


def planned(**mounts: dict[str, str]) -> dict[str, TargetSpec]:
    targets = [{"path": f"/mnt/{name}", **mount} for name, mount in mounts.items()]
    document = {"probes": {"mounts": {"targets": targets}}}
    config = parse(json.dumps(document).encode(), probes.registered())
    return {spec.target: spec for spec in plan_targets(config, only=["mounts"])}


def test_editing_one_mount_changes_only_its_target() -> None:
    before = planned(data={"access": "write"}, models={}, scratch={"fstype": "xfs"})
    after = planned(data={"access": "write"}, models={"access": "none"}, scratch={"fstype": "xfs"})
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"/mnt/models"}


def test_a_mount_may_have_a_timing_of_its_own() -> None:
    specs = planned(
        data={"interval": "60s", "timeout": "30s"},
        scratch={"timeout": "2s"},
        fast={"interval": "5s"},
        kept={"interval": "60s", "stale_after": "10m"},
        models={},
    )
    timings = {path: msgspec.structs.astuple(spec.timing) for path, spec in specs.items()}
    assert timings == {
        "/mnt/data": (60, 30, 180),
        "/mnt/scratch": (15, 2, 45),
        "/mnt/fast": (5, 5, 15),
        "/mnt/kept": (60, 10, 600),
        "/mnt/models": (15, 10, 45),
    }


def test_adding_a_mount_changes_no_other_target() -> None:
    before, after = planned(data={}), planned(data={}, models={})
    assert after["/mnt/data"] == before["/mnt/data"]
    assert after.keys() - before.keys() == {"/mnt/models"}
