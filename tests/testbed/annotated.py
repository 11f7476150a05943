"""Alerts with the labels and texts that the shipped rules give them, without a Prometheus."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from testbed.node import ROOT
from testbed.servers import BINARIES

_BETWEEN = "\x1e"


@cache
def _rules() -> list[dict[str, Any]]:
    """Return all rules that are shipped."""
    documents = (yaml.safe_load(file.read_text()) for file in (ROOT / "rules").glob("*.yaml"))
    return [rule for one in documents for group in one["groups"] for rule in group["rules"]]


def render(folder: Path, text: str, data: dict[str, Any]) -> str:
    """Return a template's output; `data` is what Alertmanager gives to templates."""
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    done = subprocess.run(
        [
            *(BINARIES / "amtool", "template", "render"),
            f"--template.glob={ROOT}/alertmanager/templates/*.tmpl",
            f"--template.text={text}",
            f"--template.data={file}",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": "/nonexistent", "TZ": "UTC"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def annotated(folder: Path, fault: str, value: float = 1, /, **labels: str) -> dict[str, Any]:
    """Return the alert on a fault, or of this name: its labels and its annotations.

    The texts are rendered by Alertmanager's templates, which lack Prometheus' `query` and
    `humanize`: a text that uses them is left out.
    """
    recorded = next((one for one in _rules() if _fault(one) == fault and "record" in one), {})
    rule = next(
        one
        for one in _rules()
        if "alert" in one
        and (fault in (one["alert"], _fault(one)) or f'fault="{fault}"' in one["expr"])
    )
    labels = {
        "alertname": rule["alert"],
        "cluster": "atlas",
        **recorded.get("labels", {}),
        **rule.get("labels", {}),
        **labels,
    }
    texts = {
        name: text
        for name, text in rule["annotations"].items()
        if not any(word in text for word in ("query", "humanize"))
    }
    prologue = f"{{{{ $labels := .CommonLabels }}}}{{{{ $value := {value:g} }}}}"
    use = "{{ if false }}{{ $labels }}{{ $value }}{{ end }}"
    rendered = render(
        folder, prologue + use + _BETWEEN.join(texts.values()), {"commonLabels": labels}
    )
    return {
        "labels": labels,
        "annotations": dict(zip(texts, rendered.split(_BETWEEN), strict=True)),
    }


def _fault(rule: dict[str, Any]) -> str:
    fault: str = rule.get("labels", {}).get("fault", "")
    return fault
