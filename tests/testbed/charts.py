"""Renders the chart as Helm does. In: a file of values. Out: the objects, by kind and name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

from testbed.node import ROOT

CHART = ROOT / "helm/nodevitals"
SETS = sorted((ROOT / "tests/data/chart").glob("*.yaml"))
NAMESPACE = "monitoring"

Object = dict[str, Any]


def values_of(path: Path) -> dict[str, Any]:
    """The values in a file."""
    return dict(helm.values_from_yaml(path.read_text()))


def render(
    values: dict[str, Any], name: str = "nodevitals", namespace: str = NAMESPACE
) -> list[Object]:
    """All objects. Raises HelmValuesError where the values do not fit the schema."""
    with helm.Chart.load(CHART) as chart:
        return objects_of(chart.render(values, name=name, namespace=namespace))


def objects_of(files: dict[str, str]) -> list[Object]:
    """The objects in what Helm renders, by path."""
    return [
        one
        for path, text in files.items()
        if not path.endswith("NOTES.txt")
        for one in load_all(text)
        if one
    ]


def load_all(text: str) -> list[Any]:
    """The documents of a text, by libyaml's parser where PyYAML was built with it."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def rendered(path: Path) -> tuple[Object, ...]:
    """The objects of one file of values; not to be changed."""
    return tuple(render(values_of(path)))


def of_kind(objects: tuple[Object, ...] | list[Object], kind: str) -> list[Object]:
    """Those of one kind."""
    return [one for one in objects if one["kind"] == kind]


def container(daemonset: Object) -> Object:
    """The container of the agent, or of the hub."""
    [found] = [c for c in pod(daemonset)["containers"] if c["name"] in ("nodevitals", "hub")]
    return dict(found)


def pod(daemonset: Object) -> Object:
    """The pod's specification."""
    return dict(daemonset["spec"]["template"]["spec"])
