"""The compose file and what it mounts: everything exists, parses, and fits together. Containers are
not started here.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from testbed.pack import promtool
from testbed.servers import BINARIES

FOLDER = Path(__file__).parents[2] / "dashboards"
JSON = FOLDER.parent / "helm/nodevitals/files/dashboards"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
# Those of the compose specification that are used: a misspelt one would be refused by compose.
KEYS = {
    "cap_drop", "command", "depends_on", "environment", "extra_hosts", "healthcheck", "image",
    "logging", "ports", "read_only", "restart", "security_opt", "tmpfs", "volumes",
}  # fmt: skip


def mounts(service: str) -> dict[str, Path]:
    """Return the folders of the checkout that a service sees, by where it sees them."""
    return {
        one["target"]: (FOLDER / one["source"]).resolve()
        for one in SERVICES[service]["volumes"]
        if one["type"] == "bind"
    }


def on_host(service: str, path: str) -> Path:
    """Return the file of the checkout that a service sees at a path."""
    for target, source in mounts(service).items():
        if path.startswith(f"{target}/"):
            return source / path.removeprefix(f"{target}/")
    raise AssertionError(f"{service} has nothing at {path}")


def provisioned(kind: str) -> list[dict[str, Any]]:
    """Return the data sources or providers of all files."""
    files = sorted((FOLDER / "provisioning" / kind).glob("*.yaml"))
    assert files
    key = {"datasources": "datasources", "dashboards": "providers"}[kind]
    read = [yaml.safe_load(file.read_text()) for file in files]
    assert {one["apiVersion"] for one in read} == {1}
    return [part for one in read for part in one[key]]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service(name: str) -> None:
    service = SERVICES[name]
    assert not service.keys() - KEYS
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in service["ports"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    port = service["ports"][0].rpartition(":")[2]
    assert service["healthcheck"]["test"][-1].startswith(f"http://127.0.0.1:{port}/")
    for other in service.get("depends_on", {}):
        assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_service_mounts(name: str) -> None:
    volumes = SERVICES[name]["volumes"]
    for one in volumes:
        assert one["type"] in ("bind", "volume")
        if one["type"] == "bind":
            assert one["read_only"] is True
            assert (FOLDER / one["source"]).is_dir()
        else:
            assert one["source"] in COMPOSE["volumes"]
    targets = [one["target"] for one in volumes]
    assert len(set(targets)) == len(targets)


def test_there_is_no_password_and_no_anonymous_user() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert on_host("grafana", environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()


def configuration(service: str) -> Path:
    """Return the configuration file that a service's command names."""
    [path] = [
        argument.partition("=")[2]
        for argument in SERVICES[service]["command"]
        if argument.startswith("--config.file=")
    ]
    return on_host(service, path)


def test_prometheus_accepts_its_configuration_and_sees_all_rules() -> None:
    path = configuration("prometheus")
    status, output = promtool("check", "config", str(path))
    assert status == 0, output
    assert "rules found" in output
    folders = set(mounts("prometheus").values())
    for pattern in yaml.safe_load(path.read_text())["rule_files"]:
        rules = list(path.parent.glob(pattern))
        assert rules
        assert {file.resolve().parent for file in rules} <= folders


def test_alertmanager_accepts_its_configuration() -> None:
    path = configuration("alertmanager")
    checked = subprocess.run(
        [str(BINARIES / "amtool"), "check-config", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    for pattern in yaml.safe_load(path.read_text())["templates"]:
        assert list(path.parent.glob(pattern))


def test_the_job_of_the_nodes_is_that_of_the_package() -> None:
    packaged = yaml.safe_load(
        (FOLDER.parent / "exporter" / "packaging" / "prometheus.yaml").read_text()
    )
    ours = yaml.safe_load(configuration("prometheus").read_text())
    job = packaged["scrape_configs"][0]
    own = ours["scrape_configs"][0]
    assert own.pop("file_sd_configs")
    job.pop("static_configs")
    assert own == job
    assert ours["global"] == packaged["global"]


def test_data_sources() -> None:
    found = {one["uid"]: one for one in provisioned("datasources")}
    prometheus = found["nodevitals-prometheus"]
    scraped = yaml.safe_load(configuration("prometheus").read_text())["global"]["scrape_interval"]
    assert prometheus["jsonData"]["timeInterval"] == scraped
    assert prometheus["isDefault"] is True
    ports = {name: service["ports"][0].rpartition(":")[2] for name, service in SERVICES.items()}
    for one in found.values():
        address = urlsplit(one["url"])
        assert one["type"] == address.hostname
        assert str(address.port) == ports[str(address.hostname)]


def test_all_dashboards_are_provisioned_once() -> None:
    providers = provisioned("dashboards")
    assert len({one["folderUid"] for one in providers}) == len(providers)
    assert not any(one["allowUiUpdates"] for one in providers)
    folders = {on_host("grafana", one["options"]["path"]) for one in providers}
    assert {folder.resolve() for folder in folders} == {
        path.parent for path in JSON.rglob("*.json")
    }
    uids = [
        json.loads(path.read_text())["uid"] for folder in folders for path in folder.glob("*.json")
    ]
    assert len(set(uids)) == len(uids)
