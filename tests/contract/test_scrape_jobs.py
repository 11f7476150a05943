"""The shipped scrape jobs: each node has an instance of its own, its name or address alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.pagesteps import fences
from nodevitals.commands.init import outputs
from testbed.node import ROOT
from testbed.servers import BINARIES

INSTANCES = {
    "gpu-1:9855": "gpu-1",
    "gpu-2.dc1.example.com:9855": "gpu-2.dc1.example.com",
    "10.0.0.3:9855": "10.0.0.3",
    "[fd00::11]:9855": "fd00::11",
    "[fd00::12]:9855": "fd00::12",
}
PACKAGED = ROOT / "exporter/packaging/prometheus.yaml"


def texts() -> Iterator[tuple[str, str]]:
    """Yield the YAML texts that may have a job, by where they are."""
    for path in sorted(ROOT.glob("exporter/packaging/*.yaml")) + sorted(
        ROOT.glob("dashboards/compose/*.yaml")
    ):
        yield str(path.relative_to(ROOT)), path.read_text()
    pages = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    for path in [*pages, ROOT / "helm/nodevitals/README.md"]:
        for fence in fences(path.name, path.read_text()):
            if fence.kind == "yaml":
                yield f"{path.relative_to(ROOT)}[{fence.line}]", fence.text
    site = outputs.Site(cluster="c", nodes=tuple(INSTANCES))
    made = outputs.prometheus(PACKAGED.read_text(), site)
    yield "nodevitals init", made["prometheus.yml"]


def jobs() -> dict[str, dict[str, Any]]:
    """Return the jobs of agents, by their place."""
    found: dict[str, dict[str, Any]] = {}
    for place, text in texts():
        if "job_name" in text:
            read = yaml.safe_load(text)
            listed = read if isinstance(read, list) else read.get("scrape_configs", ())
            found |= {f"{place} {job['job_name']}": job for job in listed if of_agents(job)}
    return found


def of_agents(job: dict[str, Any]) -> bool:
    """Whether a job scrapes agents: by their port, or by lists that others write."""
    targets = [one for config in job.get("static_configs", ()) for one in config["targets"]]
    return not targets or any(one.endswith(":9855") for one in targets)


JOBS = jobs()


def test_all_are_found() -> None:
    assert {re.sub(r"(\[\d+\])? [^ ]+$", "", place) for place in JOBS} == {
        "dashboards/compose/prometheus.yaml",
        "docs/kubernetes.md",
        "docs/probes.md",
        "docs/second-level.md",
        "exporter/packaging/prometheus.yaml",
        "nodevitals init",
    }


@pytest.mark.parametrize("place", JOBS)
def test_instances(place: str, tmp_path: Path) -> None:
    job = JOBS[place]
    shown = {
        "job_name": "nodevitals",
        "static_configs": [{"targets": list(INSTANCES)}],
        "relabel_configs": job.get("relabel_configs", []),
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [shown]}))
    done = subprocess.run(
        [
            str(BINARIES / "promtool"), "check", "service-discovery",
            str(tmp_path / "prometheus.yaml"), "nodevitals", "--timeout=2s",
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    labels = [one["labels"] for one in json.loads(done.stdout)]
    assert {one["__address__"]: one["instance"] for one in labels} == INSTANCES


def test_no_page_selects_an_instance_with_a_port() -> None:
    """Nothing would match: the jobs take the port away."""
    found = re.compile(r"""instance["']?[!=~: ]+["'](?!https?:)[^"'\s]*:[0-9]{2,}""")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("rules/runbooks/**/*.md")]
    assert found.search('instance=~"n0[0-9]{2}:9855"')
    assert found.search('{instance="n017:9855"}')
    assert [page.name for page in pages if found.search(page.read_text())] == []
