"""The values of the chart that describe the hub."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from helm.nodes import Free, Image, Name, Port, Probe, Quantity, Values, Web

RepairFile = Annotated[str, msgspec.Meta(pattern=r"^repair-[a-z0-9-]{1,50}\.yaml$")]


class HubConfig(msgspec.Struct):
    """Stands for the settings of the hub, whose schema is made from their types."""


class Persistence(Values, frozen=True, kw_only=True):
    """The volume of the results."""

    enabled: bool = True
    """Whether they outlive the pod."""
    existing_claim: Name = ""
    """A claim of the site, instead of one that the chart makes."""
    size: Quantity = "2Gi"
    """Size of the claim."""
    storage_class: str = ""
    """Its StorageClass; by default that of the cluster."""
    annotations: dict[str, str] = {}
    """Its annotations."""


class HubServiceAccount(Values, frozen=True, kw_only=True):
    """The hub's ServiceAccount."""

    create: bool = True
    """Whether to make it."""
    name: Name = ""
    """Its name, by default that of the hub's objects."""
    annotations: dict[str, str] = {}
    """Its annotations."""


class HubService(Values, frozen=True, kw_only=True):
    """The hub's Service."""

    annotations: dict[str, str] = {}
    """Its annotations."""


class HubMonitor(Values, frozen=True, kw_only=True):
    """How Prometheus logs in at the hub; the rest is that of `monitor`."""

    tls_config: Free = {}
    """TLS of the scrapes, as in the operator's API; used where `hub.web.tls` is true."""
    basic_auth: Free = {}
    """User and password, as in the operator's API."""
    authorization: Free = {}
    """Bearer token, as in the operator's API."""


class HubAgentMetrics(Values, frozen=True, kw_only=True):
    """How the hub reads the agents' /metrics."""

    ca_secret: Name = ""
    """Secret with the key ca.crt: the authority of the certificate of `agent.web`; by default that
    of the fabric tests."""
    username: str = ""
    """User of the agents' web configuration file."""
    password_secret: Name = ""
    """Secret with the key password, of that user."""


class Hub(Values, frozen=True, kw_only=True):
    """The hub, which runs checks on demand."""

    enabled: bool = False
    """Whether to make it."""
    image: Image
    """Its image, which has more Python packages than the agent's."""
    config: HubConfig
    """Its configuration file, hub.yaml; the chart adds the nodes, the agents' secrets and the state
    directory."""
    repair_manifests: dict[RepairFile, Free] = {}
    """Objects of `config.out_of_service.repairs` by file name; the file of one is
    `/etc/nodevitals/NAME`. The hub may create and read those of entries that are no dry run."""
    crd: bool = True
    """Whether to make the CRD, where `hub.config.resources.enabled` is true; of two releases in a
    cluster, one may."""
    port: Port = 9857
    """Port of the pages and of the REST API."""
    web: Web
    """TLS and passwords."""
    tokens_secret: Name = ""
    """Secret with the key tokens.yaml: bearer tokens of programs."""
    token_secret: Name = ""
    """Secret with the key token, which the agents accept from the hub; by default one is generated
    at the first install."""
    secret: Name = ""
    """Secret with tls.crt, tls.key and ca.crt, where `fabric.certificates` is `existing`."""
    names: tuple[Name, ...] = ()
    """Names in the hub's certificate by which agents know it; by default that of its Service."""
    agent_metrics: HubAgentMetrics
    """How the hub reads the agents' /metrics."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """Lowest level of messages to log."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """Format of log lines."""
    persistence: Persistence
    """The volume of the results."""
    tmp_size_limit: Quantity = "64Mi"
    """Size limit of /tmp."""
    run_as_user: Annotated[int, msgspec.Meta(ge=1)] = 65532
    """User and group of the hub, and of its volume."""
    service_account: HubServiceAccount
    """Its ServiceAccount."""
    service: HubService
    """Its Service."""
    monitor: HubMonitor
    """How Prometheus logs in."""
    clients: tuple[Free, ...] = ()
    """Who may connect besides `networkPolicy.prometheus`, as in `from` of a NetworkPolicy, with
    `networkPolicy.enabled`; [] for all pods of all namespaces."""
    resources: Free = {}
    """Requests and limits."""
    startup_probe: Probe = None
    """Probe of the kubelet, of which httpGet is filled in; null for none."""
    liveness_probe: Probe = None
    """As startupProbe."""
    readiness_probe: Probe = None
    """As startupProbe."""
    node_selector: dict[str, str] = {}
    """Labels of the node."""
    affinity: Free = {}
    """Affinity."""
    tolerations: tuple[Free, ...] = ()
    """Taints under which it runs."""
    priority_class_name: str = ""
    """PriorityClass."""
    pod_annotations: dict[str, str] = {}
    """Annotations of the pod."""
    pod_labels: dict[str, str] = {}
    """Labels of the pod."""
    extra_env: tuple[Free, ...] = ()
    """Further environment variables, as Kubernetes writes them."""
    extra_volumes: tuple[Free, ...] = ()
    """Further volumes of the pod, such as lists of nodes."""
    extra_volume_mounts: tuple[Free, ...] = ()
    """Further mounts of the container."""
