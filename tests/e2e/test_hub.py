"""The hub and eight agents in network namespaces: each way to start a check finds the slow node."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.browser import Browser
from testbed.hubalerts import FAILED, HubAlertmanager
from testbed.hubcluster import TEST, HubCluster
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import PYTHON, environment, run, wait_until

CHECKS = "/api/v1/checks"
SLOW = "gpu-7"
# All pairs of these: four partners for each, in rounds of three tests at a time.
SOME = ["gpu-4", "gpu-5", "gpu-6", SLOW, "gpu-8"]
PAIR = {"kind": "pair", "nodes": ["gpu-1", "gpu-2"], "preset": "links"}
USUAL = "150Mb/s"
HUB: dict[str, Any] = {
    "resources": {"enabled": True, "list_every": "1s"},
    "alerts": [{"alertname": "NodeFabricSlow", "preset": "links", "with_healthy": 4}],
    # 8 MB: 0.8 s over the slow link.
    "presets": {"links": {"kind": "matrix", "test": {**TEST, "iterations": 64}}},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckApi]:
    """The API server that the hub follows."""
    with CheckApi(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, api: CheckApi) -> Iterator[HubCluster]:
    """Started once: each test is of other nodes, or waits for those before it."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(api.kubeconfig))
        with HubCluster(folder, slow=SLOW, **HUB) as cluster:
            yield cluster


def ended(cluster: HubCluster, identity: str) -> dict[str, Any]:
    def detail() -> dict[str, Any] | None:
        body = cluster.hub.request("GET", f"{CHECKS}/{identity}").json()
        return body if body["check"]["phase"] in ("done", "canceled") else None

    found: dict[str, Any] = wait_until(detail, 90, "the end of the check")
    return found


def started(cluster: HubCluster, request: dict[str, Any]) -> str:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    answer = cluster.hub.request("POST", CHECKS, json=request, headers=key)
    assert answer.status_code in (200, 201, 202), answer.text
    return str(answer.json()["id"])


def command(cluster: HubCluster, *arguments: str) -> list[str]:
    token = str(cluster.hub.token_file("operator"))
    return ["fabric", "check", "--hub", cluster.hub.url, "--token-file", token, *arguments]


def assert_names_the_slow_node(detail: dict[str, Any]) -> None:
    verdict = detail["check"]["verdict"]
    assert verdict["outcome"] == "bad", verdict
    [finding] = verdict["findings"]
    assert (finding["subject"], finding["scope"], finding["reason"]) == (SLOW, "node", "threshold")
    assert 0.2 < finding["ratio"] < 0.7


def test_check_from_the_page_names_the_slow_node(cluster: HubCluster) -> None:
    """As a person does it: the form, its cost, the start, and the page that ends by itself."""
    with Browser() as browser:
        browser.send_headers(Authorization=f"Bearer {cluster.hub.tokens['operator']}")
        browser.open(f"{cluster.hub.url}/checks/new")
        browser.click("a[href='/checks/new?kind=matrix']")
        browser.choose("select[name=preset]", "links")
        browser.fill("textarea[name=nodes]", " ".join(SOME))
        browser.click("button[value=cost]")
        assert "20 " in browser.text().partition("Cost")[2].partition("Start")[0]
        browser.click("button[value=start]")
        page = browser.wait_for(f"bad: {SLOW}: ", 90)
        assert "of the median" in page
        identity = browser.address().rpartition("/")[2]
    assert_names_the_slow_node(ended(cluster, identity))


def test_check_by_rest_names_the_slow_node(cluster: HubCluster) -> None:
    request = {"kind": "matrix", "nodes": SOME, "preset": "links"}
    estimate = cluster.hub.request("POST", f"{CHECKS}/estimate", json=request).json()
    assert (estimate["cost"]["nodes"], estimate["cost"]["runs"]) == (5, 20)
    detail = ended(cluster, started(cluster, request))
    assert_names_the_slow_node(detail)
    # Those of the slow node are repeated.
    assert 20 < len(detail["results"]) <= 20 + 2 * 8
    listed = cluster.hub.request("GET", f"{CHECKS}?node={SLOW}", token="viewer").json()
    assert detail["check"]["id"] in json.dumps(listed)


def test_check_by_command_names_the_slow_node(cluster: HubCluster) -> None:
    done = run(*command(cluster, "--where", "leaf=b", "--nodes", "gpu-4", "--preset", "links"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{cluster.hub.url}/checks/" in done.stderr
    [line] = [line for line in done.stdout.splitlines() if "threshold" in line]
    assert line.startswith(SLOW)
    assert len(done.stdout.splitlines()[0].split()) == 6  # the unit, and five nodes


def test_check_by_resource_names_the_slow_node(cluster: HubCluster, api: CheckApi) -> None:
    api.create("links", {"kind": "matrix", "nodes": SOME, "preset": "links"})
    wait_until(lambda: api.status("links").get("phase") == "Done", 90, "the end of the check")
    status = api.status("links")
    assert (status["verdict"], status["reason"]) == ("bad", "threshold")
    done, every = map(int, status["progress"].split("/"))
    assert done == every > 20
    assert SLOW in status["message"]
    assert status["link"] == f"{cluster.hub.url}/checks/{status['checkId']}"
    assert_names_the_slow_node(ended(cluster, status["checkId"]))


def test_check_by_alert_names_the_slow_node(cluster: HubCluster, tmp_path: Path) -> None:
    """Prometheus' alert, a real Alertmanager, the hub, and the link to the check."""
    token = cluster.hub.token_file("operator")
    with HubAlertmanager(tmp_path, cluster.hub.url, token) as alertmanager:
        alertmanager.post(f"{SLOW}:9855")
        path = f"/alerts/{alertmanager.fingerprint(f'{SLOW}:9855')}"
        answer = wait_until(
            lambda: (found := cluster.hub.request("GET", path)).ok and found, 30, "the check"
        )
        identity = answer.url.rpartition("/")[2]
        detail = ended(cluster, identity)
        assert alertmanager.count(FAILED) == 0
    assert_names_the_slow_node(detail)
    asked = detail["check"]["requester"]
    assert (asked["trigger"], asked["name"]) == ("alert", "NodeFabricSlow")
    assert len(detail["check"]["request"]["nodes"]) == 5
    assert "NodeFabricSlow" in answer.text


def test_command_prints_json_and_is_0_where_nothing_is_wrong(cluster: HubCluster) -> None:
    nodes = ("--nodes", "gpu-1,gpu-2", "--preset", "links", "--expected", USUAL)
    done = run(*command(cluster, *nodes, "--json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["check"]["verdict"]["outcome"] == "ok"


def test_interrupt_of_the_command_cancels_the_check(cluster: HubCluster) -> None:
    argv = command(cluster, "--where", "pool=train", "--preset", "links", "--json")
    with subprocess.Popen(
        # A shell's background jobs, these tests among them, ignore the signal.
        ["env", "--default-signal=INT", PYTHON, "-m", "nodevitals", *argv],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        identity = process.stderr.readline().split()[1].rstrip(":")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (130, ""), errors
    assert ended(cluster, identity)["check"]["phase"] == "canceled"


def test_nodes_of_a_canceled_check_are_free(cluster: HubCluster) -> None:
    """The one above, or any other: nothing is left of it on the agents."""
    detail = ended(cluster, started(cluster, {**PAIR, "expected_bytes_per_second": 1e7}))
    assert detail["check"]["verdict"]["outcome"] == "ok", detail


def test_reader_may_not_start_a_check(cluster: HubCluster) -> None:
    answer = cluster.hub.request("POST", CHECKS, token="viewer", json=PAIR)
    assert answer.status_code == 403
    assert len(answer.text.splitlines()) == 1
