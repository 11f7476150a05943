"""The values of the chart that describe agents: image, configuration, and one DaemonSet per entry
of `nodes`. `helm/values.py` has the others.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

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

    repository: Annotated[str, msgspec.Meta(pattern=r"^[^:@\s]+(:[0-9]+/[^:@\s]+)?$")] = ""
    """Registry and name, without a tag."""
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


class HardwareHealth(Values, frozen=True, kw_only=True):
    """What takes powerful capabilities, which only the workers of these probes keep."""

    disks: Literal["none", "privileged", "capabilities"] = "none"
    """`privileged`: a privileged container; `capabilities`: SYS_ADMIN, which is nearly root, and
    SYS_RAWIO, where a device plugin gives /dev/nvme* to the container."""
    transceivers: bool = False
    """Whether to grant NET_ADMIN, and use the network of the node."""


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
    hardware_health: HardwareHealth
    """What the probes `disks` and `transceivers` may read with powerful capabilities."""
    seccomp: Literal["RuntimeDefault", "Unconfined"] = "RuntimeDefault"
    """Filter of system calls."""
    app_armor: Literal["", "RuntimeDefault", "Unconfined"] = ""
    """AppArmor profile; '' leaves it to the node."""
    se_linux_options: Free = {}
    """As Kubernetes writes them; {} leaves them to the runtime."""
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
