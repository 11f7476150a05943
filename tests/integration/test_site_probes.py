"""Probes of a site: found on PYTHONPATH, and alone in their failures."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from testbed.node import ROOT, Node, environment, run, wait_until

MINIMAL = """
from nodevitals.probe import Families, Probe

metrics = Families("site")
VALUE = metrics.gauge("value", "A value.")

class SiteProbe(Probe):
    name = "site"
    families = metrics

    def run(self, readings):
        readings.add(VALUE, 1)
"""


def add_probe(folder: Path, name: str, source: str) -> str:
    """Write a site's probe; return the PYTHONPATH that has it."""
    home = folder / "site/nodevitals/probes"
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{name}.py").write_text(source)
    return f"{folder / 'site'}:{environment()['PYTHONPATH']}"


def example_of_the_page() -> str:
    """Return the probe that CONTRIBUTING.md shows."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return textwrap.dedent(text.partition("```python\n")[2].partition("    ```")[0])


def test_the_example_of_contributing_runs(tmp_path: Path) -> None:
    path = add_probe(tmp_path, "threads", example_of_the_page())
    done = run("probe", "threads", "--raw", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "\nnodevitals_threads_limit " in done.stdout
    assert "\nnodevitals_threads_current " in done.stdout
    config = tmp_path / "config.yaml"
    config.write_text("probes: {threads: {limit: false}}")
    done = run("probe", "threads", "--raw", f"--config.file={config}", PYTHONPATH=path)
    assert "nodevitals_threads_limit" not in done.stdout


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
        ("", "defines 0 probes; it must define one"),
        (MINIMAL.replace('"site"\n', '"node"\n', 1), "its name is 'node'; it must be 'site'"),
        (
            MINIMAL.replace('Families("site")', 'Families("node")').replace('"value"', '"cpus"'),
            "family nodevitals_node_cpus is declared by another probe in another way",
        ),
        (
            MINIMAL + "\n    @classmethod\n    def targets(cls, settings):\n        return 1 / 0\n",
            "targets(): ZeroDivisionError",
        ),
    ],
    ids=["import", "syntax", "exit", "empty", "other name", "family clash", "targets"],
)
def test_a_probe_that_cannot_be_used_fails_alone(tmp_path: Path, source: str, reason: str) -> None:
    path = add_probe(tmp_path, "site", source)
    probes = {"site": {"interval": "1s"}, "misbehave": {"behaviours": ["healthy"]}}
    with Node(tmp_path, {"probes": probes}, PYTHONPATH=path) as node:
        outcome = {"probe": "site", "outcome": "error"}
        wait_until(lambda: node.value("nodevitals_probe_runs_total", **outcome))
        assert node.value("nodevitals_probe_success", probe="site") == 0
        success = {"probe": "misbehave", "target": "healthy"}
        wait_until(lambda: node.value("nodevitals_probe_success", **success) == 1)
        assert node.value("nodevitals_node_cpus")
        lines = [line for line in node.log().splitlines() if "site: error (unusable)" in line]
        assert len(lines) == 1
        assert reason in lines[0]


def test_settings_of_a_probe_that_cannot_be_used_stop_no_agent(tmp_path: Path) -> None:
    path = add_probe(tmp_path, "site", "import no_such_module")
    config = tmp_path / "config.yaml"
    config.write_text("probes: {site: {anything: 1}}")
    assert run("check-config", str(config), PYTHONPATH=path).returncode == 0
    assert run("check-config", str(config)).returncode == 1


def test_a_mistake_in_labels_is_reported_with_its_line(tmp_path: Path) -> None:
    path = add_probe(tmp_path, "site", MINIMAL.replace("VALUE, 1)", "VALUE, 1, 'too many')"))
    done = run("probe", "site", "--raw", PYTHONPATH=path)
    assert done.returncode == 1
    line = MINIMAL.splitlines().index("        readings.add(VALUE, 1)") + 1
    assert f"nodevitals/probes/site.py:{line})" in done.stderr
    assert "LabelError: nodevitals_site_value has the labels ()" in done.stderr


def test_a_state_in_another_shape_is_replaced(tmp_path: Path) -> None:
    """A state in another shape becomes a new one: else the probe would fail after an upgrade."""
    source = """
import msgspec
from nodevitals.probe import Families, Probe

metrics = Families("site")
RUNS = metrics.gauge("runs", "Number of runs.")

class SiteState(msgspec.Struct):
    FIELD: int = 0

class SiteProbe(Probe):
    name = "site"
    families = metrics
    State = SiteState
    persistent = True

    def run(self, readings):
        self.state.FIELD += 1
        readings.add(RUNS, self.state.FIELD)
"""
    config = {"probes": {"site": {"interval": "500ms"}}}
    path = add_probe(tmp_path, "site", source.replace("FIELD", "count"))
    with Node(tmp_path, config, PYTHONPATH=path) as node:
        wait_until(lambda: (node.value("nodevitals_site_runs") or 0) >= 3)
    with Node(tmp_path, config, PYTHONPATH=path) as node:
        assert wait_until(lambda: node.value("nodevitals_site_runs")) > 3
    source = source.replace("FIELD: int = 0", "FIELD: int = 0\n    count: str = ''")
    add_probe(tmp_path, "site", source.replace("FIELD", "number"))
    with Node(tmp_path, config, PYTHONPATH=path) as node:
        assert wait_until(lambda: node.value("nodevitals_site_runs")) <= 3
