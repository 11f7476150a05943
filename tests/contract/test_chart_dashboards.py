"""Dashboards in the chart, and the size of everything that Helm keeps in the cluster."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import helm_python as helm
import pytest

from testbed.charts import CHART, Object, of_kind, render
from testbed.node import ROOT

SHIPPED = ROOT / "helm/nodevitals/files/dashboards"
# https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size
SECRET_LIMIT = 2**20


def dashboards(**values: Any) -> list[Object]:
    """Return the ConfigMaps of dashboards."""
    maps = of_kind(render({"dashboards": values}), "ConfigMap")
    return [one for one in maps if "-dashboard-" in one["metadata"]["name"]]


@pytest.mark.parametrize("languages", [["en"], ["zh"], ["en", "zh"], []])
def test_each_dashboard_is_the_shipped_one(languages: Sequence[str]) -> None:
    shipped = [
        json.loads(file.read_text())
        for language in languages
        for file in (SHIPPED / language).glob("*.json")
    ]
    made = dashboards(languages=languages)
    found = [json.loads(text) for one in made for text in one["data"].values()]
    assert sorted(found, key=str) == sorted(shipped, key=str)


def test_both_languages_share_a_grafana() -> None:
    """The sidecar writes all files into one folder, and Grafana refuses a uid that it has."""
    made = dashboards(languages=["en", "zh"])
    files = [name for one in made for name in one["data"]]
    uids = [json.loads(text)["uid"] for one in made for text in one["data"].values()]
    assert len(set(files)) == len(set(uids)) == len(made) == 16


def test_the_sidecar_selects_them() -> None:
    """By its default label, in any namespace; and puts them into folders by language."""
    made = dashboards(languages=["en", "zh"], namespace="grafana", labels={"release": "g"})
    for one in made:
        metadata = one["metadata"]
        assert metadata["namespace"] == "grafana"
        assert metadata["labels"].items() >= {"grafana_dashboard": "1", "release": "g"}.items()
        is_english = metadata["name"].endswith("-en")
        folder = "nodevitals" if is_english else "nodevitals 中文"
        assert metadata["annotations"]["grafana_folder"] == folder
    assert dashboards(enabled=False) == []
    assert "annotations" not in dashboards(folders={"en": ""})[0]["metadata"]


def release_size(values: dict[str, Any]) -> int:
    """Return the size of the Secret of a release: JSON with the chart and the manifest, both
    as they are, compressed, in base64.
    https://github.com/helm/helm/blob/main/pkg/storage/driver/util.go
    """
    with helm.Chart.load(CHART) as chart:
        parts = {
            kind: [
                {"name": one["name"], "data": base64.b64encode(one["data"].encode()).decode()}
                for one in found
            ]
            for kind, found in (("files", chart.files), ("templates", chart.templates))
        }
        schema = base64.b64encode(json.dumps(chart.schema).encode()).decode()
        made = chart.render(values, name="nodevitals")
        described = {**parts, "schema": schema, "values": chart.values}
    release = {"chart": described, "config": values, "manifest": "\n---\n".join(made.values())}
    return len(base64.b64encode(gzip.compress(json.dumps(release).encode(), 9)))


def test_a_release_fits_into_its_secret() -> None:
    """With all that can be made, and room for the next files."""
    everything = {
        "dashboards": {"languages": ["en", "zh"]},
        "rules": {"kind": "PrometheusRule"},
        "alertmanager": {"kind": "Secret"},
        "monitor": {"kind": "PodMonitor"},
    }
    assert release_size(everything) < 0.85 * SECRET_LIMIT


def test_each_config_map_fits_into_its_limit() -> None:
    for one in dashboards(languages=["en", "zh"]):
        # What kubectl apply keeps in an annotation, for those who render with helm template.
        assert len(json.dumps(one).encode()) < 262_144
