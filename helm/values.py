"""The values of the chart: one type per section, a docstring per key.

`values.schema.json` is made from these types and from the settings of the agent. Objects of
Kubernetes that the chart only passes on (affinity, volumes, resources) are free: the API server
checks them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from helm.hub import Hub
from helm.nodes import Agent, Free, Image, Name, Nodes, Text, Values
from nodevitals.commands.rules.site import values as rules_values
from nodevitals.commands.rules.site.values import Wait


class Service(Values, frozen=True, kw_only=True):
    """The Service of all agents, and the headless one."""

    enabled: bool = True
    """Whether to make them; a ServiceMonitor needs them."""
    annotations: dict[str, str] = {}
    """Annotations of the Service."""


class Fast(Values, frozen=True, kw_only=True):
    """A second endpoint for frequent scrapes of some probes."""

    enabled: bool = False
    """Whether to scrape it."""
    interval: Wait = 1.0
    """Time between two scrapes; set the same interval for these probes in `agent.config`."""
    probes: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)] = ("rdma", "network")
    """Names of the probes; without any, the whole page would be scraped under this job's name."""


class Monitor(Values, frozen=True, kw_only=True):
    """How Prometheus finds the agents."""

    kind: Literal["none", "PodMonitor", "ServiceMonitor"] = "none"
    """Object for the Prometheus operator."""
    labels: dict[str, str] = {}
    """Labels that the operator selects, such as `release: kube-prometheus-stack`."""
    namespace: Name = ""
    """Namespace of the object, by default that of the release."""
    interval: Wait = 15.0
    """Time between two scrapes."""
    scrape_timeout: Wait = 10.0
    """Time that a scrape may take."""
    tls_config: Free = {}
    """TLS of the scrapes, as in the operator's API; used where `agent.web.tls` is true."""
    basic_auth: Free = {}
    """User and password, as in the operator's API."""
    authorization: Free = {}
    """Bearer token, as in the operator's API."""
    relabelings: tuple[Free, ...] = ()
    """Further relabelings, after those of the chart."""
    metric_relabelings: tuple[Free, ...] = ()
    """Relabelings of the samples."""
    attach_metadata: Free = {}
    """As in the operator's API: `node: true` has the labels of the node for `relabelings`."""
    fast: Fast
    """A second endpoint for frequent scrapes of some probes."""
    annotations: bool = False
    """Whether pods have prometheus.io annotations, for a Prometheus without the operator."""


class ServiceAccount(Values, frozen=True, kw_only=True):
    """The agents' ServiceAccount."""

    create: bool = True
    """Whether to make it."""
    name: Name = ""
    """Its name, by default that of the release's objects."""
    annotations: dict[str, str] = {}
    """Its annotations."""


class Rbac(Values, frozen=True, kw_only=True):
    """What the agents may ask of the API server: the probe kubernetes does."""

    create: bool = True
    """Whether agents get a token, and a ClusterRole to read pods and nodes."""
    kubelet: Literal["none", "pods", "proxy"] = "none"
    """What they may ask of the kubelet, for `source: kubelet`: `pods`, nodes/pods, since Kubernetes
    1.33; `proxy`, nodes/proxy before."""


class Egress(Values, frozen=True, kw_only=True):
    """Connections that agents open."""

    enabled: bool = False
    """Whether to limit them to DNS, the API server, the kubelet (`rbac.kubelet`) and `extra`."""
    api_server: tuple[Free, ...] = ()
    """Destinations of the API server, as in a NetworkPolicy; [] for any, at ports 443 and 6443."""
    extra: tuple[Free, ...] = ()
    """Further rules, as in a NetworkPolicy: for the peers of probe peers."""


class NetworkPolicy(Values, frozen=True, kw_only=True):
    """A NetworkPolicy; it does not hold for pods with hostNetwork."""

    enabled: bool = False
    """Whether to make it."""
    prometheus: tuple[Free, ...] = ()
    """Who may scrape, as in a NetworkPolicy's `from`; [] for all pods of all namespaces."""
    egress: Egress
    """Connections that agents open."""


class Fabric(Values, frozen=True, kw_only=True):
    """Certificates, token and peers of fabric tests."""

    enabled: bool = False
    """Whether the nodes with `fabric: true` test the links between them."""
    peers: tuple[Text, ...] = ()
    """Names of the nodes as in Kubernetes, or their addresses; each agent must be able to resolve
    them."""
    certificates: Literal["generated", "certManager", "existing"] = "generated"
    """`generated`: by Helm, at the first install; `certManager`: by cert-manager; `existing`: you
    made the Secret `secret`."""
    secret: Name = ""
    """Secret with tls.crt, tls.key and ca.crt, for `existing`."""
    token_secret: Name = ""
    """Secret with the key token; by default one is generated at the first install."""
    duration: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+h$")] = "87600h"
    """Validity of the certificates."""


class Rules(Values, frozen=True, kw_only=True):
    """The rules, as objects of the cluster."""

    kind: Literal["none", "PrometheusRule", "ConfigMap"] = "none"
    """`PrometheusRule`: for the Prometheus operator, one object per rule file; `ConfigMap`: one
    object with all files."""
    namespace: Name = ""
    """Namespace of the objects; by default that of the release."""
    labels: dict[str, str] = {}
    """Labels of the objects, which the ruleSelector of an operator's Prometheus selects."""
    annotations: dict[str, str] = {}
    """Annotations of the objects."""
    files: dict[str, bool] = {}
    """Rule files that are not wanted: false."""
    values: rules_values.Values
    """The content of a values file of `nodevitals rules render`."""


class Dashboards(Values, frozen=True, kw_only=True):
    """ConfigMaps for the sidecar of Grafana."""

    enabled: bool = True
    """Whether to make them."""
    languages: tuple[Literal["en", "zh"], ...] = ("en",)
    """Languages; both can be in one Grafana."""
    namespace: Name = ""
    """Namespace of the ConfigMaps; by default that of the release."""
    labels: dict[str, str] = {}
    """What the sidecar selects."""
    annotations: dict[str, str] = {}
    """Annotations of the ConfigMaps."""
    folder_annotation: Text = "grafana_folder"
    """The sidecar's folderAnnotation."""
    folders: dict[Literal["en", "zh"], str] = {}
    """Folder of Grafana by language."""


class Alertmanager(Values, frozen=True, kw_only=True):
    """Alertmanager's configuration."""

    kind: Literal["none", "Secret", "AlertmanagerConfig"] = "none"
    """`Secret`: alertmanager.yaml and the templates; `AlertmanagerConfig`: for the operator."""
    configuration: Literal["full", "minimal"] = "full"
    """`full`: tiers, teams, owners of jobs, hours of a site; `minimal`: one receiver, operators."""
    namespace: Name = ""
    """Namespace of the object; by default that of the release."""
    labels: dict[str, str] = {}
    """Labels of the object."""
    annotations: dict[str, str] = {}
    """Annotations of the object."""
    receivers: dict[str, dict[str, tuple[Free, ...]]] = {}
    """Settings by receiver and kind, in the words of Alertmanager or of the AlertmanagerConfig."""
    global_: Free = msgspec.field(name="global", default={})
    """Global settings of alertmanager.yaml, for kind Secret."""
    time_intervals: dict[Literal["office-hours", "maintenance"], tuple[Free, ...]] = {}
    """Hours of tickets, and hours without pages, for kind Secret; by default always and never."""
    templates: Text = "/etc/alertmanager/config/*.tmpl"
    """Where Alertmanager finds the templates, for kind Secret."""
    matchers: tuple[Free, ...] = ()
    """Matchers of the first route, for kind AlertmanagerConfig."""


class ChartValues(Values, frozen=True, kw_only=True):
    """All values of the chart."""

    name_override: Name = ""
    """Name in the labels, instead of the chart's."""
    fullname_override: Name = ""
    """Beginning of the names of all objects."""
    common_labels: dict[str, str] = {}
    """Labels of every object."""
    image: Image
    """The agent's image."""
    image_pull_secrets: tuple[Free, ...] = ()
    """Secrets for the registry."""
    agent: Agent
    """Settings of the agents on all nodes."""
    node_defaults: Nodes
    """What the entries of `nodes` leave out."""
    nodes: dict[Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$")], Nodes]
    """One DaemonSet per entry; no node may match two."""
    service: Service
    """The Service of all agents, and the headless one."""
    monitor: Monitor
    """How Prometheus finds the agents."""
    service_account: ServiceAccount
    """The agents' ServiceAccount."""
    rbac: Rbac
    """What the agents may ask of the API server."""
    network_policy: NetworkPolicy
    """A NetworkPolicy."""
    fabric: Fabric
    """Certificates, token and peers of fabric tests."""
    hub: Hub
    """The hub, which runs checks on demand."""
    rules: Rules
    """The rules, as objects of the cluster."""
    dashboards: Dashboards
    """ConfigMaps for the sidecar of Grafana."""
    alertmanager: Alertmanager
    """Alertmanager's configuration."""
    # Helm itself adds `global` to the values of every chart.
    global_: Free = msgspec.field(name="global", default={})
    """Helm's values for all charts; not used."""
