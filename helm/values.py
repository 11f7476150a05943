"""The values of the chart: one type per section, a docstring per key.

`values.schema.json` is made from these types and from the settings of the agent. Objects of
Kubernetes that the chart only passes on (affinity, volumes, resources) are free: the API server
checks them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from nodevitals.commands.rules.site import values as rules_values
from nodevitals.quantities import Seconds

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
Path = Annotated[str, msgspec.Meta(pattern=r"^/")]
Quantity = str | int | float
Free = dict[str, Any]
Probe = dict[str, Any] | None
Text = Annotated[str, msgspec.Meta(min_length=1)]


class AgentConfig(msgspec.Struct):
    """Stands for the settings of the agent, whose schema is made from their types."""


class Values(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A section of the values."""


class Image(Values, frozen=True, kw_only=True):
    """The agent's image."""

    repository: Text = ""
    """Registry and name."""
    tag: str = ""
    """Tag; by default the version of the chart's agent."""
    digest: Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """Digest, `sha256:…`; with it, the tag does not count."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the node pulls the image."""


class Web(Values, frozen=True, kw_only=True):
    """TLS and passwords of the metrics port."""

    secret: Name = ""
    """Secret with the key web-config.yaml, in the format of Prometheus' exporters, and the files
    that it names; mounted at /etc/nodevitals-web."""
    tls: bool = False
    """Whether that file has tls_server_config: scrapes and the kubelet's probes then use HTTPS."""


class Agent(Values, frozen=True, kw_only=True):
    """Settings of the agents on all nodes."""

    config: AgentConfig
    """The agent's configuration file, nodevitals.yaml; `nodes.<name>.config` is merged over it."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """Lowest level of messages to log."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """Format of log lines."""
    port: Port = 9855
    """Port of /metrics."""
    web: Web
    """TLS and passwords of the metrics port."""


class HostMount(Values, frozen=True, kw_only=True):
    """A path of the node."""

    path: Path
    """Path on the node."""
    mount_path: Path = "/"
    """Path in the container; by default the same."""
    type: Literal[
        "", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice"
    ] = ""
    """What must be there before the pod starts, as in Kubernetes' hostPath."""
    read_only: bool = True
    """Whether the mount is read-only; file systems mounted below it keep their own flags."""


class State(Values, frozen=True, kw_only=True):
    """Where the history is kept, and counters that outlive a restart."""

    type: Literal["hostPath", "emptyDir", "none"] = "hostPath"
    """`hostPath`: kept while the node lives (needs user 0); `emptyDir`: while the pod lives."""
    path: Path = "/var/lib/nodevitals"
    """Directory on the node, for hostPath."""
    size_limit: Quantity = "256Mi"
    """Size limit, for emptyDir."""


class Nodes(Values, frozen=True, kw_only=True):
    """One DaemonSet. A key that is left out has the value of `nodeDefaults`."""

    enabled: bool = True
    """Whether to make this DaemonSet."""
    inherits: Name = ""
    """Name of another entry of `nodes`, whose keys (but `enabled`) come before those here."""
    config: AgentConfig
    """Agent's settings for these nodes, merged over `agent.config`."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes."""
    affinity: Free = {}
    """Affinity; a node must match both this and nodeSelector."""
    tolerations: tuple[Free, ...] = ()
    """Taints under which the agent runs."""
    runtime_class_name: str = ""
    """RuntimeClass; '' is the runtime's default."""
    env: dict[str, str] = {}
    """Environment variables."""
    host_paths: tuple[Path, ...] = ("/",)
    """Directories of the node that are mounted below /host, read-only; /proc and /sys always are.
    Mounts that come and go below them on the node do so in the container."""
    host_mounts: tuple[HostMount, ...] = ()
    """Further paths of the node: libraries, tools, sockets, lock directories."""
    kubelet_directory: str = ""
    """The kubelet's directory, whose pod-resources is mounted at /var/lib/kubelet/pod-resources for
    the probe kubernetes; '' for nodes whose devices no pod uses."""
    state: State
    """Where the history and the counters are kept."""
    tmp_size_limit: Quantity = "64Mi"
    """Size limit of /tmp, the only other place to write to."""
    run_as_user: Annotated[int, msgspec.Meta(ge=0)] = 0
    """User of the agent."""
    run_as_group: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Group of the agent."""
    supplemental_groups: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    """Further groups, such as that of the socket of lldpd."""
    capabilities: tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Z_]+$")], ...] = ()
    """Capabilities that are kept, only for user 0; all others are dropped."""
    privileged: bool = False
    """Whether the container is privileged: all devices and all capabilities."""
    seccomp: Literal["RuntimeDefault", "Unconfined"] = "RuntimeDefault"
    """Filter of system calls."""
    app_armor: Literal["", "RuntimeDefault", "Unconfined"] = ""
    """AppArmor profile; '' leaves it to the node."""
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    """Whether the agent has the process ids of the node."""
    host_network: bool = False
    """Whether the agent uses the network of the node."""
    fabric: bool = False
    """Whether these nodes take part in fabric tests, where `fabric.enabled` is true."""
    resources: Free = {}
    """Requests and limits."""
    priority_class_name: str = ""
    """PriorityClass, such as system-node-critical."""
    update_strategy: Free = {}
    """How an upgrade replaces the pods."""
    termination_grace_period_seconds: Annotated[int, msgspec.Meta(ge=1)] = 15
    """Time to end; workers that hang in a driver get SIGKILL before."""
    liveness_probe: Probe = None
    """Probe of the kubelet, of which httpGet is filled in; null for none."""
    readiness_probe: Probe = None
    """As livenessProbe."""
    pod_annotations: dict[str, str] = {}
    """Annotations of the pods, such as k8s.v1.cni.cncf.io/networks for RoCE."""
    pod_labels: dict[str, str] = {}
    """Labels of the pods."""
    extra_args: tuple[str, ...] = ()
    """Further arguments of `nodevitals serve`."""
    extra_env: tuple[Free, ...] = ()
    """Further environment variables, as Kubernetes writes them."""
    extra_volumes: tuple[Free, ...] = ()
    """Further volumes of the pods."""
    extra_volume_mounts: tuple[Free, ...] = ()
    """Further mounts of the agent's container."""
    extra_containers: tuple[Free, ...] = ()
    """Further containers of the pods."""
    extra_init_containers: tuple[Free, ...] = ()
    """Init containers of the pods."""


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
    interval: Seconds = 1.0
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
    interval: Seconds = 15.0
    """Time between two scrapes."""
    scrape_timeout: Seconds = 10.0
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
    kubelet: bool = False
    """Whether they may read the pods from the kubelet (nodes/proxy)."""


class Egress(Values, frozen=True, kw_only=True):
    """Connections that agents open."""

    enabled: bool = False
    """Whether to limit them to DNS, the API server, other agents and `extra`."""
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
    """`full`: tiers, teams, owners of jobs, office hours; `minimal`: one receiver, operators."""
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
    """Times of the intervals, for kind Secret."""
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
    rules: Rules
    """The rules, as objects of the cluster."""
    dashboards: Dashboards
    """ConfigMaps for the sidecar of Grafana."""
    alertmanager: Alertmanager
    """Alertmanager's configuration."""
    # Helm itself adds `global` to the values of every chart.
    global_: Free = msgspec.field(name="global", default={})
    """Helm's values for all charts; not used."""
