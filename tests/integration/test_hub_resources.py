"""The custom resource Check, followed by a real hub at a stand-in of the API server.

One hub and one API server for all tests: each has resources of its own names.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube.core.exceptions import ApiError

from nodevitals.checks.model import Check
from nodevitals_hub.triggers.resource_objects import MAX_RETRY_AFTER, retry_after
from nodevitals_hub.triggers.resource_spec import request_of
from testbed.hub import HubProcess
from testbed.kubernetes_api.checks import CheckApi
from testbed.node import wait_until

SPEC = {"kind": "pair", "nodes": ["gpu-1", "gpu-2"], "test": {"device": "mlx5_0"}}
HELD = {**SPEC, "nodes": ["gpu-1", "gpu-held"]}
"""Its check does not end."""
QUEUED = 20
LIMIT = 60


class Followed:
    """The API server, and the hub that follows it."""

    def __init__(self, api: CheckApi, hub: HubProcess) -> None:
        self.api, self.hub = api, hub

    def phase(self, name: str, wanted: str) -> dict[str, Any]:
        """The status, once it has that phase."""
        wait_until(lambda: self.api.status(name).get("phase") == wanted, LIMIT, f"{name}: {wanted}")
        return self.api.status(name)

    def checks(self, *names: str) -> list[Check]:
        """The checks of resources with these names, the newest first."""
        wanted = {f"ops/{name}" for name in names}
        return [one for one in self.hub.list(limit=1000) if one.requester.name in wanted]

    def phases(self, *names: str) -> list[str]:
        """The phases of their checks."""
        return [one.phase for one in self.checks(*names)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("resources")
    with CheckApi(folder) as api:
        hub = HubProcess(
            folder,
            simulated=True,
            nodes={"static": [{"targets": ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-held"]}]},
            resources={"enabled": True, "list_every": "200ms"},
            limits={"queued": QUEUED},
            external_url="https://hub.example.org",
        )
        hub.environment = {
            "KUBECONFIG": str(api.kubeconfig),
            "RUN_SECONDS": "0.01",
            "HELD": "gpu-held",
            "WAITS": "2,0.2,0.3,0.3",
        }
        with hub:
            yield Followed(api, hub)


@pytest.fixture
def followed(shared: Followed) -> Iterator[Followed]:
    """After each test, no resource is left, and no check goes on."""
    yield shared
    api = shared.api
    api.heal()
    api.oldest = 0
    for name in api.names():
        api.delete(name)
    wait_until(lambda: all(one.ended for one in shared.hub.list(limit=1000)), LIMIT, "all ends")
    assert api.invalid == [], "statuses that the CRD does not allow"


def test_a_resource_becomes_a_check_with_a_verdict_and_a_link(followed: Followed) -> None:
    followed.api.create("good", SPEC)
    status = followed.phase("good", "Done")
    [check] = followed.checks("good")
    assert status["link"] == f"https://hub.example.org/checks/{check.id}"
    assert check.verdict is not None
    assert (status["verdict"], status["progress"]) == (check.verdict.outcome, "2/2")
    assert (check.requester.trigger, check.requester.name) == ("resource", "ops/good")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "best"}, "spec.kind: Invalid enum value 'best'"),
    "field": ({"limit_seconds": 3}, "spec: Object contains unknown field `limit_seconds`"),
    "port": ({"test": {"port": 0}}, "spec.test.port: Expected `int` >= 1"),
    "force": ({"force": True}, "spec.force: resources have the role run on this hub"),
    "node": ({"nodes": ["gpu-1", "gpu-9"]}, "gpu-9"),
}


def test_an_invalid_one_is_refused_until_it_is_edited(followed: Followed) -> None:
    api = followed.api
    for name, (change, _) in WRONG.items():
        api.create(name, {**SPEC, **change})
    for name, (_, message) in WRONG.items():
        assert message in followed.phase(name, "Refused")["message"]
    before, lists = api.count("patch"), api.count("list")
    wait_until(lambda: api.count("list") > lists + 2, LIMIT)
    assert api.count("patch") == before
    for name in WRONG:
        api.edit(name, SPEC)
    for name in WRONG:
        assert followed.phase(name, "Done")["observedGeneration"] == 2


def test_a_deleted_one_is_canceled_also_while_no_hub_runs(followed: Followed) -> None:
    api, hub = followed.api, followed.hub
    api.create("first", HELD)
    followed.phase("first", "Running")
    api.delete("first")
    wait_until(lambda: followed.phases("first") == ["canceled"], LIMIT)
    api.create("again", HELD)
    followed.phase("again", "Running")
    hub.kill()
    api.delete("again")
    api.create("again", HELD)
    hub.start()
    followed.phase("again", "Running")
    wait_until(lambda: followed.phases("again") == ["running", "canceled"], LIMIT)


def test_killed_between_submit_and_status_it_starts_nothing_twice(followed: Followed) -> None:
    """Half of the kills are after the check is stored, half at any moment around that."""
    api, hub = followed.api, followed.hub
    moments = random.Random(18)
    names = [f"killed-{number}" for number in range(10)]
    for number, name in enumerate(names):
        api.fail("hang", "patch")
        api.create(name, SPEC)
        if number % 2:
            wait_until(lambda: followed.checks(name), LIMIT, name)  # noqa: B023
        else:
            time.sleep(moments.uniform(0.0, 0.1))
        hub.kill()
        assert api.status(name) == {}
        api.heal()
        hub.start()
        followed.phase(name, "Done")
    assert Counter(one.requester.name for one in followed.checks(*names)) == Counter(
        f"ops/{name}" for name in names
    )


def test_a_failing_api_server_is_asked_again(followed: Followed) -> None:
    """Each resource that was created meanwhile is checked once."""
    api = followed.api
    ways = (401, 403, 404, 429, 500, "garbage", "hang")
    for way in ways:
        before = api.failures
        api.fail(way)
        api.create(f"during-{way}", SPEC)
        wait_until(lambda: api.failures > before, LIMIT, str(way))  # noqa: B023
        api.heal()
        followed.phase(f"during-{way}", "Done")
    assert len(followed.checks(*(f"during-{way}" for way in ways))) == len(ways)


def test_a_long_failure_of_the_api_server_costs_no_check(followed: Followed) -> None:
    """Eight requests in a row, each answered in another way."""
    api = followed.api
    for number in range(8):
        before = api.failures
        api.fail((500, "garbage", 503)[number % 3])
        if number % 4 == 0:
            api.create(f"long-{number}", SPEC)
        wait_until(lambda: api.failures > before, LIMIT)  # noqa: B023
    api.heal()
    names = [f"long-{number}" for number in range(0, 8, 4)]
    for name in names:
        followed.phase(name, "Done")
    assert len(followed.checks(*names)) == len(names)


def test_a_status_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """For ever, here: no time limit of a request ends within the test."""
    nodes = {"static": [{"targets": ["gpu-1", "gpu-2"]}]}
    settings: dict[str, Any] = {"enabled": True, "list_every": "200ms"}
    with CheckApi(tmp_path) as api:
        hub = HubProcess(tmp_path, simulated=True, nodes=nodes, resources=settings)
        hub.environment = {"KUBECONFIG": str(api.kubeconfig), "RUN_SECONDS": "0.01"}
        hub.environment["WAITS"] = "3600,0.2,0.3,0.3"
        stuck = [f"stuck-{number}" for number in range(3)]
        api.fail("hang", "patch", names=stuck)
        with hub:
            for name in stuck:
                api.create(name, SPEC)
            wait_until(lambda: api.failures == len(stuck), LIMIT)
            for number in range(5):
                api.create(f"other-{number}", SPEC)
            done = {"Done": 5, None: len(stuck)}
            wait_until(lambda: _phases(api) == done, LIMIT)
            wait_until(lambda: all(one.ended for one in hub.list()), LIMIT)
            assert len(hub.list()) == 5 + len(stuck)
            # One request at a time for each.
            assert api.failures == len(stuck)


def _phases(api: CheckApi) -> Counter[str | None]:
    return Counter(api.status(name).get("phase") for name in api.names())


def test_a_status_whose_answer_never_ends_is_written_again(followed: Followed) -> None:
    api = followed.api
    before = api.failures
    api.fail("trickle", "patch", names=["slow"])
    api.create("slow", SPEC)
    wait_until(lambda: api.failures > before, LIMIT)
    api.heal()
    followed.phase("slow", "Done")
    assert len(followed.checks("slow")) == 1


def test_a_watch_that_died_silently_costs_only_time(followed: Followed) -> None:
    api = followed.api
    watches = api.count("watch")
    api.fail("deaf", "watch")
    wait_until(lambda: api.count("watch") > watches, LIMIT)
    api.create("unheard", SPEC)
    followed.phase("unheard", "Done")


def test_a_forgotten_version_and_conflicts(followed: Followed) -> None:
    followed.api.oldest, followed.api.conflicts = 10**6, 2
    followed.api.create("conflict", SPEC)
    followed.phase("conflict", "Done")
    assert len(followed.checks("conflict")) == 1


def test_an_edit_of_a_started_one_has_no_effect_and_says_so(followed: Followed) -> None:
    api = followed.api
    api.create("edited", HELD)
    followed.phase("edited", "Running")
    api.edit("edited", SPEC)
    wait_until(lambda: "edited" in api.status("edited").get("warning", ""), LIMIT)
    status = api.status("edited")
    assert (status["phase"], status["observedGeneration"]) == ("Running", 1)
    assert len(followed.checks("edited")) == 1


def test_a_status_that_names_the_check_of_another_ends_nothing(followed: Followed) -> None:
    """Who may write a status must not end the checks of other namespaces with it."""
    api, hub = followed.api, followed.hub
    test = {"device": "mlx5_0"}
    victim = hub.submit(kind="pair", nodes=["gpu-1", "gpu-held"], test=test)
    api.create("thief", {**SPEC, "nodes": ["gpu-3", "gpu-4"], "force": True})
    followed.phase("thief", "Refused")
    api.write_status("thief", {"phase": "Running", "checkId": victim.id})
    wait_until(lambda: api.status("thief").get("phase") != "Running", LIMIT)
    api.delete("thief")
    api.create("later", {**SPEC, "nodes": ["gpu-3", "gpu-4"]})
    followed.phase("later", "Done")
    assert hub.detail(victim.id).check.phase == "running"
    hub.cancel(victim.id)


def test_more_than_the_queue_takes_wait(followed: Followed) -> None:
    names = [f"many-{number}" for number in range(2 * QUEUED)]
    for name in names:
        followed.api.create(name, SPEC)
    wait_until(lambda: set(followed.api.phases()) == {"Done"}, LIMIT)
    assert len(followed.checks(*names)) == len(names)


def test_a_spec_is_a_request_in_camel_case() -> None:
    spec = {**SPEC, "where": {"rack_name": "a"}, "limitSeconds": 60.0}
    spec["test"] = {"device": "mlx5_0", "queuePairs": 8, "gidIndex": 3, "trafficClass": 106}
    request = request_of(spec)
    assert (request.test.queue_pairs, request.limit_seconds) == (8, 60.0)
    assert request.where == {"rack_name": "a"}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("86400", MAX_RETRY_AFTER), ("9" * 400, MAX_RETRY_AFTER), ("soon", 0.0)],
)
def test_an_api_server_is_asked_again_however_long_it_wants_to_wait(
    header: str, seconds: float
) -> None:
    request = httpx2.Request("GET", "https://192.0.2.1/")
    body = {"kind": "Status", "message": "busy", "code": 429}
    response = httpx2.Response(429, headers={"Retry-After": header}, json=body, request=request)
    assert retry_after(ApiError(request=request, response=response)) == seconds
