"""Helm renders the chart `helm/nodevitals`, in a process of its own: its Go runtime would bring
threads and signal handlers into the tests'.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import yaml

from testbed.node import ROOT

CHART = ROOT / "helm/nodevitals"
Object = dict[str, Any]


class ChartError(Exception):
    """What Helm printed."""


class Chart:
    """The chart, loaded once."""

    def __enter__(self) -> Chart:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.chart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT / "tests",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def manifests(self, values: dict[str, Any], namespace: str = "monitoring") -> dict[str, str]:
        """Return the rendered text by template. Raises ChartError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([values, namespace]), file=self._process.stdin, flush=True)
        made, error = json.loads(self._process.stdout.readline())
        if error:
            raise ChartError(error)
        found: dict[str, str] = made
        return found

    def objects(self, values: dict[str, Any], namespace: str = "monitoring") -> list[Object]:
        """Return the rendered objects. Raises ChartError."""
        texts = self.manifests(values, namespace).values()
        return [one for text in texts for one in load_all(text) if one]


def load_all(text: str) -> list[Any]:
    """Return the documents of YAML, quickly."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _serve() -> None:
    """Render the values of each line."""
    import helm_python

    with helm_python.Chart.load(CHART) as chart:
        for line in sys.stdin:
            values, namespace = json.loads(line)
            try:
                made, error = chart.render(values, name="nodevitals", namespace=namespace), ""
            except helm_python.HelmError as refused:
                made, error = {}, str(refused)
            print(json.dumps([made, error]), flush=True)


if __name__ == "__main__":
    _serve()
