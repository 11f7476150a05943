"""The values of other charts that this chart ships as examples."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from testbed.charts import CHART, of_kind, render
from testbed.servers import BINARIES


def test_the_example_for_kube_prometheus_stack_fits(tmp_path: Path) -> None:
    """Its part for this chart is valid values, and its flags are those of Prometheus."""
    text = (CHART / "examples/kube-prometheus-stack.yaml").read_text()
    stack, _, own = text.partition("# ---- Values of nodevitals -")
    values = yaml.safe_load(re.sub("^# ?", "", own.partition("\n")[2], flags=re.MULTILINE))
    objects = render(values)
    assert of_kind(objects, "PrometheusRule")
    names = {one["metadata"]["name"] for one in of_kind(objects, "Secret")}
    operator = yaml.safe_load(stack)
    assert operator["alertmanager"]["alertmanagerSpec"]["configSecret"] in names
    flags = operator["prometheus"]["prometheusSpec"]["additionalArgs"]
    argv = [f"--{flag['name']}={flag['value']}" for flag in flags]
    prometheus = [str(BINARIES / "prometheus"), *argv, "--config.file=missing.yaml"]
    done = subprocess.run(prometheus, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "missing.yaml" in done.stderr, done.stderr
    assert "unknown" not in done.stderr


def test_the_values_of_the_page_on_kubernetes_fit() -> None:
    """Together they are what its commands and its text name: agents, rules, a receiver."""
    text = (CHART.parents[1] / "docs/start-kubernetes.md").read_text()
    blocks = re.findall(r"```yaml title=\"values.yaml\"\n(.*?)```", text, re.DOTALL)
    values = {key: value for block in blocks for key, value in yaml.safe_load(block).items()}
    objects = render(values)
    agents = {one["metadata"]["name"] for one in of_kind(objects, "DaemonSet")}
    assert agents == set(re.findall(r"daemonset/(\S+)", text))
    found = {one["kind"] for one in objects}
    assert found >= {"PodMonitor", "PrometheusRule", "Secret", "ConfigMap"}
    secret = str(of_kind(objects, "Secret"))
    assert "operators@example.com" in secret
    assert "nodevitals.subject" in secret
