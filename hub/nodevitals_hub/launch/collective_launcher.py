"""The launcher of collectives that the hub's configuration names."""

from __future__ import annotations

from nodevitals.checks.launchers import Launcher
from nodevitals.checks.manifests import JobOptions
from nodevitals.checks.mpirun import MpirunLauncher
from nodevitals_hub.settings.hub import CollectivesSettings


def launcher_of(settings: CollectivesSettings) -> Launcher | None:
    """The launcher; None where collectives are refused."""
    if settings.launcher == "mpirun":
        return MpirunLauncher(settings.ssh_user)
    if settings.launcher == "none":
        return None
    from nodevitals.checks.kubernetes_launcher import KubernetesLauncher  # imports lightkube

    options = JobOptions(
        image=settings.image,
        namespace=settings.namespace,
        rdma_resource=settings.rdma_resource,
        rdma_count=settings.rdma_count,
        networks=settings.networks,
        host_network=settings.host_network,
        shared_memory=settings.shared_memory,
        queue=settings.queue,
    )
    return KubernetesLauncher(settings.launcher, options)
