"""The chart: what it renders for `tests/data/chart` is valid, whole and restricted."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate
import pytest
import yaml

from bench.pagesteps import fences
from nodevitals import probes
from nodevitals.config import parse
from nodevitals.linux.capabilities import parse_kept
from testbed.charts import (
    CHART,
    NAMESPACE,
    SETS,
    Object,
    container,
    of_kind,
    pod,
    render,
    rendered,
    values_of,
)
from testbed.kubernetes_api import pods
from testbed.node import ROOT, run

CRDS = {
    schema["properties"]["kind"]["const"]: schema
    for schema in (json.loads(p.read_text()) for p in (ROOT / "tests/data/crds").glob("*.json"))
}
# The values name these; the site makes them.
OF_THE_SITE = {
    *("fabric-token", "site-fabric", "nodevitals-web", "site-probes", "registry"),
    *("site-hub", "site-hub-token", "site-nodes", "hub-web", "hub-tokens"),
    *("hub-account", "hub-results", "agents-login"),
}
# The authority of the certificates: cert-manager's own, or what no pod may mount; and what
# Alertmanager mounts.
NOT_MOUNTED = {"nodevitals-fabric-ca", "nodevitals-alertmanager"}
COMPONENT = "app.kubernetes.io/component"
NEWEST, OLDEST, WITH_APP_ARMOR = "1.37", "1.27", "1.30"

each_set = pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)


def named(name: str) -> tuple[Object, ...]:
    return rendered(ROOT / f"tests/data/chart/{name}.yaml")


def daemonset(name: str, nodes: str) -> Object:
    [found] = [
        one
        for one in of_kind(named(name), "DaemonSet")
        if one["metadata"]["labels"]["nodevitals/nodes"] == nodes
    ]
    return found


def configuration(objects: tuple[Object, ...], daemonset: Object) -> str:
    [name] = [v["configMap"]["name"] for v in pod(daemonset)["volumes"] if v["name"] == "config"]
    [found] = [m for m in of_kind(objects, "ConfigMap") if m["metadata"]["name"] == name]
    return str(found["data"]["nodevitals.yaml"])


def test_there_are_ten_sets() -> None:
    assert len(SETS) >= 10


def test_it_has_no_links() -> None:
    """Helm and Argo CD follow them, but Flux leaves them out of what it fetches."""
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


@each_set
def test_lints_strictly(path: Path) -> None:
    found = helm.lint(str(CHART), values_of(path), strict=True, namespace=NAMESPACE)
    messages = [m for m in found["messages"] if "icon is recommended" not in str(m)]
    assert (messages, found.get("errors") or []) == ([], [])


@each_set
def test_every_object_is_valid(path: Path) -> None:
    for one in rendered(path):
        if one["kind"] in CRDS:
            jsonschema.validate(one, CRDS[one["kind"]])
        else:
            oldest = WITH_APP_ARMOR if "appArmorProfile" in str(one) else OLDEST
            for version in (oldest, NEWEST):
                kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("kind", ["PodMonitor", "Certificate", "DaemonSet"])
def test_an_unknown_key_is_found(kind: str) -> None:
    name = "fabric-cert-manager" if kind == "Certificate" else "kube-prometheus-stack"
    one = json.loads(json.dumps(of_kind(named(name), kind)[0]))
    one["spec"]["selectors"] = {}
    with pytest.raises(jsonschema.ValidationError, match="selectors"):
        if kind in CRDS:
            jsonschema.validate(one, CRDS[kind])
        else:
            kubernetes_validate.validate(one, NEWEST, strict=True)


@each_set
def test_the_agent_accepts_its_configuration(path: Path, tmp_path: Path) -> None:
    for one in of_kind(rendered(path), "DaemonSet"):
        parse(configuration(rendered(path), one).encode(), probes.registered())


def test_check_config_accepts_the_largest(tmp_path: Path) -> None:
    objects = named("fabric-generated")
    file = tmp_path / "nodevitals.yaml"
    file.write_text(configuration(objects, daemonset("fabric-generated", "nvidia")))
    done = run("check-config", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: ok\n"), done.stderr
    assert "bytes_per_hour: 1000000000000\n" in file.read_text()


@each_set
def test_nothing_is_privileged_unless_the_values_say_so(path: Path) -> None:
    values, nodes = values_of(path), values_of(path).get("nodes", {})
    for one in of_kind(rendered(path), "DaemonSet"):
        name = one["metadata"]["labels"]["nodevitals/nodes"]
        asked = name == "ascend" or nodes.get(name, {}).get("privileged", False)
        security = container(one)["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert pod(one)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security.get("privileged", False) == asked, (values, name)
        if asked:  # the API server refuses the two together
            assert "allowPrivilegeEscalation" not in security
        else:
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]


def test_ascend_is_off_unless_the_values_say_so() -> None:
    found = of_kind(named("default"), "DaemonSet")
    assert [one["metadata"]["name"] for one in found] == ["nodevitals-nvidia"]


def test_nodes_without_accelerators_need_no_root() -> None:
    for name in ("restricted", "pools"):
        security = pod(daemonset(name, "cpu"))["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 65532
        assert "add" not in container(daemonset(name, "cpu"))["securityContext"]["capabilities"]


@each_set
def test_mounts_of_the_node_follow_it_and_are_read_only(path: Path) -> None:
    for one in of_kind(rendered(path), "DaemonSet"):
        of_node = {v["name"]: v["hostPath"]["path"] for v in pod(one)["volumes"] if "hostPath" in v}
        for mount in container(one)["volumeMounts"]:
            if mount["name"] not in of_node or mount["name"] == "state":
                continue
            assert mount["mountPropagation"] == "HostToContainer", mount
            assert mount["readOnly"] is (of_node[mount["name"]] != "/run/nodevitals"), mount


@each_set
def test_what_is_referred_to_exists(path: Path) -> None:
    objects = rendered(path)
    made = {(one["kind"], one["metadata"]["name"]) for one in objects}
    made |= {("Secret", c["spec"]["secretName"]) for c in of_kind(objects, "Certificate")}
    used: set[tuple[str, str]] = set()
    for one in of_kind(objects, "DaemonSet") + of_kind(objects, "Deployment"):
        spec = pod(one)
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounted = [mount["name"] for mount in container(one)["volumeMounts"]]
        assert sorted(mounted) == sorted(volumes)
        paths = [mount["mountPath"] for mount in container(one)["volumeMounts"]]
        assert max(Counter(paths).values()) == 1
        ports = {port["name"] for port in container(one)["ports"]}
        asked = [container(one).get(key) for key in ("livenessProbe", "readinessProbe")]
        assert {one["httpGet"]["port"] for one in asked if one} <= ports
        for volume in volumes.values():
            if "configMap" in volume:
                used.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                used.add(("Secret", volume["secret"]["secretName"]))
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                used.add(("PersistentVolumeClaim", claim))
        if spec["serviceAccountName"] != "default":
            used.add(("ServiceAccount", spec["serviceAccountName"]))
    for binding in of_kind(objects, "ClusterRoleBinding") + of_kind(objects, "RoleBinding"):
        used.add((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        used |= {(s["kind"], s["name"]) for s in binding["subjects"]}
    assert {one for one in used - made if one[1] not in OF_THE_SITE} == set()
    secrets = {name for kind, name in made if kind == "Secret"} - NOT_MOUNTED
    assert secrets <= {name for kind, name in used if kind == "Secret"}


@each_set
def test_selectors_match_all_agents_or_the_hub(path: Path) -> None:
    objects = rendered(path)
    for kind, component in (("DaemonSet", "agent"), ("Deployment", "hub")):
        pods = [one["spec"]["template"]["metadata"]["labels"] for one in of_kind(objects, kind)]
        assert {labels[COMPONENT] for labels in pods} <= {component}
        for one in of_kind(objects, kind):
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert [wanted <= labels.items() for labels in pods].count(True) == 1
        for wanted in selected(objects):
            if wanted[COMPONENT] == component:
                assert all(wanted.items() <= labels.items() for labels in pods)
    services = [one["metadata"]["labels"] for one in of_kind(objects, "Service")]
    for monitor in of_kind(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        # Not the headless one as well: each agent would be scraped twice.
        assert [wanted <= labels.items() for labels in services].count(True) == 1


def selected(objects: tuple[Object, ...]) -> list[dict[str, str]]:
    """The labels of pods that Services, policies and monitors select."""
    return [
        *(one["spec"]["selector"] for one in of_kind(objects, "Service")),
        *(one["spec"]["podSelector"]["matchLabels"] for one in of_kind(objects, "NetworkPolicy")),
        *(one["spec"]["selector"]["matchLabels"] for one in of_kind(objects, "PodMonitor")),
    ]


@each_set
def test_names_are_short_enough(path: Path) -> None:
    for one in rendered(path):
        name, longest = one["metadata"]["name"], 253 if "Role" in one["kind"] else 63
        assert len(name) <= longest
        for value in one["metadata"].get("labels", {}).values():
            assert len(value) <= 63


def test_releases_share_no_object() -> None:
    """Also where a dash moves from the namespace to the release."""
    releases = [
        ("nodevitals", "a"),
        ("nodevitals", "b"),
        ("c-nodevitals", "a"),
        ("nodevitals", "a-c"),
    ]
    names: Counter[tuple[str, ...]] = Counter()
    for name, namespace in releases:
        for one in render({"fullnameOverride": name}, name=name, namespace=namespace):
            meta = one["metadata"]
            names[one["kind"], meta.get("namespace", ""), meta["name"]] += 1
    assert set(names.values()) == {1}


@each_set
def test_objects_are_in_the_namespace_of_the_release(path: Path) -> None:
    for one in rendered(path):
        if not one["kind"].startswith(("Cluster", "Custom")) and "Monitor" not in one["kind"]:
            assert one["metadata"]["namespace"] == NAMESPACE


def test_pools_inherit_and_override() -> None:
    h100, a100 = daemonset("pools", "h100"), daemonset("pools", "a100")
    assert pod(h100)["runtimeClassName"] == pod(a100)["runtimeClassName"] == "nvidia"
    assert pod(h100)["affinity"] == pod(daemonset("default", "nvidia"))["affinity"]
    assert pod(h100)["priorityClassName"] == "system-node-critical"
    assert "priorityClassName" not in pod(a100)
    assert "tolerations" not in pod(a100)
    assert "livenessProbe" not in container(a100)
    variables = {v["name"]: v.get("value") for v in container(a100)["env"]}
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    config = yaml.safe_load(configuration(named("pools"), a100))
    assert config == {
        "labels": {"site": "north", "pool": "a100"},
        # `false` and lower numbers win as well.
        "probes": {"nvidia": {"details": False, "nvlinks": 12}},
    }


def test_no_node_has_two_agents_by_default() -> None:
    """Every label that selects an entry keeps the entry for other nodes away."""
    wanting = selects("h100") + selects("ascend")
    wanted = {one["key"] for one in wanting if one["operator"] == "In"}
    refused = {one["key"] for one in selects("cpu") if one["operator"] in ("NotIn", "DoesNotExist")}
    assert wanted == refused


def selects(nodes: str) -> list[dict[str, Any]]:
    """What the affinity of an entry says of nodes."""
    affinity = pod(daemonset("pools", nodes))["affinity"]["nodeAffinity"]
    [terms] = affinity.values()
    return [one for t in terms["nodeSelectorTerms"] for one in t["matchExpressions"]]


def test_no_agent_holds_a_gpu_while_the_gpu_operator_replaces_its_driver() -> None:
    """Its driver manager sets these labels, removes the pods that they select, and unloads the
    modules; neither a drain nor an eviction ends other DaemonSets (NVIDIA/gpu-operator#2570).
    """
    terms = selects("h100")
    kinds = [one for one in terms if one["operator"] == "In"]
    for label in ("client", "dcgm-exporter"):
        left_out = [one for one in terms if one["key"] == f"nvidia.com/gpu.deploy.{label}"]
        assert len(left_out) == len(kinds)
        for one in left_out:
            # A node without the label is selected.
            assert one["operator"] == "NotIn"
            assert one["values"] == ["paused-for-driver-upgrade", "paused-for-mig-change"]


@pytest.mark.parametrize(
    "key",
    [
        "agent.config",
        "nodeDefaults.config",
        "dashboards.folders",
        "dashboards.labels",
        "rules.files",
        "rules.values.alerts",
        "rules.values.labels",
        "rules.values.pools",
        "rules.values.thresholds",
    ],
)
def test_a_map_whose_lines_are_all_commented_out_is_an_empty_one(key: str) -> None:
    def values(last: Any) -> dict[str, Any]:
        for part in reversed(key.split(".")):
            last = {part: last}
        return {**last, "rules": {"kind": "ConfigMap", **last.get("rules", {})}}

    objects = render(values(None))
    # Those of the dashboards have defaults, which null removes.
    if not key.startswith("dashboards."):
        assert objects == render(values({}))


def test_labels_that_two_values_give_are_there_once() -> None:
    """kustomize, through which Flux passes each release, refuses a key that is there twice."""
    labels = {"release": "kps", "app.kubernetes.io/part-of": "ai"}
    values: dict[str, Any] = {
        "commonLabels": labels,
        "monitor": {"kind": "PodMonitor", "labels": labels, "annotations": True},
        "rules": {"kind": "PrometheusRule", "labels": labels},
        "dashboards": {"labels": labels},
        "alertmanager": {"kind": "Secret", "labels": labels},
        "nodeDefaults": {
            "podLabels": {"release": "agent"},
            "podAnnotations": {"prometheus.io/path": "/mine"},
        },
    }
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="nodevitals", namespace=NAMESPACE)
    for path, text in files.items():
        for document in yaml.compose_all("" if path.endswith(".txt") else text):
            assert twice(document) == [], path
    [one] = of_kind(render(values), "DaemonSet")
    template = one["spec"]["template"]["metadata"]
    assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "ai"
    assert template["labels"]["release"] == "agent"
    assert template["annotations"]["prometheus.io/path"] == "/mine"


def twice(node: yaml.Node | None) -> list[str]:
    """The keys that are more than once in a mapping, at any depth."""
    if isinstance(node, yaml.SequenceNode):
        return [name for one in node.value for name in twice(one)]
    if not isinstance(node, yaml.MappingNode):
        return []
    counts = Counter(key.value for key, _ in node.value)
    return [n for n, count in counts.items() if count > 1] + [
        name for _, one in node.value for name in twice(one)
    ]


@pytest.mark.parametrize(("kubelet", "open_"), [("none", False), ("pods", True), ("proxy", True)])
def test_agents_that_may_ask_the_kubelet_reach_it(kubelet: str, open_: bool) -> None:
    policy = {"enabled": True, "egress": {"enabled": True, "apiServer": [{"podSelector": {}}]}}
    values = {"networkPolicy": policy, "rbac": {"kubelet": kubelet}}
    [one] = of_kind(render(values), "NetworkPolicy")
    # The kubelet is not the API server: `to` must not keep agents away from it.
    rules = [rule for rule in one["spec"]["egress"] if "to" not in rule]
    assert (10250 in [port["port"] for rule in rules for port in rule["ports"]]) is open_


def test_a_release_may_have_a_dot_in_its_name() -> None:
    """Names of Services must not."""
    services = of_kind(render({}, name="nodevitals.north"), "Service")
    assert [one["metadata"]["name"] for one in services] == [
        "nodevitals-north",
        "nodevitals-north-headless",
    ]


def test_selinux_can_be_told_to_let_the_agent_read_the_node() -> None:
    [one] = of_kind(render({"nodeDefaults": {"seLinuxOptions": {"type": "spc_t"}}}), "DaemonSet")
    assert pod(one)["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    [one] = of_kind(render({}), "DaemonSet")
    assert "seLinuxOptions" not in pod(one)["securityContext"]


def test_large_user_ids_stay_whole() -> None:
    """OpenShift's begin at 1,000,000,000; Kubernetes refuses 1.00066e+09."""
    [one] = of_kind(
        render(
            {
                "nodes": {
                    "nvidia": {
                        "runAsUser": 1000660000,
                        "runAsGroup": 1000660001,
                        "capabilities": [],
                        "state": {"type": "none"},
                    }
                }
            }
        ),
        "DaemonSet",
    )
    context = pod(one)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (1000660000, 1000660001)
    assert isinstance(context["runAsUser"], int)


def test_fabric_tests_get_what_their_gate_needs() -> None:
    one = daemonset("fabric-generated", "nvidia")
    assert pod(one)["hostPID"] is True
    assert pod(one)["hostNetwork"] is True
    assert set(container(one)["securityContext"]["capabilities"]["add"]) == {
        "DAC_READ_SEARCH",
        "SYS_PTRACE",
    }
    other = daemonset("fabric-generated", "cpu")
    assert "hostPID" not in pod(other)
    assert "fabric" not in configuration(named("fabric-generated"), other)


def health(**asked: Any) -> tuple[Object, Object]:
    """The agent of NVIDIA nodes with this `hardwareHealth`: its pod and its container."""
    values = {"nodes": {"nvidia": {"hardwareHealth": asked}}} if asked else {}
    [one] = of_kind(render(values), "DaemonSet")
    return pod(one), container(one)


def environment(one: Object) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in one["env"]}


def test_hardware_health_is_off_unless_the_values_say_so() -> None:
    """SYS_ADMIN is nearly root: no upgrade of the chart may add it."""
    for path in SETS:
        for one in of_kind(rendered(path), "DaemonSet"):
            added = container(one)["securityContext"].get("capabilities", {}).get("add", [])
            assert not {"SYS_ADMIN", "SYS_RAWIO", "NET_ADMIN"} & {*added}
            assert "NODEVITALS_CAPABILITIES" not in environment(container(one))


@pytest.mark.parametrize(
    ("asked", "added", "kept"),
    [
        (
            {"disks": "capabilities"},
            {"SYS_ADMIN", "SYS_RAWIO"},
            "disks=SYS_ADMIN,SYS_RAWIO",
        ),
        ({"transceivers": True}, {"NET_ADMIN"}, "transceivers=NET_ADMIN"),
        (
            {"disks": "capabilities", "transceivers": True},
            {"SYS_ADMIN", "SYS_RAWIO", "NET_ADMIN"},
            "disks=SYS_ADMIN,SYS_RAWIO transceivers=NET_ADMIN",
        ),
    ],
    ids=["disks", "transceivers", "both"],
)
def test_hardware_health_grants_exactly_what_it_names(
    asked: dict[str, Any], added: set[str], kept: str
) -> None:
    before, plain = health()
    after, one = health(**asked)
    security = one["securityContext"]
    assert {*security["capabilities"]["add"]} == added | {
        *plain["securityContext"]["capabilities"]["add"]
    }
    assert security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security
    assert after.get("hostNetwork", False) == ("transceivers" in asked)
    assert environment(one)["NODEVITALS_CAPABILITIES"] == kept
    assert parse_kept(kept).keys() == set(asked)
    assert after["hostPID"] == before["hostPID"]


def test_disks_of_a_privileged_agent_are_for_their_worker_alone() -> None:
    """No smaller right opens /dev/nvme0 of a node to a container."""
    _, one = health(disks="privileged")
    assert one["securityContext"]["privileged"] is True
    assert environment(one)["NODEVITALS_CAPABILITIES"] == "disks=SYS_ADMIN,SYS_RAWIO"


@pytest.mark.parametrize(
    ("name", "label"), [("kube-prometheus-stack", "kube-prometheus-stack"), ("tls", "prometheus")]
)
def test_monitors_have_the_labels_that_an_operator_selects(name: str, label: str) -> None:
    [monitor] = of_kind(named(name), "PodMonitor") + of_kind(named(name), "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == label


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent": {"confg": {}}}, "at '/agent': additional properties 'confg' not allowed"),
        (
            {"nodes": {"nvidia": {"hostPid": True}}},
            "at '/nodes/nvidia': additional properties 'hostPid'",
        ),
        (
            {"agent": {"config": {"probes": {"nvidia": {"expcted": 8}}}}},
            "at '/agent/config/probes/nvidia': additional properties 'expcted' not allowed",
        ),
        (
            {"nodes": {"ascend": {"config": {"defaults": {"interval": "15 s"}}}}},
            "at '/nodes/ascend/config/defaults/interval': '15 s' does not match pattern",
        ),
        ({"nodes": {"two words": {}}}, "two words"),
        (
            {"nodes": {"h100": {"inherits": "nvdia"}}},
            "nodes.h100.inherits: there is no nodes.nvdia",
        ),
        (
            # It would have no affinity: an agent on every node.
            {"nodes": {"hgx": {"inherits": "nvidia"}, "h100": {"inherits": "hgx"}}},
            "nodes.h100.inherits: nodes.hgx inherits as well",
        ),
        (
            {"nodes": {"h100": {"inherits": "nvidia", "nodeSelector": {"gpu": "h100"}}}},
            "nodes.h100 and nodes.nvidia: the nodes of h100 would have two agents",
        ),
        # An entry without a key is an entry: it selects all nodes.
        (
            {"nodes": {"any": {}}},
            "nodes.nvidia and nodes.any: the nodes of nvidia would have two agents",
        ),
        (
            {
                "nodes": {
                    "nvidia": {"enabled": False},
                    "all": {"hostPID": False},
                    "cpu": {"enabled": True},
                }
            },
            "nodes.cpu and nodes.all: the nodes of cpu would have two agents",
        ),
        (
            {"nodes": {"cpu": {"enabled": True, "capabilities": ["SYSLOG"]}}},
            "nodes.cpu: user 65532 gets no capability from Kubernetes",
        ),
        (
            {"nodes": {"cpu": {"enabled": True, "hardwareHealth": {"disks": "privileged"}}}},
            "nodes.cpu.hardwareHealth: user 65532 gets no capability from Kubernetes",
        ),
        (
            {"nodes": {"nvidia": {"hardwareHealth": {"disks": True}}}},
            "at '/nodes/nvidia/hardwareHealth/disks': value must be one of",
        ),
        (
            {"nodes": {"nvidia": {"runAsUser": 1000, "capabilities": []}}},
            "nodes.nvidia: the node's /var/lib/nodevitals belongs to root",
        ),
        (
            {
                "fabric": {"enabled": True, "certificates": "existing"},
                "nodes": {"nvidia": {"fabric": True}},
            },
            "fabric.certificates is existing: set fabric.secret",
        ),
        (
            {"fabric": {"enabled": True}, "nodes": {"nvidia": {"fabric": True}}},
            "list the nodes in fabric.peers",
        ),
        ({"fabric": {"enabled": True}}, "set nodes.<name>.fabric to true"),
        # The operator ignores such an object, and says so in its own log only.
        (
            {"monitor": {"kind": "PodMonitor", "interval": "5s"}},
            "monitor.scrapeTimeout: 10s is longer than monitor.interval, 5s",
        ),
        (
            {"monitor": {"kind": "PodMonitor", "scrapeTimeout": "1m"}},
            "monitor.scrapeTimeout: 1m is longer than monitor.interval, 15s",
        ),
        ({"monitor": {"interval": "1.5s"}}, "at '/monitor/interval': '1.5s' does not match"),
        ({"monitor": None}, "at '': missing property 'monitor'"),
        (
            {"monitor": {"kind": "ServiceMonitor"}, "service": {"enabled": False}},
            "monitor.kind: a ServiceMonitor needs service.enabled: true",
        ),
        # The kubelet would ask for HTTPS and end the agents again and again.
        (
            {"agent": {"web": {"tls": True}}},
            "agent.web.tls: name the Secret of the certificate in agent.web.secret",
        ),
        (
            {"nodes": {"nvidia": {"capabilities": ["CAP_SYSLOG"]}}},
            "nodes.nvidia.capabilities: Kubernetes writes CAP_SYSLOG as SYSLOG",
        ),
        (
            {"nodes": {"nvidia": {"hostMounts": [{"mountPath": "/x"}]}}},
            "at '/nodes/nvidia/hostMounts/0': missing property 'path'",
        ),
        (
            {"image": {"repository": "registry.example:5000/tools/nodevitals:1.0"}},
            "at '/image/repository': 'registry.example:5000/tools/nodevitals:1.0' does not match",
        ),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm.HelmError) as caught:
        render(values)
    assert message in str(caught.value)


README = (CHART / "README.md").read_text()


def test_readme_says_what_every_probe_needs() -> None:
    table = README.partition("| probe | needs |")[2].partition("\n\n")[0]
    rows = {row.split("|")[1] for row in table.splitlines()[2:]}
    missing = [name for name in probes.registered() if not any(f"`{name}`" in r for r in rows)]
    assert [name for name in missing if name != "misbehave"] == []


def test_readme_names_keys_that_exist() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    entry = schema["properties"]["nodeDefaults"]["properties"]
    keys = {"hostPID", "hostNetwork", "hostPaths", "hostMounts", "kubeletDirectory", "privileged"}
    keys |= {"runtimeClassName", "env", "resources", "supplementalGroups", "appArmor", "fabric"}
    assert keys <= set(entry)
    assert all(f"`{key}" in README for key in keys)


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_every_example_of_readme_renders(block: str) -> None:
    assert render(yaml.safe_load(block))


def test_on_gke_nothing_asks_for_what_is_not_there() -> None:
    [block] = [b for b in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "gke" in b]
    [one] = of_kind(render(yaml.safe_load(block)), "DaemonSet")
    assert pod(one).keys() & {"affinity", "runtimeClassName", "priorityClassName"} == set()


def test_values_file_has_every_key() -> None:
    """values.yaml is the reference: it names every key of every section."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    left_out = {"nodeDefaults": {"enabled", "inherits"}}
    for name, section in schema["properties"].items():
        if name in ("global", "nodes"):
            continue
        assert name in values
        wanted = set(section.get("properties", {})) - left_out.get(name, set())
        assert wanted <= set(values[name] or wanted), name


@pytest.mark.parametrize("name", ["kube-prometheus-stack", "tls"])
def test_frequent_scrapes_do_not_double_alerts(name: str) -> None:
    """Rules read the job nodevitals; ScrapeJobMismatch reads nodevitals_build_info of any other,
    which a page of named probes does not have.
    """
    [monitor] = of_kind(named(name), "PodMonitor") + of_kind(named(name), "ServiceMonitor")
    spec = monitor["spec"]
    first, second = spec.get("podMetricsEndpoints") or spec["endpoints"]
    jobs = [
        [one["replacement"] for one in endpoint["relabelings"] if one.get("targetLabel") == "job"]
        for endpoint in (first, second)
    ]
    assert jobs == [["nodevitals"], ["nodevitals-fast"]]
    assert "params" not in first
    assert set(second["params"]["collect[]"]) <= set(probes.registered())


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_targets_may_have_the_labels_of_their_nodes(kind: str) -> None:
    """docs/own-alert.md: alerts are routed by them. The hub is no node of a pool."""
    page = "docs/own-alert.md"
    [block] = [one for one in fences(page, (ROOT / page).read_text()) if one.kind == "yaml"]
    values = yaml.safe_load(block.text)
    values["monitor"]["kind"] = kind
    agents, hub = of_kind(render({**values, "hub": {"enabled": True}}), kind)
    assert agents["spec"]["attachMetadata"] == {"node": True}
    assert "attachMetadata" not in hub["spec"]
    [first] = agents["spec"].get("podMetricsEndpoints") or agents["spec"]["endpoints"]
    assert first["relabelings"][-1] == {
        "action": "replace",
        "sourceLabels": ["__meta_kubernetes_node_label_pool"],
        "targetLabel": "pool",
    }


def test_agents_may_only_read_pods_and_nodes() -> None:
    def rules(name: str) -> dict[str, list[str]]:
        [role] = of_kind(named(name), "ClusterRole")
        return {one["resources"][0]: one["verbs"] for one in role["rules"]}

    assert rules("default") == {"pods": ["list"], "nodes": ["get"]}
    # What the stand-in of the API server permits in the tests of the probe.
    granted = {(verb, one) for one, verbs in rules("default").items() for verb in verbs}
    assert granted == pods.ROLE
    assert rules("extras") == {"pods": ["list"], "nodes": ["get"], "nodes/pods": ["get"]}
    spec = pod(daemonset("restricted", "cpu"))
    assert of_kind(named("restricted"), "ClusterRole") == []
    assert spec["automountServiceAccountToken"] is False
