"""Probe `kubernetes`."""

from __future__ import annotations

from nodevitals.probe import Absent, Probe, Readings
from nodevitals.probes.kubernetes.families import FAMILIES
from nodevitals.probes.kubernetes.settings import KubernetesSettings


class KubernetesProbe(Probe):
    """Kubernetes: which pod has which accelerator, with its job, owner and queue; whether the node
    takes pods; OOM kills of pods.
    """

    name = "kubernetes"
    families = FAMILIES
    Settings = KubernetesSettings
    settings: KubernetesSettings

    def run(self, readings: Readings) -> None:
        """Not yet."""
        raise Absent("not yet")
