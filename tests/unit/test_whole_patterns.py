"""A name with a final newline is no name; the CRD has each pattern as RE2 takes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from helm.crd import crd

from nodevitals.checks.model import CheckId, NodeName, PresetName
from nodevitals.probes.fabric.leases import ProbeName
from nodevitals.probes.fabric.orders import OrderId
from nodevitals_hub.triggers.alert_plan import Fingerprint


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (NodeName, "a"),
        (PresetName, "quick"),
        (CheckId, "20260101-000000-abcdef"),
        (ProbeName, "rdma"),
        (OrderId, "order-0001"),
        (Fingerprint, "0123456789abcdef"),
    ],
)
def test_the_whole_name_matches(kind: Any, good: str) -> None:
    assert msgspec.convert(good, kind) == good
    for bad in (good + "\n", "\n" + good, good + "\n" + good, good + " "):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)


def test_the_crd_has_no_escape_that_re2_lacks() -> None:
    text = crd()
    assert "pattern: ^" in text
    assert r"\Z" not in text
