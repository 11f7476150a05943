"""Repairs for tests: manifests in files, a command that records its words, a hub that is killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nodevitals_hub.repair.repair_records import Repair
from testbed.kubernetes_api.nodes import NAMESPACE
from testbed.respond import Responding

RESET_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": NAMESPACE, "labels": {"site/node": "{node}"}},
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "nodeName": "{node}",
                "containers": [
                    {"name": "reset", "image": "reset:1", "args": ["--gpu", "{device_ids}"]}
                ],
            }
        },
    },
}
REMEDIATION: dict[str, Any] = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediation",
    "metadata": {
        "namespace": NAMESPACE,
        "annotations": {"remediation.medik8s.io/node-name": "{node}"},
    },
    "spec": {"remediationStrategy": "Automatic"},
}


def manifest(folder: Path, document: Any = None, **entry: Any) -> dict[str, Any]:
    """An entry of `repairs` with the file of an object."""
    file = folder / f"{entry.get('name', 'reset-gpu')}.yaml"
    file.write_text(yaml.safe_dump(RESET_JOB if document is None else document))
    usual = {"name": "reset-gpu", "action": "reset_device", "dry_run": False}
    return {**usual, "manifest_file": str(file), **entry}


class Ticket:
    """A command that appends its words to a file, and does what `then` says in Python."""

    def __init__(self, folder: Path, then: str = "") -> None:
        self.log = folder / "tickets"
        self.program = folder / "ticket"
        self.program.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, time\n"
            f"with open({str(self.log)!r}, 'a') as log:\n"
            "    log.write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"{then}\n"
        )
        self.program.chmod(0o755)

    def entry(self, *words: str, **entry: Any) -> dict[str, Any]:
        """An entry of `repairs` with this command."""
        command = [str(self.program), *(words or ("--node", "{node}", "{reason}"))]
        usual = {"name": "ticket", "action": "reset_device", "dry_run": False}
        return {**usual, "command": command, **entry}

    def calls(self) -> list[list[str]]:
        """The words of each start."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(one) for one in lines]


async def repairs_of(found: Responding) -> list[Repair]:
    """All repairs of a hub; the oldest first."""
    opened, ended = await found.isolations.book.listed(1000)
    return sorted(
        await found.isolations.repairs.book.known([*opened, *ended]), key=lambda one: one.id
    )


class KilledError(BaseException):
    """Ends the hub at once."""


def kill_at_write(found: Responding, number: int, is_done: bool) -> Callable[[], int]:
    """Kill the hub directly before or after its write of that number. Returns the count so far."""
    database = found.hub.database
    do, count = database.do, 0

    async def counted(work: Any) -> Any:
        nonlocal count
        count += 1
        if count >= number and not is_done:
            raise KilledError
        result = await do(work)
        if count >= number:
            raise KilledError
        return result

    database.do = counted  # type: ignore[method-assign]
    return lambda: count
