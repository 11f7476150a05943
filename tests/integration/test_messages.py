"""A message between probes: when the run that has it starts."""

from __future__ import annotations

from pathlib import Path

from testbed.node import Node, wait_until

VALUE = "nodevitals_misbehave_value"


def test_a_message_that_comes_during_a_run_is_read_soon(tmp_path: Path) -> None:
    """The run that is in flight does not have it, and the next one is due in ten minutes."""
    folder = str(tmp_path)
    receiver = {"behaviours": ["counts"], "interval": "10m", "timeout": "5m", "folder": folder}
    sender = {"behaviours": ["sends"], "interval": "2s", "timeout": "2s", "folder": folder}
    probes = {"misbehave_prompt": receiver, "misbehave": sender, "node": {"enabled": False}}
    with Node(tmp_path, {"probes": probes}) as node:
        wait_until(lambda: node.value(VALUE, item="counts runs") == 2)
