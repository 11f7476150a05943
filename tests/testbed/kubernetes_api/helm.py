"""A cluster for Helm's dry run against a server, which reads Secrets with `lookup`.

Helm asks for the version, the kinds, and whether the server validates fields itself.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import helm_python
import yaml

from testbed.charts import CHART, NAMESPACE, of_kind
from testbed.kubernetes_api import discovery
from testbed.kubernetes_api.answers import Object
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.server import KubernetesApi
from testbed.kubernetes_api.store import Kind

SECRET = Kind("v1", "Secret", "secrets")
KINDS = (
    SECRET,
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Service", "services"),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("apps/v1", "DaemonSet", "daemonsets"),
    Kind("apps/v1", "Deployment", "deployments"),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False),
)


class Cluster(KubernetesApi):
    """Secrets by name, and dry runs that see them."""

    def __init__(self, folder: Path) -> None:
        reads = {(verb, kind.resource) for kind in KINDS for verb in ("get", "list")}
        documents = discovery.documents(KINDS)
        reads |= {("get", path) for path in documents}
        # Go clients send a token only over TLS.
        super().__init__(folder, KINDS, reads, tls_name="127.0.0.1")
        for path, one in documents.items():
            self.paths[path] = path
            self.handlers["get", path] = partial(_document, one)
        self.secrets = self.objects[SECRET.resource]

    def install(self, values: dict[str, Any]) -> list[Object]:
        """The objects that an installation makes; the cluster keeps the Secrets."""
        kubeconfig = self.kubeconfig.read_text()
        with helm_python.Config(kubeconfig_content=kubeconfig, namespace=NAMESPACE) as config:
            release = config.install(
                CHART, "nodevitals", values, namespace=NAMESPACE, dry_run="server"
            )
        objects = [one for one in yaml.safe_load_all(release["manifest"]) if one]
        for one in of_kind(objects, SECRET.name):
            # Helm marks what it makes, and changes nothing without these marks.
            marks = {"release-name": "nodevitals", "release-namespace": NAMESPACE}
            annotations = one["metadata"].setdefault("annotations", {})
            annotations |= {f"meta.helm.sh/{key}": value for key, value in marks.items()}
            self.put(SECRET, one)
        return objects


def _document(one: Object, _: Call) -> Object:
    return one
