"""Drills of a running hub, by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.hub import HubProcess
from testbed.node import ROOT, environment

ACT, RUN = "a token that may act here", "a token that may run here"
NODES = {"static": [{"targets": ["gpu-1", "gpu-2"]}]}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with started(tmp_path_factory.mktemp("hub"), {"enabled": True, "longest": "20m"}) as found:
        yield found


def started(folder: Path, drill: dict[str, Any]) -> HubProcess:
    tokens = folder / "tokens.yaml"
    rows = [{"name": "lead", "role": "act", "token": ACT}]
    tokens.write_text(yaml.safe_dump([*rows, {"name": "ci", "role": "run", "token": RUN}]))
    tokens.chmod(0o600)
    access = {"tokens_file": str(tokens)}
    return HubProcess(folder, simulated=True, access=access, nodes=NODES, drill=drill)


def drill(hub: HubProcess, *words: str, token: str = ACT) -> subprocess.CompletedProcess[str]:
    place = hub.folder / "token"
    place.write_text(token)
    argv = [sys.executable, "-m", "nodevitals", "drill", *words]
    argv += ["--hub", f"http://127.0.0.1:{hub.port}", "--token-file", str(place)]
    return subprocess.run(
        argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def samples(hub: HubProcess) -> list[str]:
    text = requests.get(f"http://127.0.0.1:{hub.port}/metrics", timeout=60).text
    return [line for line in text.splitlines() if line.startswith("nodevitals_hub_drill{")]


def test_a_drill_from_its_begin_to_its_end(hub: HubProcess) -> None:
    """It survives a killed hub, and is gone when it was ended."""
    begun = drill(hub, "gpu-1", "--fault", "accelerator_lost", "--component", "accelerator")
    assert begun.returncode == 0, begun.stderr
    [_, row] = begun.stdout.splitlines()
    assert row.split()[1:4] == ["gpu-1", "accelerator_lost", "critical"]
    assert row.split()[-1] == "lead"
    labels = 'component="accelerator",fault="accelerator_lost",node="gpu-1",severity="critical"'
    sorted_labels = ",".join(sorted(samples(hub)[0].partition("{")[2].partition("}")[0].split(",")))
    assert sorted_labels == labels
    hub.kill()
    hub.start()
    assert len(samples(hub)) == 1
    ended = drill(hub, "--end", row.split()[0])
    assert ended.returncode == 0, ended.stderr
    assert samples(hub) == []
    assert " ended " in drill(hub).stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gpu-9", "--fault", "mount_hung"], "not on the lists"),
        (["gpu-1", "--fault", "mount_hung", "--for", "1h"], "drill.longest"),
        (["gpu-1", "--fault", "mount_hung", "--for", "1s"], "seconds"),
        (["gpu-1", "--fault", "Mount Hung"], "fault"),
        (["gpu-1"], "--fault"),
        (["--end", "20261123-031500-x7k2qp"], "no such drill"),
        (["--end", "../checks"], "no drill"),
    ],
)
def test_what_cannot_be_begun_is_refused_in_one_line(
    hub: HubProcess, words: list[str], reason: str
) -> None:
    done = drill(hub, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert samples(hub) == []


def test_one_at_a_time_and_only_by_the_role_act(hub: HubProcess) -> None:
    refused = drill(hub, "gpu-1", "--fault", "mount_hung", token=RUN)
    assert (refused.returncode, "role act" in refused.stderr) == (2, True)
    begun = drill(hub, "gpu-1", "--fault", "mount_hung", "--json")
    again = drill(hub, "gpu-2", "--fault", "mount_hung")
    assert (again.returncode, "another drill" in again.stderr) == (2, True)
    assert drill(hub, "--end", json.loads(begun.stdout)[0]["id"]).returncode == 0


def test_drills_are_off_by_default(tmp_path: Path) -> None:
    with started(tmp_path, {}) as hub:
        done = drill(hub, "gpu-1", "--fault", "mount_hung")
        assert (done.returncode, "drill.enabled" in done.stderr) == (2, True)
