"""The custom resource Check, followed by a real hub at a stand-in of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.hub.resource_spec import request_of
from testbed.checkapi import CheckApi
from testbed.hub import HubProcess
from testbed.node import wait_until

SPEC = {"kind": "matrix", "nodes": ["gpu-1", "gpu-2"], "test": {"device": "mlx5_0"}}
NODES = {"static": [{"targets": ["gpu-1", "gpu-2", "gpu-3"]}]}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[CheckApi]:
    with CheckApi(tmp_path) as found:
        yield found


@pytest.fixture
def hub(tmp_path: Path, api: CheckApi) -> Iterator[HubProcess]:
    resources = {"enabled": True, "list_every": "1s"}
    process = HubProcess(
        tmp_path,
        simulated=True,
        nodes=NODES,
        resources=resources,
        limits={"queued": 20},
        external_url="https://hub.example.org",
    )
    process.environment = {"KUBECONFIG": str(api.kubeconfig)}
    with process:
        yield process


def phase(api: CheckApi, name: str, wanted: str) -> dict[str, Any]:
    """The status, once it has that phase."""
    wait_until(lambda: api.status(name).get("phase") == wanted, 30, f"{name}: {wanted}")
    return api.status(name)


def test_a_resource_becomes_a_check_with_a_verdict_and_a_link(
    api: CheckApi, hub: HubProcess
) -> None:
    api.create("pair", SPEC)
    status = phase(api, "pair", "Done")
    [check] = hub.list()
    assert status["link"] == f"https://hub.example.org/checks/{check.id}"
    assert check.verdict is not None
    assert (status["verdict"], status["progress"]) == (check.verdict.outcome, "1/1")
    assert (check.requester.trigger, check.requester.name) == ("resource", "ops/pair")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "best"}, "spec.kind: Invalid enum value 'best'"),
        ({"limit_seconds": 3}, "spec: Object contains unknown field `limit_seconds`"),
        ({"test": {"port": 0}}, "spec.test.port: Expected `int` >= 1"),
        ({"force": True}, "spec.force: resources have the role run on this hub"),
        ({"nodes": ["gpu-1", "gpu-9"]}, "gpu-9"),
    ],
)
def test_an_invalid_one_is_refused_until_it_is_edited(
    api: CheckApi, hub: HubProcess, change: dict[str, Any], message: str
) -> None:
    api.create("wrong", {**SPEC, **change})
    assert message in phase(api, "wrong", "Refused")["message"]
    before = api.count("patch")
    lists = api.count("list")
    wait_until(lambda: api.count("list") > lists + 1)
    assert api.count("patch") == before
    api.edit("wrong", SPEC)
    assert phase(api, "wrong", "Done")["observedGeneration"] == 2


def test_a_deleted_one_is_canceled_also_while_no_hub_runs(api: CheckApi, hub: HubProcess) -> None:
    hub.kill()
    hub.environment["RUN_SECONDS"] = "60"
    hub.start()
    api.create("first", SPEC)
    phase(api, "first", "Running")
    api.delete("first")
    wait_until(lambda: [one.phase for one in hub.list()] == ["canceled"])
    api.create("second", SPEC)
    phase(api, "second", "Running")
    hub.kill()
    api.delete("second")
    api.create("second", SPEC)
    hub.start()
    phase(api, "second", "Running")
    wait_until(lambda: [one.phase for one in hub.list()] == ["running", "canceled", "canceled"])


def test_a_killed_hub_starts_nothing_twice(api: CheckApi, hub: HubProcess) -> None:
    api.failing, api.fail = {"patch"}, 500
    api.create("pair", SPEC)
    wait_until(lambda: len(hub.list()) == 1)
    hub.kill()
    api.fail = 0
    hub.start()
    phase(api, "pair", "Done")
    assert len(hub.list()) == 1


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500])
def test_a_failing_api_server_is_asked_again(api: CheckApi, hub: HubProcess, code: int) -> None:
    api.fail = code
    before = len(api.requests)
    wait_until(lambda: len(api.requests) > before + 1)
    api.create("pair", SPEC)
    api.fail = 0
    phase(api, "pair", "Done")


def test_a_watch_that_died_silently_costs_only_time(api: CheckApi, hub: HubProcess) -> None:
    wait_until(lambda: api.count("watch"))
    api.deaf = True
    with api.changed:
        api.changed.notify_all()
    api.create("pair", SPEC)
    phase(api, "pair", "Done")


def test_a_forgotten_version_and_conflicts(api: CheckApi, hub: HubProcess) -> None:
    api.oldest, api.conflicts = 10**6, 2
    api.create("pair", SPEC)
    phase(api, "pair", "Done")
    assert len(hub.list()) == 1


def test_an_edit_of_a_started_one_has_no_effect_and_says_so(api: CheckApi, hub: HubProcess) -> None:
    hub.kill()
    hub.environment["RUN_SECONDS"] = "2"
    hub.start()
    api.create("pair", SPEC)
    phase(api, "pair", "Running")
    api.edit("pair", {**SPEC, "nodes": ["gpu-1", "gpu-3"]})
    status = phase(api, "pair", "Done")
    assert (status["observedGeneration"], "edited" in status["warning"]) == (1, True)
    assert len(hub.list()) == 1


def test_more_than_the_queue_takes_wait(api: CheckApi, hub: HubProcess) -> None:
    for number in range(40):
        api.create(f"check-{number}", SPEC)
    wait_until(lambda: set(api.phases()) == {"Done"}, 60)
    assert len(hub.list()) == 40


def test_a_spec_is_a_request_in_camel_case() -> None:
    spec = {**SPEC, "where": {"rack_name": "a"}, "limitSeconds": 60.0}
    spec["test"] = {"device": "mlx5_0", "queuePairs": 8, "gidIndex": 3, "trafficClass": 106}
    request = request_of(spec)
    assert (request.test.queue_pairs, request.limit_seconds) == (8, 60.0)
    assert request.where == {"rack_name": "a"}
