"""The token and the certificates of fabric tests: made once, and accepted by both sides."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import handshake
from testbed.charts import Object, of_kind, rendered, values_of
from testbed.kubernetes_api.helm import Cluster
from testbed.node import ROOT

VALUES = values_of(ROOT / "tests/data/chart/fabric-generated.yaml")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as found:
        yield found


def install(site: Cluster, **fabric: object) -> dict[str, dict[str, bytes]]:
    """Install or upgrade; returns the data of each Secret."""
    values = {**VALUES, "fabric": {**VALUES["fabric"], **fabric}}
    made = of_kind(site.install(values), "Secret")
    return {one["metadata"]["name"]: _decoded(one) for one in made}


def _decoded(secret: Object) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in secret["data"].items()}


def connect(secret: dict[str, bytes], folder: Path, name: str) -> None:
    """A connection in which both sides verify each other; raises SSLError where one refuses."""
    handshake.connect(secret, secret, folder, name)


def test_a_second_installation_changes_nothing(site: Cluster) -> None:
    first = install(site)
    assert sorted(first) == [
        "nodevitals-fabric",
        "nodevitals-fabric-ca",
        "nodevitals-fabric-token",
    ]
    assert len(first["nodevitals-fabric-token"]["token"]) == 40
    assert install(site) == first
    peers = list(reversed(VALUES["fabric"]["peers"]))
    assert install(site, peers=peers) == first


def test_another_cluster_has_others(site: Cluster) -> None:
    first = install(site)
    site.secrets.clear()
    second = install(site)
    for name, secret in first.items():
        assert secret.keys() == second[name].keys()
        assert all(second[name][key] != data for key, data in secret.items())


def test_every_peer_is_in_the_certificate(site: Cluster, tmp_path: Path) -> None:
    secret = install(site)["nodevitals-fabric"]
    for name in ("gpu-node-1", "gpu-node-2", "10.0.0.3", "gpu-node-4", "2001:db8::5"):
        connect(secret, tmp_path, name)


def test_a_node_that_is_added_gets_a_certificate_of_the_same_authority(
    site: Cluster, tmp_path: Path
) -> None:
    first = install(site)
    second = install(site, peers=[*VALUES["fabric"]["peers"], "gpu-node-9"])
    assert second["nodevitals-fabric-token"] == first["nodevitals-fabric-token"]
    assert second["nodevitals-fabric-ca"] == first["nodevitals-fabric-ca"]
    assert second["nodevitals-fabric"]["ca.crt"] == first["nodevitals-fabric"]["ca.crt"]
    with pytest.raises(ssl.SSLCertVerificationError, match="gpu-node-9"):
        connect(first["nodevitals-fabric"], tmp_path, "gpu-node-9")
    connect(second["nodevitals-fabric"], tmp_path, "gpu-node-9")


def test_no_pod_mounts_the_key_of_the_authority() -> None:
    objects = rendered(ROOT / "tests/data/chart/fabric-generated.yaml")
    for one in of_kind(objects, "DaemonSet"):
        assert "nodevitals-fabric-ca" not in str(one)


def test_cert_manager_makes_what_the_pods_mount() -> None:
    objects = rendered(ROOT / "tests/data/chart/fabric-cert-manager.yaml")
    issuers = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Issuer")}
    certificates = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Certificate")}
    assert {c["issuerRef"]["name"] for c in certificates.values()} == set(issuers)
    authority = certificates["nodevitals-fabric-ca"]
    assert issuers["nodevitals-fabric"]["ca"]["secretName"] == authority["secretName"]
    assert certificates["nodevitals-fabric"]["dnsNames"] == ["gpu-node-1"]
    assert certificates["nodevitals-fabric"]["ipAddresses"] == ["10.0.0.2"]
    assert of_kind(objects, "Secret") == []
