"""How often the probe `fabric` runs: what a hub asks of the agent waits for the next run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodevitals.config import parse
from nodevitals.document import DocumentError
from nodevitals.engine.configuration import plan_targets
from nodevitals.probes import registered

OWN = {
    "enabled": True,
    "static": [{"targets": ["10.0.0.1"]}],
    "token_file": "/etc/nodevitals/token",
    "tls": {"cert_file": "/c", "key_file": "/k", "ca_file": "/a"},
    "tests": [{"tool": "perftest", "operation": "write_bw", "device": "mlx5_0"}],
}
HUB = {"token_file": "/etc/nodevitals/hub-token", "names": ["hub.example.org"]}


def seconds(**more: Any) -> tuple[float, float]:
    """Interval and timeout of the target."""
    document = {"probes": {"fabric": {**OWN, **more}}}
    config = parse(msgspec.json.encode(document), registered())
    (target,) = plan_targets(config, ["fabric"])
    return target.timing.interval_seconds, target.timing.timeout_seconds


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, (15, 5)),
        ({"hub": HUB}, (5, 5)),
        ({"hub": HUB, "interval": "30s"}, (30, 5)),
        ({"hub": HUB, "timeout": "2s"}, (5, 2)),
        ({"interval": "2s"}, (2, 2)),
    ],
)
def test_runs_are_frequent_where_a_hub_may_ask(
    more: dict[str, Any], wanted: tuple[float, float]
) -> None:
    assert seconds(**more) == wanted


def test_a_timeout_over_the_interval_of_a_hub_is_a_mistake() -> None:
    with pytest.raises(DocumentError, match="over the interval of 5s"):
        seconds(hub=HUB, timeout="10s")
    assert seconds(hub=HUB, timeout="10s", interval="20s") == (20, 10)
