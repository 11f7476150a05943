"""`nodevitals doctor` against servers that answer badly: findings, never a trace or a hang."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import pytest
import trustme

from nodevitals import __version__
from nodevitals.commands.doctor.command import add_to
from nodevitals.commands.doctor.examination import Examination
from nodevitals.commands.doctor.findings import Finding
from testbed.node import Node, free_port, run
from testbed.standin import BEHAVIOURS, SLOW, StandIn, stand_in

NOW = "2026-11-22T12:00:00.123456789Z"
AGENT = {
    "/metrics": (
        f'nodevitals_build_info{{version="{__version__}"}} 1\n'
        "nodevitals_config_last_reload_successful 1\n"
        "nodevitals_config_last_reload_success_timestamp_seconds 1795300000\n"
        "nodevitals_node_clock_synchronized 1\n"
        "process_start_time_seconds 1795300000.25\n"
        'nodevitals_probe_success{probe="node",target="node"} 1\n'
        'nodevitals_probe_duration_seconds{probe="node",target="node"} 1\n'
    ).encode(),
    "/healthz": b"ok\n",
    "/readyz": b"ok\n",
}
RULE = "vector(1)"


def prometheus() -> dict[str, bytes]:
    metric = {"job": "nodevitals", "instance": "n1", "threshold": "t"}
    vector = {"result": [{"metric": metric, "value": [time.time(), "1795300000.25"]}]}
    rule = {"name": "Watchdog", "query": RULE, "health": "ok", "alerts": []}
    group = {"name": "nodevitals-agent", "rules": [rule], "interval": 15, "evaluationTime": 0.1}
    target = {
        "labels": metric,
        "scrapeUrl": "http://n1:9855/metrics",
        "health": "up",
        "lastScrape": NOW,
        "scrapeInterval": "15s",
    }
    answers = {
        "/api/v1/status/buildinfo": {"version": "2.42.0"},
        "/api/v1/status/runtimeinfo": {"startTime": "2020-01-01T00:00:00Z"},
        "/api/v1/targets": {"activeTargets": [target]},
        "/api/v1/rules": {"groups": [group]},
        "/api/v1/alertmanagers": {"activeAlertmanagers": [{"url": "http://am:9093/api/v2/alerts"}]},
        "/api/v1/query": vector,
    }
    found = {path: json.dumps({"data": data}).encode() for path, data in answers.items()}
    return {**found, "/-/ready": b"ready"}


CONFIG = "route: {receiver: ops}\nreceivers: [{name: ops, webhook_configs: [{url: 'http://x'}]}]"
ALERTMANAGER = {
    "/api/v2/status": {
        "cluster": {"status": "disabled"},
        "versionInfo": {"version": "0.25.0"},
        "config": {"original": CONFIG},
    },
    "/api/v2/alerts": [
        {
            "labels": {"alertname": "Watchdog"},
            "updatedAt": NOW,
            "endsAt": "2099-01-01T00:00:00Z",
            "status": {"state": "active"},
        }
    ],
    "/api/v2/silences": [],
}
PATHS = [
    *(("agent", path) for path in AGENT),
    *(("prometheus", path) for path in prometheus()),
    *(("alertmanager", path) for path in ALERTMANAGER),
]


class Servers:
    """The three stand-ins, and the options that name them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        manager = {path: json.dumps(body).encode() for path, body in ALERTMANAGER.items()}
        self.by_name: dict[str, StandIn] = {
            "agent": stack.enter_context(stand_in(AGENT)),
            "prometheus": stack.enter_context(stand_in(prometheus())),
            "alertmanager": stack.enter_context(stand_in(manager)),
        }
        rules = folder / "rules"
        rules.mkdir()
        text = f"groups: [{{name: nodevitals-agent, rules: [{{alert: Watchdog, expr: {RULE}}}]}}]"
        (rules / "agent.yaml").write_text(text)
        (folder / "nodevitals.yaml").write_text(json.dumps({"state_directory": str(folder)}))
        self.flags = [
            "doctor",
            f"--url={self.by_name['agent'].url}",
            f"--rules={rules}",
            f"--config.file={folder / 'nodevitals.yaml'}",
            *(f"--{name}={self.by_name[name].url}" for name in ("prometheus", "alertmanager")),
        ]

    def findings(self, seconds: float) -> list[Finding]:
        parser = argparse.ArgumentParser()
        add_to(parser.add_subparsers())
        options = parser.parse_args(self.flags)
        return list(Examination(options, time.monotonic(), seconds).findings())


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path)


def signature(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(one.check, one.state) for one in findings}


def is_sane(findings: list[Finding]) -> None:
    for one in findings:
        assert one.state in ("ok", "problem", "unknown", "off"), one
        text = f"{one.check}{one.detail}{one.remedy}"
        assert text.isprintable(), one
        assert "hunter2" not in text, one


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_every_endpoint_may_answer_badly(servers: Servers, behaviour: str) -> None:
    """Each path in turn, with the others well: findings, and others than of a good answer."""
    good = signature(servers.findings(20))
    for name, path in PATHS:
        server = servers.by_name[name]
        server.bad = {path: behaviour}
        found = servers.findings(0.6 if behaviour in SLOW else 20)
        server.bad = {}
        is_sane(found)
        if path not in HARMLESS:
            assert signature(found) != good, (path, behaviour)


# Only the wait for a first Watchdog depends on it.
HARMLESS = ("/api/v1/status/runtimeinfo",)


@pytest.mark.parametrize("behaviour", [*SLOW, "login page"])
def test_all_servers_answer_badly(servers: Servers, behaviour: str) -> None:
    """The command ends by itself with a table, and with a status that is not 0."""
    for server in servers.by_name.values():
        server.bad = {"*": behaviour}
    done = run(*servers.flags, "--timeout=3s")
    assert done.stderr == ""
    head, *rows = done.stdout.splitlines()
    assert head.startswith("CHECK")
    assert {row.split()[0] for row in rows} >= {"agent", "prometheus", "alertmanager"}
    assert done.returncode == (2 if behaviour == "login page" else 1)


def test_passwords_in_urls_are_used_and_not_printed(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    password = bcrypt.hashpw(b"hunter2", bcrypt.gensalt(4)).decode()
    web.write_text(f"basic_auth_users: {{lin: '{password}'}}")
    with Node(tmp_path, {}, f"--web.config.file={web}") as node:
        url = node.url.replace("://", "://lin:hunter2@")
        done = run("doctor", f"--url={url}", f"--config.file={node.config_file}", "--json")
        nowhere = f"http://lin:hunter2@127.0.0.1:{free_port()}"
        refused = run("doctor", f"--url={url}", f"--prometheus={nowhere}")
        without = run("doctor", f"--url={node.url}")
    assert json.loads(done.stdout)[0]["state"] == "ok"
    assert "Connection refused" in refused.stdout
    assert "hunter2" not in done.stdout + done.stderr + refused.stdout + refused.stderr
    (row,) = [row for row in without.stdout.splitlines() if row.startswith("agent ")]
    assert "HTTP 401: it asks for a password" in row
    assert "--http.config.file" in row


def test_a_file_names_the_ca_and_the_password(tmp_path: Path) -> None:
    """And without it, a certificate of an unknown CA is a problem with that remedy."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    web = tmp_path / "web.yaml"
    tls = "{cert_file: server.pem, key_file: server.pem}"
    web.write_text(f"tls_server_config: {tls}")
    http = tmp_path / "http.yaml"
    http.write_text("tls_config: {ca_file: ca.pem}")
    with Node(tmp_path, {}, f"--web.config.file={web}") as node:
        url = f"--url=https://localhost:{node.port}"
        done = run("doctor", url, f"--http.config.file={http}", "--json")
        unknown = run("doctor", url, "--json")
    assert json.loads(done.stdout)[0]["state"] == "ok"
    first = json.loads(unknown.stdout)[0]
    assert first["state"] == "problem"
    assert "certificate verify failed" in first["detail"]
    assert "tls_config" in first["remedy"]


def test_without_an_agent_a_hanging_probe_is_named_within_the_time(tmp_path: Path) -> None:
    probes = {"misbehave": {"behaviours": ["sleeps", "healthy"]}}
    config = {"defaults": {"timeout": "60s", "interval": "60s"}, "probes": probes}
    file = tmp_path / "nodevitals.yaml"
    file.write_text(json.dumps(config))
    url = f"--url=http://127.0.0.1:{free_port()}"
    done = run("doctor", url, f"--config.file={file}", "--timeout=16s", "--json")
    assert done.stderr == ""
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["agent"]["detail"].endswith("Connection refused")
    assert "systemctl enable --now nodevitals" in found["agent"]["remedy"]
    assert "no result within" in found["probe misbehave sleeps"]["detail"]
    assert found["probe misbehave"]["state"] == "ok"


def test_a_wrong_configuration_file_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "nodevitals.yaml"
    file.write_text("probes: {node: {intervall: 5s}}")
    url = f"--url=http://127.0.0.1:{free_port()}"
    done = run("doctor", url, f"--config.file={file}", "--json")
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["configuration file"]["state"] == "problem"
    assert "probes.node.intervall" in found["configuration file"]["detail"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--url=localhost:9855"], "--url: not a URL"),
        (["--prometheus=http://"], "--prometheus: not a URL"),
        (["--timeout=never"], "--timeout: "),
        (["--timeout=10ms"], "--timeout: 10ms is under 2s"),
        (["--http.config.file=/nowhere"], "/nowhere: "),
        (["--rules=/nowhere", "--prometheus=http://localhost"], "/nowhere: no rule file"),
    ],
)
def test_unusable_options_are_one_line(flags: list[str], text: str) -> None:
    done = run("doctor", *flags)
    assert (done.returncode, done.stdout) != (0, "")
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["abc", "NaN", "1e400", ""])
def test_values_that_are_no_numbers(servers: Servers, value: str) -> None:
    """What Prometheus answers is text; what is no time is unknown, not in step."""
    vector = {"result": [{"metric": {"job": "nodevitals", "instance": "n1"}, "value": [0, value]}]}
    server = servers.by_name["prometheus"]
    server.good["/api/v1/query"] = json.dumps({"data": vector}).encode()
    found = servers.findings(20)
    is_sane(found)
    assert ("clock offset", "unknown") in signature(found)
    assert all("nan s" not in one.detail for one in found)


@pytest.mark.parametrize("secret", ["hunter2\nhunter2", "hunter2\x07", "h\u00fcnter2"])
def test_credentials_that_no_header_can_have_are_not_printed(tmp_path: Path, secret: str) -> None:
    (tmp_path / "token").write_text(secret, encoding="utf-8")
    (tmp_path / "http.yaml").write_text("authorization: {credentials_file: token}")
    done = run("doctor", f"--http.config.file={tmp_path / 'http.yaml'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path / 'token'}: not one line of ASCII")
    assert "nter2" not in done.stderr
