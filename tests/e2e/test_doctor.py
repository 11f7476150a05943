"""`nodevitals doctor` on a real pipeline: all is well, then one thing at a time is not.

Each test ends with exactly the findings of what it broke.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import requests
import yaml

from testbed.node import PATIENCE_SECONDS, ROOT, environment, free_port, wait_until
from testbed.pipeline import Pipeline, not_well
from testbed.servers import PrometheusProcess


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with Pipeline(tmp_path_factory.mktemp("pipeline")) as running:
        yield running


@pytest.fixture
def pipeline(whole: Pipeline) -> Iterator[Pipeline]:
    yield whole
    whole.repair()


def settled(pipeline: Pipeline, *words: str, flags: tuple[str, ...] = ()) -> dict[str, str]:
    """The findings once exactly these are not well: `check: a part of what is said`."""
    wanted = dict(word.split(": ", 1) for word in words)
    last: dict[str, str] = {}
    status = -1

    def right() -> bool:
        nonlocal last, status
        time.sleep(0.8)  # the next scrape and evaluation
        status, findings = pipeline.doctor(*flags)
        last = not_well(findings)
        return last.keys() == wanted.keys() and all(wanted[key] in last[key] for key in wanted)

    try:
        wait_until(right)
    except AssertionError:
        raise AssertionError(f"expected {wanted}, found {last}") from None
    problems = any(text.startswith("problem") for text in last.values())
    assert status == (1 if problems else 2 if last else 0)
    return last


def test_all_is_well(pipeline: Pipeline) -> None:
    assert settled(pipeline) == {}


def test_the_shipped_rules_are_those_of_this_version(pipeline: Pipeline) -> None:
    """However Prometheus prints them, and in the site's own thresholds."""
    config = pipeline.config()
    config["rule_files"] = [f"{ROOT}/rules/*.yaml"]
    pipeline.configure(config)
    _, findings = pipeline.doctor(f"--rules={ROOT}/rules")
    (found,) = [one for one in findings if one["check"] == "rules"]
    assert found["state"] == "ok", found


def test_the_agent_is_stopped(pipeline: Pipeline) -> None:
    """Its probes are run once, with their reasons."""
    pipeline.node.end()
    unhurried = {"interval": "60s", "timeout": "60s"}
    pipeline.node.write({**pipeline.healthy, "defaults": unhurried})
    try:
        found = settled(
            pipeline,
            "agent: Connection refused",
            f"scrape: http://127.0.0.1:{pipeline.node.port}/metrics is down",
            # In this process the clock is that of the machine, or of its container.
            "clock: not synchronized",
            flags=("--timeout=60s",),
        )
        assert "connection refused" in found["scrape"]
        _, findings = pipeline.doctor("--timeout=60s")
        states = {one["check"]: one["state"] for one in findings}
        assert states["probe misbehave"] == states["probe node"] == "ok"
    finally:
        pipeline.node.start()


def test_a_probe_fails(pipeline: Pipeline) -> None:
    pipeline.node.write(
        {
            **pipeline.healthy,
            "probes": {**pipeline.healthy["probes"], "mounts": {"targets": [{"path": "/nowhere"}]}},
        }
    )
    pipeline.node.hang_up()
    settled(pipeline, "probe mounts /nowhere: failing (missing): nothing is mounted at /nowhere")


def test_a_probe_is_stuck(pipeline: Pipeline) -> None:
    probes = {**pipeline.healthy["probes"], "misbehave": {"behaviours": ["sleeps"]}}
    pipeline.node.write({**pipeline.healthy, "probes": probes})
    pipeline.node.hang_up()
    settled(pipeline, "probe misbehave sleeps: timeout")


def test_the_last_reload_was_refused(pipeline: Pipeline) -> None:
    pipeline.node.config_file.write_text("probes: {node: {interval: soon}}")
    pipeline.node.hang_up()
    settled(
        pipeline,
        "configuration: the last reload was refused",
        "configuration file: probes.node.interval",
    )


def test_the_clock_is_not_synchronized(pipeline: Pipeline) -> None:
    pipeline.unsynchronized.touch()
    settled(pipeline, "clock: not synchronized")


def test_the_scrape_job_has_another_name(pipeline: Pipeline) -> None:
    config = pipeline.config()
    config["scrape_configs"][0]["job_name"] = "agents"
    pipeline.configure(config)
    settled(pipeline, "scrape: is scraped as job agents; rules read job nodevitals")


def test_the_target_has_the_wrong_port(pipeline: Pipeline) -> None:
    config = pipeline.config()
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{free_port()}"]
    pipeline.configure(config)
    found = settled(pipeline, f"scrape: the agent listens on port {pipeline.node.port}")
    assert "connection refused" in found["scrape"]


def test_the_target_is_another_program(pipeline: Pipeline) -> None:
    config = pipeline.config()
    target = f"127.0.0.1:{pipeline.alertmanager.port}"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    pipeline.configure(config)
    settled(pipeline, "scrape: answers, and is not this agent")


def test_two_targets_are_this_node(pipeline: Pipeline) -> None:
    config = pipeline.config()
    targets = [f"127.0.0.1:{pipeline.node.port}", f"localhost:{pipeline.node.port}"]
    config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    pipeline.configure(config)
    settled(pipeline, "scrape: 2 targets of job nodevitals are this node")


def test_there_is_no_scrape_job(pipeline: Pipeline) -> None:
    config = pipeline.config()
    config["scrape_configs"] = []
    other = PrometheusProcess(pipeline.folder, "without-job")  # without earlier samples
    (other.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with other:
        settled(
            pipeline,
            "scrape: Prometheus has no target of job nodevitals",
            flags=(f"--prometheus={other.url}",),
        )


def test_no_rules_are_loaded(pipeline: Pipeline) -> None:
    config = pipeline.config()
    config["rule_files"] = []
    pipeline.configure(config)
    settled(
        pipeline,
        "rules: groups of nodevitals is loaded: no alert can fire",
        "thresholds: their alerts cannot fire",
        "watchdog: no Watchdog",
    )


def test_a_rule_file_is_missing(pipeline: Pipeline) -> None:
    (pipeline.loaded / "rdma.yaml").unlink()
    pipeline.configure(pipeline.config())
    settled(pipeline, "rules: rule groups are not loaded: nodevitals-rdma")


def test_a_rule_is_of_another_version(pipeline: Pipeline) -> None:
    file = pipeline.loaded / "mount.yaml"
    document = yaml.safe_load(file.read_text())
    (rule,) = [
        rule
        for group in document["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "MountHung"
    ]
    rule["expr"] = f"({rule['expr']}) and on () vector(1)"
    file.write_text(yaml.safe_dump(document))
    pipeline.configure(pipeline.config())
    settled(pipeline, "rules: 1 rules are not those of version")


def test_prometheus_knows_no_alertmanager(pipeline: Pipeline) -> None:
    config = pipeline.config()
    del config["alerting"]
    pipeline.configure(config)
    # Alertmanager drops the Watchdog after four of the times at which it should have come.
    settled(pipeline, "notifications: knows no Alertmanager", "watchdog: atchdog")


def test_alertmanager_is_down(pipeline: Pipeline) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    settled(pipeline, "alertmanager: Connection refused", flags=(f"--alertmanager={nowhere}",))


def test_prometheus_is_down(pipeline: Pipeline) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    settled(pipeline, "prometheus: Connection refused", flags=(f"--prometheus={nowhere}",))


def test_a_silence_is_shown_and_is_no_problem(pipeline: Pipeline) -> None:
    body = {
        "matchers": [{"name": "instance", "value": "gpu-node-1", "isRegex": False}],
        "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2099-01-01T00:00:00Z",
        "createdBy": "lin",
        "comment": "move of the rack",
    }
    url = f"{pipeline.alertmanager.url}/api/v2/silence"
    made = requests.post(f"{url}s", json=body, timeout=60).json()["silenceID"]
    try:
        assert settled(pipeline) == {}
        _, findings = pipeline.doctor()
        (found,) = [one for one in findings if one["check"] == "silence"]
        assert found["state"] == "off"
        assert "by lin (move of the rack)" in found["detail"]
    finally:
        requests.delete(f"{url}/{made}", timeout=60)


def test_muted_alerts_of_the_site_are_shown(pipeline: Pipeline) -> None:
    """By a silence that does not name the node, and by maintenance, which is said with its end."""
    labels = {"severity": "warning", "scope": "node", "instance": "gpu-node-1"}
    rules = [{"alert": "OwnAlert", "expr": "vector(1)", "labels": labels}]
    own = pipeline.loaded / "own.yaml"
    own.write_text(yaml.safe_dump({"groups": [{"name": "own", "rules": rules}]}))
    pipeline.maintenance.write_text("until: 2099-01-01T00:00:00Z\n")
    pipeline.configure(pipeline.config())
    body = {
        "matchers": [{"name": "alertname", "value": "OwnAlert", "isRegex": False}],
        "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2099-01-01T00:00:00Z",
        "createdBy": "lin",
        "comment": "work",
    }
    url = f"{pipeline.alertmanager.url}/api/v2/silence"
    made = requests.post(f"{url}s", json=body, timeout=60).json()["silenceID"]
    details: dict[str, str] = {}

    def shown() -> bool:
        status, findings = pipeline.doctor()
        details.update({one["check"]: one["detail"] for one in findings if one["state"] == "off"})
        return status == 0 and {"silence", "inhibition", "maintenance"} <= details.keys()

    try:
        wait_until(shown, what=f"the three findings, after {details}")
        assert details["silence"].endswith("by lin (work): OwnAlert")
        assert "muted while NodeMaintenance fires: OwnAlert" in details["inhibition"]
        assert "in maintenance until 20" in details["maintenance"]
    finally:
        requests.delete(f"{url}/{made}", timeout=60)
        own.unlink()


def test_the_table_has_no_colours_and_no_line_breaks_off_a_terminal(pipeline: Pipeline) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodevitals", "doctor", f"--url={pipeline.node.url}"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["CHECK", "STATE", "DETAIL", "REMEDY"]
    states = head.index("STATE")
    assert {row[states:].split()[0] for row in rows} <= {"ok", "off", "problem", "unknown"}
    assert "\x1b" not in done.stdout
