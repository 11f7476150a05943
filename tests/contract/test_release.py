"""The release's own commands, run here: the chart that it packages names the images that it pushed.

The workflow's expressions are evaluated by a table; `helm` is Helm's package command, by its SDK.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from nodevitals import __version__
from testbed import charts
from testbed.node import ROOT

JOBS = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["jobs"]
DIGESTS = {"agent": f"sha256:{'a1' * 32}", "hub": f"sha256:{'b2' * 32}"}
HELM = f"""#!{sys.executable}
import sys
import helm_python
command, chart, *options = sys.argv[1:]
assert command == "package", command
given = dict(zip(options[::2], options[1::2]))
print(helm_python.package(
    chart, destination=given["-d"], version=given["--version"], app_version=given["--app-version"]
))
"""
GITHUB = {
    "GITHUB_REPOSITORY": "Example-Org/NodeVitals",
    "GITHUB_REPOSITORY_OWNER": "Example-Org",
    "GITHUB_REF_NAME": f"v{__version__}",
}


def evaluated(text: str, values: Mapping[str, str]) -> str:
    """A text of the workflow. Raises KeyError for an expression that has no value here."""
    return re.sub(r"\$\{\{\s*(.+?)\s*\}\}", lambda found: values[found[1]], text)


def step(job: str, of: str) -> dict[str, Any]:
    """The one step of a job with a text in its command, or in the name of its action."""
    [found] = [one for one in JOBS[job]["steps"] if of in one.get("run", one.get("uses", ""))]
    return dict(found)


def run(one: dict[str, Any], folder: Path, values: dict[str, str]) -> dict[str, str]:
    """Execute a step in a folder as the runner does. Returns its outputs; what it prints on stderr
    is that of a CalledProcessError.
    """
    outputs, programs = folder / "outputs", folder / "programs"
    outputs.unlink(missing_ok=True)
    given = {name: evaluated(text, values) for name, text in one.get("env", {}).items()}
    subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", evaluated(one["run"], values)],
        cwd=folder,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(outputs)}
        | GITHUB
        | given,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = outputs.read_text().splitlines() if outputs.exists() else []
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout, in which `helm` packages."""
    for part in ("helm", "exporter", "hub"):
        (tmp_path / part).symlink_to(ROOT / part)
    program = tmp_path / "programs/helm"
    program.parent.mkdir()
    program.write_text(HELM)
    program.chmod(0o755)
    return tmp_path


def pushed(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The tags under which the release pushes the images, and the outputs of that job."""
    job = JOBS["image"]
    tags, outputs = {}, {}
    for entry in job["strategy"]["matrix"]["include"]:
        values = {f"matrix.{name}": value for name, value in entry.items()}
        push = step("image", "docker/build-push-action@")
        for one in job["steps"]:
            if "run" in one:
                made = run(one, folder, values)
                values |= {f"steps.{one['id']}.outputs.{name}": made[name] for name in made}
            elif one == push:
                tags[entry["target"]] = evaluated(one["with"]["tags"], values)
                values[f"steps.{one['id']}.outputs.digest"] = DIGESTS[entry["target"]]
        for name, text in job["outputs"].items():
            # GitHub joins what is not empty: each entry of the matrix has an output of its own.
            if found := evaluated(text, defaultdict(str, values)):
                assert name not in outputs
                outputs[name] = found
    return tags, outputs


def packaged(folder: Path, outputs: dict[str, str]) -> helm.Chart:
    """The chart that the release publishes."""
    values = {f"needs.image.outputs.{name}": text for name, text in outputs.items()}
    run(step("wheel-and-chart", "helm package"), folder, values)
    [archive] = (folder / "dist").glob("nodevitals-*.tgz")
    return helm.Chart.load_archive(archive.read_bytes())


def test_the_published_chart_pulls_the_images_that_were_pushed(folder: Path) -> None:
    tags, outputs = pushed(folder)
    assert tags == {
        "agent": f"ghcr.io/example-org/nodevitals:{__version__}",
        "hub": f"ghcr.io/example-org/nodevitals-hub:{__version__}",
    }
    assert JOBS["wheel-and-chart"]["needs"] == "image"
    with packaged(folder, outputs) as chart:
        texts = chart.render({"hub": {"enabled": True}}, name="nodevitals", namespace="monitoring")
        annotations = chart.metadata["annotations"]
    objects = charts.objects_of(texts)
    workloads = charts.of_kind(objects, "DaemonSet") + charts.of_kind(objects, "Deployment")
    containers = [charts.container(one) for one in workloads]
    images = {one["name"]: one["image"] for one in containers}
    assert images == {"nodevitals": tags["agent"], "hub": tags["hub"]}
    assert yaml.safe_load(annotations["artifacthub.io/images"]) == [
        {"name": name, "image": f"{tags[target]}@{DIGESTS[target]}"}
        for name, target in (("nodevitals", "agent"), ("nodevitals-hub", "hub"))
    ]


def test_the_checkout_is_not_changed(folder: Path) -> None:
    before = (charts.CHART / "values.yaml").read_bytes()
    _, outputs = pushed(folder)
    with packaged(folder, outputs) as chart:
        released = chart.values
    assert (charts.CHART / "values.yaml").read_bytes() == before
    own = yaml.safe_load(before)
    for values in (own, released):
        del values["image"]["repository"], values["hub"]["image"]["repository"]
    assert released == own


@pytest.mark.parametrize("text", ["", "nodevitals:1.0", "ghcr.io/a/b@sha256:abc", "ghcr.io/a/b:1"])
def test_an_image_that_was_not_pushed_is_refused(folder: Path, text: str) -> None:
    _, outputs = pushed(folder)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        packaged(folder, {**outputs, "hub": text})
    assert f"{text!r} is not REPOSITORY:TAG@sha256:DIGEST" in failed.value.stderr
    assert not (folder / "dist").exists()
