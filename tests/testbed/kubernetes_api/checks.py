"""The custom resource Check: its status follows the schema of the CRD, and what kubectl does.

A status without uid and resourceVersion is refused, which a real API server accepts; so is a field
that the schema does not name, which a real one drops.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from testbed.kubernetes_api.answers import Object
from testbed.kubernetes_api.server import KubernetesApi
from testbed.kubernetes_api.store import Kind
from testbed.node import ROOT

CHECKS = "checks.nodevitals.io"
# What it permits; the role of the chart is the same.
ROLE = {
    *((verb, CHECKS) for verb in ("get", "list", "watch")),
    ("patch", f"{CHECKS}/status"),
}
_formats = jsonschema.FormatChecker(formats=())


@_formats.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _status_schema() -> Object:
    crd = yaml.safe_load((ROOT / "helm/nodevitals/files/crds/checks.yaml").read_text())
    [version] = crd["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return {**status, "additionalProperties": False}


CHECK = Kind(
    "nodevitals.io/v1alpha1",
    "Check",
    "checks",
    needs=("uid", "resourceVersion"),
    status=jsonschema.Draft4Validator(_status_schema(), format_checker=_formats),
)


class CheckApi(KubernetesApi):
    """The server; all resources are in the namespace `ops`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [CHECK], ROLE)

    def create(self, name: str, spec: Any) -> str:
        """Create a resource; returns its uid."""
        metadata = {"name": name, "namespace": "ops", "generation": 1}
        metadata["creationTimestamp"] = f"2026-01-01T00:00:00Z-{self.version:09d}"
        one = {"apiVersion": CHECK.version, "kind": CHECK.name, "spec": spec, "metadata": metadata}
        return str(self.put(CHECK, one)["metadata"]["uid"])

    def edit(self, name: str, spec: Any) -> None:
        """Replace the spec."""
        with self.lock:
            one = self.get(CHECK, "ops", name)
            one["spec"] = spec
            one["metadata"]["generation"] += 1
            self.put(CHECK, one, "MODIFIED")

    def delete(self, name: str) -> None:
        """Delete a resource."""
        self.remove(CHECK, "ops", name)

    def status(self, name: str) -> Object:
        """The status of a resource."""
        with self.lock:
            return dict(self.get(CHECK, "ops", name).get("status") or {})

    def write_status(self, name: str, status: Object) -> None:
        """Write a status, as a user with that right does."""
        with self.lock:
            one = self.get(CHECK, "ops", name)
            one["status"] = status
            self.put(CHECK, one, "MODIFIED")

    def names(self) -> list[str]:
        """The names of all resources."""
        with self.lock:
            return [one["metadata"]["name"] for one in self.objects[CHECKS].values()]

    def phases(self) -> list[str]:
        """The phases of all resources."""
        return [self.status(name).get("phase", "") for name in self.names()]

    def count(self, verb: str) -> int:
        """Number of requests with that verb."""
        return sum(count for (of, _), count in self.requests.items() if of == verb)
