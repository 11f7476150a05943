"""The configuration of the probe `kubernetes`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Optional

import msgspec

from nodevitals.document.local import LocalFile
from nodevitals.probe import ProbeSettings, Problem, Seconds
from nodevitals.probes.common.accelerators import DEVICE_LABELS, OWNER_LABELS, WORKLOAD_LABELS

Source = Literal["auto", "api", "kubelet", "none"]
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_NAMES: dict[str, tuple[str, ...]] = {
    "job_name": (
        "system.hero.ai/job-name",
        "volcano.sh/job-name",
        "training.kubeflow.org/job-name",
        "jobset.sigs.k8s.io/jobset-name",
        "batch.kubernetes.io/job-name",
        "job-name",
    ),
    "owner": ("user.id", "owner"),
    "queue": ("volcano.sh/queue-name", "kueue.x-k8s.io/queue-name", "queue"),
}
MAX_LABELS = 16
MAX_NAMES = 32
_LABEL = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Prometheus or the rules add these labels to every series.
_TAKEN = ("instance", "job", "cluster", *(set(WORKLOAD_LABELS) - set(OWNER_LABELS)), *DEVICE_LABELS)


class KubernetesSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the devices of pods, their labels and the state of the node are read."""

    interval: Optional[Seconds] = 30.0
    """Time between two runs."""
    socket: LocalFile = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """Socket of the kubelet's pod resources API, on the node."""
    source: Source = "auto"
    """Where the labels of pods are read: `api`, the API server; `kubelet`, its HTTPS port; `none`;
    `auto`, the API server where the agent is a pod with a service account, else none."""
    labels: dict[str, tuple[str, ...]] = {}
    """Labels and annotations of a pod that become job_name, owner and queue (those left out keep
    their defaults) and further labels of nodevitals_pod_accelerator_info: the first that the pod
    has. Example: `{owner: [user.id], tenant: [tenant.id], resource_pool:
    [resourcepool.system.hero.ai]}`"""
    refresh: Seconds = 300.0
    """Age at which the labels of pods are read again; for a pod that is not known, at once."""
    node_interval: Seconds = 60.0
    """Time between two readings of the node's conditions; needs the API server."""
    node: Optional[str] = None
    """Name of the node in the cluster; by default $NODE_NAME or the host name. Example: `node-7`"""
    api_url: Optional[str] = None
    """URL of the API server; by default that of the cluster in which the agent is a pod.
    Example: `https://10.0.0.1:6443`"""
    ca_file: LocalFile = f"{SERVICE_ACCOUNT}/ca.crt"
    """Certificates of the authorities that may sign the API server's certificate."""
    token_file: LocalFile = f"{SERVICE_ACCOUNT}/token"
    """File with the token; read for each request, because it is rotated."""
    kubelet_url: Optional[str] = None
    """URL of the kubelet, for `source: kubelet`; by default port 10250 of $HOST_IP or 127.0.0.1.
    Example: `https://10.0.0.7:10250`"""
    kubelet_ca_file: Optional[LocalFile] = None
    """Certificates of the authorities that may sign the kubelet's certificate; by default
    `ca_file`. Example: `/etc/kubernetes/pki/ca.crt`"""
    kubelet_verify: bool = True
    """Whether to verify the kubelet's certificate; many kubelets sign their own."""
    max_pods: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 500
    """Maximum number of pods whose labels are kept."""
    max_series: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    """Maximum number of series of nodevitals_pod_accelerator_info, and of
    nodevitals_pod_pci_device_info."""

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The names to look for, by label: job_name, owner, queue, then the site's."""
        return {**DEFAULT_NAMES, **self.labels}

    @property
    def site_labels(self) -> tuple[str, ...]:
        """The further labels, in the order of the configuration."""
        return tuple(label for label in self.labels if label not in DEFAULT_NAMES)

    def problems(self) -> Iterator[Problem]:
        """Names that Prometheus does not accept, paths that are not absolute, URLs without TLS."""
        if len(self.labels) > MAX_LABELS:
            yield Problem("labels", f"over {MAX_LABELS} labels: remove some")
        for label, names in self.labels.items():
            if not _LABEL.fullmatch(label):
                yield Problem(f"labels.{label}", "not a label name: write it like resource_pool")
            elif label in _TAKEN:
                text = "the family or Prometheus sets this label itself: choose another"
                yield Problem(f"labels.{label}", text)
            if len(names) > MAX_NAMES:
                yield Problem(f"labels.{label}", f"over {MAX_NAMES} names: remove some")
        for name in ("socket", "ca_file", "token_file", "kubelet_ca_file"):
            path = getattr(self, name)
            if path is not None and (not os.path.isabs(path) or "\0" in path):
                yield Problem(name, "not an absolute path: begin it with /")
        for name in ("api_url", "kubelet_url"):
            url = getattr(self, name)
            if url is not None and not is_url(url):
                yield Problem(name, "not a URL: write it like https://10.0.0.1:6443")


_URL = re.compile(r"https://(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(?::[0-9]{1,5})?/?")


def is_url(text: str) -> bool:
    """Whether this is https with a host and perhaps a port; the token is sent there."""
    return _URL.fullmatch(text) is not None
