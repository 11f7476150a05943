"""The CRD of the resource Check: valid, generated, and of one mind with the model. The hub of the
chart: it starts with its configuration, agents accept it, and it may do only what it does.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate
import pytest
import yaml
from helm.crd import crd, spec_schema

from nodevitals import probes
from nodevitals.config import parse
from nodevitals.probes.fabric.secrets import HubToken, Secrets, has_name
from nodevitals.probes.fabric.settings import FabricTlsSettings
from nodevitals_hub.service import load
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.triggers.resource_spec import request_of
from testbed import handshake
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
from testbed.kubernetes_api import checks, jobs, nodes
from testbed.kubernetes_api.helm import Cluster
from testbed.kubernetes_api.store import resource_of
from testbed.node import ROOT
from testbed.repairs import REMEDIATION, RESET_JOB

COLLECTIVE = {"kind": "collective", "where": {"pool": "train"}}
MATRIX = {"kind": "matrix"}
HUBS = [path for path in SETS if path.stem.startswith("hub-")]
GENERATED = values_of(ROOT / "tests/data/chart/hub-generated.yaml")
# What Helm makes Secrets for, of kinds that the stand-in of the API server knows.
SECRETS = {"fabric": GENERATED["fabric"], "nodes": GENERATED["nodes"], "hub": {"enabled": True}}

each_hub = pytest.mark.parametrize("path", HUBS, ids=lambda path: path.stem)


def accepted_by_the_schema(spec: Any) -> bool:
    """As the API server validates: nullable is a keyword of its own."""
    return not list(jsonschema.Draft4Validator(with_null(spec_schema())).iter_errors(spec))


def with_null(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: with_null(one) for name, one in value.items()}
        if key == "properties"
        else with_null(value)
        for key, value in schema.items()
    }
    if found.pop("nullable", False):
        return {"anyOf": [found, {"type": "null"}]}
    return found


def accepted_by_the_model(spec: Any) -> bool:
    try:
        request_of(spec)
    except ValueError:
        return False
    return True


def test_the_crd_is_valid_and_generated() -> None:
    text = (CHART / "files/crds/checks.yaml").read_text()
    assert text == crd()
    for version in ("1.27", "1.37"):
        kubernetes_validate.validate(yaml.safe_load(text), version, strict=True)


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        (MATRIX, True),
        ({}, False),
        ({"kind": "best"}, False),
        ({**MATRIX, "nodes": ["gpu-1"]}, True),
        ({**MATRIX, "nodes": ["; reboot"]}, False),
        ({**MATRIX, "nodes": "gpu-1"}, False),
        ({**MATRIX, "where": {"pool": "train"}}, True),
        ({**MATRIX, "where": {"pool": 3}}, False),
        ({**MATRIX, "rounds": None}, True),
        ({**MATRIX, "rounds": 0}, False),
        ({**MATRIX, "rounds": 1001}, False),
        ({**MATRIX, "share": 0}, False),
        ({**MATRIX, "share": 1}, True),
        ({**MATRIX, "share": 1.1}, False),
        ({**MATRIX, "expectedBytesPerSecond": 0}, False),
        ({**MATRIX, "limitSeconds": 86401}, False),
        ({**MATRIX, "isolate": None}, False),
        ({**MATRIX, "note": "x" * 501}, False),
        ({**MATRIX, "test": {"queuePairs": 65}}, False),
        ({**COLLECTIVE, "test": {"dataType": "bfp16", "reduction": "max"}}, True),
        ({**COLLECTIVE, "test": {"devicesPerProcess": 8, "warmUpIterations": 0}}, True),
        ({**COLLECTIVE, "test": {"warmUpIterations": -1}}, False),
        ({**COLLECTIVE, "test": {"devicesPerProcess": 0}}, False),
        ({**MATRIX, "test": {"queuePairs": 64, "gidIndex": 3, "trafficClass": 106}}, True),
        ({**MATRIX, "test": {"tool": "ssh"}}, False),
        ({**MATRIX, "test": {"tool": None}}, True),
        ({**MATRIX, "test": {"environment": {"NCCL_ALGO": "Ring"}}}, True),
        ({**MATRIX, "test": {"mca": {"btl": ["tcp"]}}}, False),
        ({**MATRIX, "test": None}, False),
    ],
)
def test_the_schema_and_the_model_agree(spec: dict[str, Any], valid: bool) -> None:
    assert (accepted_by_the_schema(spec), accepted_by_the_model(spec)) == (valid, valid)


def named(name: str) -> tuple[Object, ...]:
    return rendered(ROOT / f"tests/data/chart/{name}.yaml")


def deployment(objects: tuple[Object, ...] | list[Object]) -> Object:
    [found] = of_kind(objects, "Deployment")
    return found


def text_of(objects: tuple[Object, ...] | list[Object], file: str) -> str:
    """The configuration of the hub, or of the only DaemonSet."""
    maps = of_kind(objects, "ConfigMap")
    [found] = [one["data"][file] for one in maps if file in one["data"]]
    return str(found)


def settings_of(objects: tuple[Object, ...] | list[Object], folder: Path) -> HubSettings:
    file = folder / "hub.yaml"
    file.write_text(text_of(objects, "hub.yaml"))
    return load(str(file))


def names_of(objects: tuple[Object, ...] | list[Object]) -> list[str]:
    """The names that the agents accept in the hub's certificate."""
    config = yaml.safe_load(text_of(objects, "nodevitals.yaml"))
    return list(config["probes"]["fabric"]["hub"]["names"])


def data_of(objects: list[Object]) -> dict[str, dict[str, bytes]]:
    return {
        one["metadata"]["name"]: {key: base64.b64decode(text) for key, text in one["data"].items()}
        for one in of_kind(objects, "Secret")
    }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as found:
        yield found


def test_there_are_sets_of_the_hub() -> None:
    assert len(HUBS) >= 4


@pytest.mark.parametrize("name", ["default", "extras", "fabric-generated", "fabric-cert-manager"])
def test_a_release_without_the_hub_has_nothing_of_it(name: str) -> None:
    objects = named(name)
    kinds = {one["kind"] for one in objects}
    assert kinds.isdisjoint({"Deployment", "PersistentVolumeClaim", "Role"})
    assert "CustomResourceDefinition" not in kinds
    for one in objects:
        assert "-hub" not in one["metadata"]["name"]
    for one in of_kind(objects, "DaemonSet"):
        assert "hub" not in str(one)


@each_hub
def test_the_hub_accepts_its_configuration(path: Path, tmp_path: Path) -> None:
    objects = rendered(path)
    settings = settings_of(objects, tmp_path)
    mounts = {one["mountPath"] for one in container(deployment(objects))["volumeMounts"]}
    assert settings.state_directory in mounts
    if settings.agents is not None:
        tls = settings.agents.tls
        for file in (settings.agents.token_file, tls.cert_file, tls.key_file, tls.ca_file):
            assert str(Path(file).parent) in mounts
        login, authority = settings.agents.metrics_basic_auth, settings.agents.metrics_tls_config
        for given in (login and login.password_file, authority.ca_file):
            assert not given or str(Path(given).parent) in mounts
    if settings.access.tokens_file is not None:
        assert str(Path(settings.access.tokens_file).parent) in mounts


def test_the_configuration_has_what_the_chart_knows_and_what_the_site_says(tmp_path: Path) -> None:
    settings = settings_of(named("hub-generated"), tmp_path)
    peers = GENERATED["fabric"]["peers"]
    assert [list(one.targets) for one in settings.nodes.static] == [peers]
    assert settings.agents is not None
    assert (settings.agents.metrics_port, settings.agents.metrics_scheme) == (9855, "https")
    assert settings.agents.metrics_tls_config.ca_file is not None
    assert settings.agents.metrics_basic_auth is not None
    assert settings.agents.metrics_basic_auth.username == "hub"
    assert settings.collectives.namespace == NAMESPACE
    assert settings.access.anonymous is None
    assert settings.schedules["nightly"].node_hours == 20
    assert settings.limits.keep_checks == 1_000_000


def test_nodes_are_the_peers_or_the_agents_service_or_the_lists_of_the_site(
    tmp_path: Path,
) -> None:
    alone = settings_of(named("hub-alone"), tmp_path)
    assert alone.nodes.dns_sd == ("nodevitals-headless.monitoring.svc",)
    assert alone.agents is None
    own = settings_of(named("hub-existing"), tmp_path).nodes
    assert (own.static, own.dns_sd, len(own.file_sd)) == ((), (), 1)
    no_service = render({"service": {"enabled": False}, "hub": {"enabled": True}})
    assert settings_of(no_service, tmp_path).nodes.dns_sd == ()


@pytest.mark.parametrize("name", ["hub-generated", "hub-cert-manager", "hub-existing"])
def test_agents_accept_their_configuration_with_the_hub(name: str) -> None:
    """No test of their own plan is needed."""
    objects = named(name)
    [agents] = of_kind(objects, "DaemonSet")
    text = text_of(objects, "nodevitals.yaml")
    parse(text.encode(), probes.registered())
    token = yaml.safe_load(text)["probes"]["fabric"]["hub"]["token_file"]
    mounts = {one["mountPath"]: one["name"] for one in container(agents)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(agents)["volumes"]}
    secret = volumes[mounts[str(Path(token).parent)]]["secret"]["secretName"]
    assert secret in str(pod(deployment(objects))["volumes"])


def test_agents_know_the_hub_by_its_certificate_and_no_other(site: Cluster, tmp_path: Path) -> None:
    objects = site.install(SECRETS)
    names, data = names_of(objects), data_of(objects)
    assert names == ["nodevitals-hub.monitoring.svc"]
    agent, hub = data["nodevitals-fabric"], data["nodevitals-hub-fabric"]
    assert has_name(handshake.connect(hub, agent, tmp_path, "gpu-node-1"), names)
    assert not has_name(handshake.connect(agent, agent, tmp_path, "gpu-node-1"), names)


def test_the_hub_and_the_agents_can_use_the_secrets(site: Cluster, tmp_path: Path) -> None:
    data = data_of(site.install(SECRETS))
    for name, secret in data.items():
        (tmp_path / name).mkdir()
        for file, content in secret.items():
            (tmp_path / name / file).write_bytes(content)

    def secrets(token: str, certificate: str) -> Secrets:
        folder = tmp_path / certificate
        tls = FabricTlsSettings(
            cert_file=str(folder / "tls.crt"),
            key_file=str(folder / "tls.key"),
            ca_file=str(folder / "ca.crt"),
        )
        return Secrets(str(tmp_path / token / "token"), tls)

    hub = secrets("nodevitals-hub-token", "nodevitals-hub-fabric")
    agent = secrets("nodevitals-fabric-token", "nodevitals-fabric")
    assert HubToken(str(tmp_path / "nodevitals-hub-token/token"), agent).token == hub.token


def test_a_second_installation_keeps_the_hubs_secrets(site: Cluster) -> None:
    first = data_of(site.install(SECRETS))
    assert data_of(site.install(SECRETS)) == first
    other = {**SECRETS, "hub": {"enabled": True, "names": ["hub.example.org"]}}
    second = data_of(site.install(other))
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"nodevitals-hub-fabric"}


def test_cert_manager_makes_a_certificate_with_the_names_that_agents_accept() -> None:
    objects = named("hub-cert-manager")
    certificates = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Certificate")}
    mine = certificates["nodevitals-hub-fabric"]
    assert mine["dnsNames"] == names_of(objects) == ["hub.example.org", "hub.internal"]
    assert mine["issuerRef"] == certificates["nodevitals-fabric"]["issuerRef"]


def granted(objects: tuple[Object, ...], role: str) -> set[tuple[str, str]]:
    """What a role permits, as (verb, resource)."""
    [found] = [one for one in objects if one["metadata"]["name"] == role and "rules" in one]
    return {
        (verb, resource_of(group, resource))
        for one in found["rules"]
        for group in one["apiGroups"]
        for resource in one["resources"]
        for verb in one["verbs"]
    }


def test_the_hub_may_do_what_it_does_and_nothing_else() -> None:
    """Its tests run at stand-ins that permit ROLE alone, and fail where they are refused."""
    for name, kind in (("hub-generated", jobs.VOLCANO), ("hub-cert-manager", jobs.MPI)):
        objects = named(name)
        assert granted(objects, "monitoring:nodevitals-checks") == checks.ROLE
        assert granted(objects, "monitoring:nodevitals-launcher") == jobs.role(kind)
        assert pod(deployment(objects))["automountServiceAccountToken"] is True
    assert "Role" in {one["kind"] for one in named("hub-cert-manager")}
    made = [one for one in named("hub-cert-manager") if "checks" in one["metadata"]["name"]]
    assert {one["kind"] for one in made} == {"Role", "RoleBinding", "CustomResourceDefinition"}


def test_a_hub_that_needs_no_api_server_has_no_rights() -> None:
    objects = named("hub-alone")
    assert pod(deployment(objects))["automountServiceAccountToken"] is False
    roles = [one for one in objects if one["kind"].endswith(("Role", "RoleBinding"))]
    assert {one["metadata"]["name"] for one in roles} == {"monitoring:nodevitals"}
    assert of_kind(objects, "CustomResourceDefinition") == []


@pytest.mark.parametrize(
    ("settings", "verbs"),
    [
        ({}, {("get", "nodes")}),
        ({"drain": True}, {("get", "nodes")}),
        ({"dry_run": False}, nodes.ROLE - {("list", "pods"), ("create", "pods/eviction")}),
        ({"dry_run": False, "drain": True}, nodes.ROLE),
        ({"scheduler": "slurm", "dry_run": False}, set()),
    ],
)
def test_the_hub_may_change_nodes_only_where_it_takes_them_out_of_service(
    settings: dict[str, Any], verbs: set[tuple[str, str]]
) -> None:
    """The same rights that the stand-in of the API server checks."""
    config = {"out_of_service": {"scheduler": "kubernetes", **settings}}
    objects = render({"hub": {"enabled": True, "config": config}})
    if verbs:
        assert granted(tuple(objects), "monitoring:nodevitals-nodes") == verbs
    assert pod(deployment(objects))["automountServiceAccountToken"] == bool(verbs)


REPAIRS: list[dict[str, Any]] = [
    {"name": "reset", "action": "reset_device", "manifest_file": "/etc/nodevitals/repair-a.yaml"},
    {
        "name": "reboot",
        "action": "reboot_node",
        "manifest_file": "/etc/nodevitals/repair-b.yaml",
        "remove": True,
    },
    {"name": "ticket", "action": "replace", "command": ["/bin/ticket", "{node}"]},
]
MANIFESTS = {"repair-a.yaml": RESET_JOB, "repair-b.yaml": REMEDIATION}


def repairing(dry_run: bool, *dry_runs: bool, **more: Any) -> list[Object]:
    """A release whose hub has repairs."""
    repairs = [{**one, "dry_run": dry} for one, dry in zip(REPAIRS, dry_runs, strict=True)]
    out = {"scheduler": "kubernetes", "dry_run": dry_run, "repairs": repairs, **more}
    out["where"] = [{"pool": "train"}]
    config = {"out_of_service": out, "prometheus": {"url": "http://prometheus:9090"}}
    hub = {"enabled": True, "config": config, "repairManifests": MANIFESTS}
    return render({"hub": hub})


def repair_rights(objects: list[Object]) -> set[tuple[str, str, str]]:
    """What the hub may do to repair, as (verb, resource, namespace)."""
    roles = [one for one in objects if one["kind"] == "Role" and "-repairs-" in str(one)]
    bound = [one for one in objects if one["kind"] == "RoleBinding" and "-repairs-" in str(one)]
    assert len(roles) == len(bound)
    return {
        (verb, f"{resource}.{group}", one["metadata"]["namespace"])
        for one in roles
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_hub_may_create_only_the_objects_of_repairs_that_are_no_dry_run() -> None:
    """The same rights that the stand-in of the API server checks."""
    repairs = {(verb, resource, nodes.NAMESPACE) for verb, resource in nodes.REPAIR_ROLE}
    verbs = ("create", "get", "delete")
    remediations = {(one, nodes.REMEDIATIONS, nodes.NAMESPACE) for one in verbs}
    assert repair_rights(repairing(False, False, False, False)) == repairs | remediations
    assert repair_rights(repairing(False, False, True, True)) == repairs
    assert repair_rights(repairing(False, True, True, False)) == set()
    assert repair_rights(repairing(True, False, False, False)) == set()
    slurm = repairing(False, False, True, True, scheduler="slurm")
    assert repair_rights(slurm) == repairs
    assert pod(deployment(slurm))["automountServiceAccountToken"] is True
    assert ("list", "pods") in granted(
        tuple(repairing(False, False, True, True)), "monitoring:nodevitals-nodes"
    )


def test_the_hub_reads_the_objects_of_its_repairs(tmp_path: Path) -> None:
    objects = repairing(False, False, False, False)
    for name, wanted in MANIFESTS.items():
        assert yaml.safe_load(text_of(objects, name)) == wanted
        (tmp_path / name).write_text(text_of(objects, name))
    text = text_of(objects, "hub.yaml").replace("/etc/nodevitals/repair", f"{tmp_path}/repair")
    (tmp_path / "hub.yaml").write_text(text)
    settings = load(str(tmp_path / "hub.yaml")).out_of_service
    assert settings is not None
    assert [one.name for one in settings.repairs] == ["reset", "reboot", "ticket"]
    mounts = {one["mountPath"] for one in container(deployment(objects))["volumeMounts"]}
    assert "/etc/nodevitals" in mounts


def test_other_namespaces_have_the_roles_of_what_is_in_them() -> None:
    config = {
        "resources": {"enabled": True, "namespace": "ops"},
        "collectives": {"launcher": "volcano", "namespace": "train"},
    }
    objects = render({"hub": {"enabled": True, "config": config}})
    roles = [one for one in objects if one["kind"] in ("Role", "RoleBinding")]
    found = {(o["kind"], o["metadata"]["name"], o["metadata"]["namespace"]) for o in roles}
    checks, launcher = "monitoring:nodevitals-checks", "monitoring:nodevitals-launcher"
    assert found == {
        *(("Role", checks, "ops"), ("RoleBinding", checks, "ops")),
        *(("Role", launcher, "train"), ("RoleBinding", launcher, "train")),
    }


def test_the_crd_is_there_with_the_resources_and_stays_when_the_release_goes() -> None:
    [found] = of_kind(named("hub-generated"), "CustomResourceDefinition")
    assert found == yaml.safe_load(crd())
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert of_kind(named("hub-existing"), "CustomResourceDefinition") == []


@each_hub
def test_one_pod_without_rights_on_its_node(path: Path) -> None:
    one = deployment(rendered(path))
    assert (one["spec"]["replicas"], one["spec"]["strategy"]) == (1, {"type": "Recreate"})
    security = pod(one)["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(one)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPath" in volume for volume in pod(one)["volumes"])
    asked = [container(one).get(f"{kind}Probe") for kind in ("startup", "liveness", "readiness")]
    assert [bool(probe) for probe in asked] == [path.stem != "hub-existing", True, True]
    assert {probe["httpGet"]["path"] for probe in asked if probe} == {"/healthz"}


def test_the_results_are_on_a_claim_of_the_chart_or_of_the_site() -> None:
    [claim] = of_kind(named("hub-cert-manager"), "PersistentVolumeClaim")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "10Gi"}}
    for name in ("hub-alone", "hub-existing"):
        assert of_kind(named(name), "PersistentVolumeClaim") == []


@pytest.mark.parametrize(
    ("name", "kind", "scheme"),
    [("hub-generated", "PodMonitor", "https"), ("hub-cert-manager", "ServiceMonitor", "http")],
)
def test_the_hubs_job_is_the_one_that_rules_read(name: str, kind: str, scheme: str) -> None:
    [monitor] = [m for m in of_kind(named(name), kind) if m["metadata"]["name"].endswith("-hub")]
    [endpoint] = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    labels = {one.get("targetLabel"): one.get("replacement") for one in endpoint["relabelings"]}
    assert (labels["job"], labels["instance"]) == ("nodevitals-hub", "nodevitals-hub")
    assert 'job="nodevitals-hub"' in (ROOT / "rules/checks.yaml").read_text()
    assert (endpoint["scheme"], "basicAuth" in endpoint) == (scheme, scheme == "https")
    ports = {port["name"] for port in container(deployment(named(name)))["ports"]}
    assert endpoint["port"] in ports


def policies(name: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in of_kind(named(name), "NetworkPolicy")}


def test_policies_let_the_hub_and_its_clients_in() -> None:
    found = policies("hub-generated")
    [agents] = found["nodevitals"]["ingress"]
    hub = {"app.kubernetes.io/component": "hub"}.items()
    allowed = [one["podSelector"]["matchLabels"] for one in agents["from"] if "podSelector" in one]
    assert [hub <= labels.items() for labels in allowed] == [True]
    [clients] = found["nodevitals-hub"]["ingress"]
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in clients["from"]
    rules = found["nodevitals-hub"]["egress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {53, 9855, 9856, 443, 6443}
    anyone = policies("hub-cert-manager")["nodevitals-hub"]["ingress"]
    assert anyone == [{"ports": [{"protocol": "TCP", "port": "http"}]}]


WITHOUT_SECRET = """
hub: {enabled: true}
nodes: {nvidia: {fabric: true}}
fabric: {enabled: true, certificates: existing, secret: a, tokenSecret: a}
"""
WITH_ITS_NAME = """
hub: {enabled: true}
nodes: {hub: {inherits: nvidia}, nvidia: {enabled: false}}
"""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("hub: {config: {clustr: a}}", "additional properties 'clustr' not allowed"),
        ("hub: {config: {state_directory: /x}}", "'state_directory' not allowed"),
        ("hub: {config: {schedules: {a: {check: {kind: best}}}}}", "value must be one of"),
        ("hub: {config: {limits: {keep: 90}}}", "/hub/config/limits/keep': got number"),
        ("hub: {runAsUser: 0}", "/hub/runAsUser': minimum: got 0"),
        ("hub: {enabled: true, web: {tls: true}}", "hub.web.tls: name the Secret"),
        ("hub: {enabled: true, agentMetrics: {username: a}}", "set both username and password"),
        ("hub: {agentMetrics: {caSecret: A_B}}", "does not match pattern"),
        (WITH_ITS_NAME, "nodes.hub: its objects would have the names of the hub's"),
        (WITHOUT_SECRET, "set hub.secret to the name of the Secret"),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, message: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(message)):
        render(yaml.safe_load(values))


def test_a_configuration_whose_lines_are_all_commented_out_is_an_empty_one() -> None:
    hub = {"enabled": True}
    assert render({"hub": {**hub, "config": None}}) == render({"hub": {**hub, "config": {}}})


def test_the_notes_say_where_the_pages_are() -> None:
    with helm.Chart.load(CHART) as chart:
        files = chart.render({"hub": {"enabled": True}}, name="nodevitals", namespace=NAMESPACE)
    [notes] = [text for path, text in files.items() if path.endswith("NOTES.txt")]
    assert "port-forward service/nodevitals-hub 9857" in notes
    assert "until fabric.enabled is true" in notes


PAGE = (ROOT / "docs/kubernetes.md").read_text()


def fence(title: str) -> str:
    """The text of the fence of the page with this title."""
    [found] = re.findall(rf'(?ms)^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE)
    return str(found)


def test_the_values_of_the_page_render(tmp_path: Path) -> None:
    settings = settings_of(render(yaml.safe_load(fence("values of the chart"))), tmp_path)
    assert settings.resources.enabled
    assert settings.agents is not None


def test_the_resource_of_the_page_is_valid_and_its_columns_are_those_of_the_crd() -> None:
    resource, columns = yaml.safe_load(fence("check.yaml")), yaml.safe_load(crd())["spec"]
    assert (resource["kind"], resource["apiVersion"]) == ("Check", "nodevitals.io/v1alpha1")
    assert accepted_by_the_schema(resource["spec"])
    assert request_of(resource["spec"]).test.queue_pairs == 8
    printed = [one["name"].upper() for one in columns["versions"][0]["additionalPrinterColumns"]]
    [header] = [line for line in PAGE.splitlines() if line.startswith("NAME  ")]
    assert header.split() == ["NAME", *printed]
