"""Probe `bmc` with a Redfish service over HTTPS, in two shapes, and with every failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings, Timing
from nodevitals.probes.bmc.parts import BmcState
from nodevitals.probes.bmc.probe import BmcProbe
from nodevitals.probes.bmc.redfish_client import MAX_PAGES, MAX_REQUESTS
from nodevitals.probes.bmc.redfish_log import MAX_ENTRIES
from nodevitals.probes.bmc.settings import BmcSettings, RedfishSettings
from nodevitals.wire import decode, encode
from testbed.node import Node, wait_until
from testbed.redfish import CHASSIS, ENTRIES, LOG, ODD, ROOT, SYSTEM, Redfish, to

P = "nodevitals_bmc_"
BAD = {"State": "Enabled", "Health": "Critical"}
FAULTS = frozenset(
    ("failed", "predictive_failure", "input_lost", "critical", "lost", "warning", "low")
)


class Bench:
    """A service and the probe, run in this process."""

    def __init__(self, bmc: Redfish) -> None:
        self.bmc = bmc
        self.state = BmcState()
        self.settings: dict[str, Any] = {}

    def run(self, timeout_seconds: float = 60.0) -> Readings:
        """A run; the state goes through the engine's encoding."""
        self.readings = Readings((), (), BmcProbe.families)
        own = BmcSettings(redfish=RedfishSettings(**self.bmc.settings), **self.settings)
        probe = BmcProbe(Host(), own, "bmc", Timing(timeout_seconds=timeout_seconds))
        probe.state = decode(encode(self.state), BmcState)
        self.bmc.requests.clear()
        probe.run(self.readings)
        self.state = probe.state
        return self.readings


@pytest.fixture(params=["old", "new"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A healthy chassis with an empty bay and a fan that is not there."""
    with Redfish(tmp_path, request.param) as bmc:
        yield Bench(bmc)
    assert bmc.refused == []


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Bench]:
    """The same, of the old shape only; requests that fail are the test's own."""
    with Redfish(tmp_path) as bmc:
        yield Bench(bmc)


def values(readings: Readings, family: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a family by their labels."""
    return {one.labels: one.value for one in readings.samples if one.family == P + family}


def counted(readings: Readings) -> list[tuple[str, ...]]:
    """Return what the run added to the counter of events."""
    return sorted(one.labels for one in readings.increments for _ in range(int(one.value)))


def faults(readings: Readings) -> list[Any]:
    """Return the samples that a rule makes a fault of."""
    return [one for one in readings.samples if FAULTS & set(one.labels)]


def test_healthy_chassis_with_empty_bays(bench: Bench) -> None:
    """Both shapes give the same samples as ipmitool; nothing is a fault, and 0 is no reading."""
    found = bench.run()
    assert values(found, "up") == {(): 1}
    assert values(found, "info") == {("4.21", "Example"): 1}
    assert values(found, "unreadable") == {}
    assert values(found, "power_supply_state") == {
        ("PSU A", "ok"): 1,
        ("PSU B", "ok"): 1,
        ("PSU C", "absent"): 1,
    }
    assert values(found, "fan_speed_rpm") == {("Fan A",): 8400}
    assert values(found, "fan_duty_ratio") == {("Fan B",): 0.25}
    assert values(found, "fan_state") == {
        ("Fan A", "ok"): 1,
        ("Fan B", "ok"): 1,
        ("Fan C", "absent"): 1,
    }
    assert values(found, "temperature_celsius") == {("Inlet",): 23, ("Outlet",): 41}
    assert values(found, "temperature_state") == {("Inlet", "ok"): 1, ("Outlet", "ok"): 1}
    assert values(found, "inlet_temperature_celsius") == {(): 23}
    assert values(found, "power_watts") == {(): 812}
    assert values(found, "redundancy") == {
        ("PSU group", "power", "full"): 1,
        ("Fan group", "fan", "full"): 1,
    }
    assert values(found, "event_log_entries") == {(): 0}
    assert faults(found) == []


def test_requests_of_a_run(bench: Bench) -> None:
    """One connection; each resource once; no chassis that no system is in."""
    bench.run()
    assert bench.bmc.connections == 1
    assert len(bench.bmc.requests) == len(set(bench.bmc.requests)) < 40
    assert f"{ROOT}Chassis" not in bench.bmc.requests


def test_connection_that_the_service_closes(bench: Bench) -> None:
    """Another one is opened for the next request."""
    bench.bmc.closes = True
    assert values(bench.run(), "unreadable") == {}
    assert bench.bmc.connections == len(bench.bmc.requests)


def test_parts_that_fail(bench: Bench) -> None:
    """Each has the state that ipmitool would give it."""
    for where, document in bench.bmc.documents.items():
        for one in [document, *document.get("PowerSupplies", ())]:
            if isinstance(one, dict) and one.get("Name") == "PSU A":
                one["Status"] = BAD
            if isinstance(one, dict) and one.get("Name") == "PSU B":
                one.update(LineInputStatus="LossOfInput", Status=BAD, LineInputVoltage=0)
        for one in [document, *(document.get("Fans", ()) if where.endswith("/T") else ())]:
            if one.get("Name") == "Fan A":
                one["Status"] = BAD
        for one in [document, *document.get("Temperatures", ())]:
            if one.get("Name") == "Outlet":
                one["Status"] = BAD
        for group in [*document.get("Redundancy", ()), *document.get("PowerSupplyRedundancy", ())]:
            group["Status"] = BAD
    found = bench.run()
    assert values(found, "power_supply_state")["PSU A", "failed"] == 1
    assert values(found, "power_supply_state")["PSU B", "input_lost"] == 1
    assert values(found, "fan_state")["Fan A", "failed"] == 1
    assert values(found, "temperature_state")["Outlet", "critical"] == 1
    assert values(found, "redundancy")["PSU group", "power", "lost"] == 1


def test_collections_are_expanded_where_the_service_offers_it(tmp_path: Path) -> None:
    """One request for all power supplies, and for all fans."""
    with Redfish(tmp_path, "new") as bmc:
        plain = Bench(bmc)
        expected = plain.run().samples
        many = len(bmc.requests)
        bmc.documents[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
        assert plain.run().samples == expected
        assert len(bmc.requests) < many - 5
        # It says so, and then fails.
        bmc.answer = lambda _, path: 500 if "?$expand" in path else None
        assert plain.run().samples == expected


def test_chassis_of_no_system(bench: Bench) -> None:
    """All chassis are read where no system says which it is in."""
    bench.bmc.documents[SYSTEM]["Links"] = {}
    assert ("PSU A", "ok") in values(bench.run(), "power_supply_state")


def test_power_supplies_of_one_name(old: Bench) -> None:
    """Some services call all of them the same."""
    supplies = old.bmc.documents[f"{CHASSIS}/P"]["PowerSupplies"]
    for one in supplies:
        one["Name"] = "Server Power Supply"
    assert set(values(old.run(), "power_supply_state")) == {
        ("Server Power Supply 0", "ok"),
        ("Server Power Supply 1", "ok"),
        ("Server Power Supply 2", "absent"),
    }


def test_sensors_without_metrics(tmp_path: Path) -> None:
    """The collection of sensors is read; a voltage is no temperature."""
    with Redfish(tmp_path, "new") as bmc:
        del bmc.documents[f"{CHASSIS}/Cool"]["ThermalMetrics"]
        found = Bench(bmc).run()
        assert values(found, "temperature_celsius") == {("Inlet",): 23, ("Outlet",): 41}


# The event log.
@pytest.fixture(
    params=[
        (newest_first, expanded, page_size)
        for newest_first in (True, False)
        for expanded in (True, False)
        for page_size in (0, 3)
    ],
    ids=lambda shape: "-".join(
        [
            "newest-first" if shape[0] else "oldest-first",
            "entries" if shape[1] else "links",
            "pages" if shape[2] else "one-page",
        ]
    ),
)
def logs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A service with its log in one of eight shapes."""
    with Redfish(tmp_path) as bmc:
        bmc.newest_first, bmc.expanded, bmc.page_size = request.param
        yield Bench(bmc)
    assert bmc.refused == []


def test_events_are_counted_once_and_old_ones_never(logs: Bench) -> None:
    """In each shape of the log, over several runs."""
    for _ in range(5):
        logs.bmc.event("Memory", "Critical")
    assert counted(logs.run()) == []
    assert values(logs.readings, "event_log_entries") == {(): 5}
    assert values(logs.readings, "event_log_used_ratio") == {(): 5 / 200}
    for sensor in ("Memory", "Voltage", "Fan", "Slot/Connector", "Processor"):
        logs.bmc.event(sensor, "Critical")
    logs.bmc.event("Voltage", "Critical", "Deassert")
    logs.bmc.event("Physical Chassis Security", "Critical")
    logs.bmc.event("Memory", "OK")
    logs.bmc.event("Battery", "Warning")
    expected = ["fan", "memory", "processor", "slot", "voltage"]
    found = counted(logs.run())
    assert found == sorted([("battery", "warning"), *((one, "critical") for one in expected)])
    assert next(one.state for one in logs.readings.events) == "memory_critical"
    assert counted(logs.run()) == []
    logs.bmc.event("Processor", "Critical")
    assert counted(logs.run()) == [("processor", "critical")]


def test_first_entry_of_an_empty_log_is_new(logs: Bench) -> None:
    """An empty log was read, too."""
    assert counted(logs.run()) == []
    logs.bmc.event("Memory", "Critical")
    assert counted(logs.run()) == [("memory", "critical")]
    assert counted(logs.run()) == []


def test_log_that_was_cleared(logs: Bench) -> None:
    """Entries after it are new, also where they have the paths of those before."""
    for _ in range(4):
        logs.bmc.event("Memory", "Critical")
    logs.run()
    logs.bmc.log.clear()
    logs.bmc.event("Voltage", "Critical", Created="2026-11-21T00:00:00Z")
    logs.bmc.event("Voltage", "Critical", Created="2026-11-21T00:00:01Z")
    assert counted(logs.run()) == [("voltage", "critical")] * 2
    assert counted(logs.run()) == []


def test_flood_of_events(logs: Bench) -> None:
    """It is read, over several runs where each entry is a request; none is counted twice."""
    logs.bmc.event("Memory", "OK")
    logs.run()
    for _ in range(2 * MAX_ENTRIES):
        logs.bmc.event("Memory", "Critical")
    logs.bmc.page_size *= 5
    totals = [len(counted(logs.run())) for _ in range(4)]
    if logs.bmc.expanded or not logs.bmc.newest_first:
        assert sum(totals) == 2 * MAX_ENTRIES
    else:
        assert totals[0] == MAX_ENTRIES  # the newest ones
        assert sum(totals[1:]) == 0


def test_log_of_many_pages_that_begins_with_its_oldest_entry(old: Bench) -> None:
    """Its end is reached over several runs; from then on new entries are counted."""
    old.bmc.newest_first, old.bmc.page_size = False, 2
    for _ in range(6 * MAX_PAGES):
        old.bmc.event("Memory", "Critical")
    for _ in range(5):
        assert counted(old.run()) == []
    assert old.state.started
    old.bmc.event("Voltage", "Critical")
    assert counted(old.run()) == [("voltage", "critical")]


def test_entry_without_the_type_of_a_sensor(old: Bench) -> None:
    """A service with its own format: the severity is known, the kind is not."""
    old.run()
    old.bmc.event(None, "Critical", EntryType="Oem", OemRecordFormat="Example", EntryCode=None)
    old.bmc.event("OEM", "Critical")
    assert counted(old.run()) == [("other", "critical")]


def test_entries_that_the_service_calls_otherwise_are_not_new(old: Bench) -> None:
    """After an update of the firmware, for example."""
    for _ in range(3):
        old.bmc.event("Memory", "Critical")
    old.run()
    for one in old.bmc.log:
        one["Id"] = f"record-{one['Id']}"
    assert counted(old.run()) == []
    old.bmc.event("Memory", "Critical")
    assert counted(old.run()) == [("memory", "critical")]


def test_log_that_leads_to_itself(old: Bench) -> None:
    """Its pages are read once, and a limited number of endless ones."""
    old.bmc.event("Memory", "Critical")
    old.run()
    old.bmc.event("Memory", "Critical")
    page = {"Members": old.bmc.log[::-1][:1], "Members@odata.nextLink": ENTRIES}
    old.bmc.answer = lambda _, path: json.dumps(page).encode() if ENTRIES in path else None
    assert counted(old.run()) == [("memory", "critical")]

    def endless(number: int, path: str) -> bytes | None:
        following = {**page, "Members@odata.nextLink": f"{ENTRIES}?$skip={number}"}
        return json.dumps(following).encode() if ENTRIES in path else None

    old.bmc.answer = endless
    assert counted(old.run()) == []
    assert len([one for one in old.bmc.requests if ENTRIES in one]) <= MAX_PAGES


def test_collection_that_does_not_end(old: Bench) -> None:
    """So many pages are read, and so many requests are sent per run."""
    page = {"Members": [to(f"{CHASSIS}/x{at}") for at in range(300)]}

    def endless(number: int, path: str) -> bytes | None:
        following = {**page, "Members@odata.nextLink": f"{ROOT}Systems?$skip={number}"}
        return json.dumps(following).encode() if "Systems" in path else None

    old.bmc.answer = endless
    old.run()
    assert len(old.bmc.requests) <= MAX_REQUESTS


def test_log_of_a_manager(old: Bench) -> None:
    """Where the system has none; the best one is chosen by its type, then by its name."""
    logs = "/redfish/v1/Managers/m-1/Logs"
    del old.bmc.documents[SYSTEM]["LogServices"]
    old.bmc.documents["/redfish/v1/Managers/m-1"]["LogServices"] = to(logs)
    old.bmc.documents[logs] = {"Members": [to(f"{logs}/audit"), to(LOG)]}
    audit = {"Id": "Audit", "LogEntryType": "Event", "Entries": to(f"{logs}/audit/E")}
    old.bmc.documents[f"{logs}/audit"] = audit
    old.bmc.documents[LOG].update(Id="Log1", LogEntryType="Event")
    old.run()
    assert old.state.source == ENTRIES
    old.bmc.documents[logs]["Members"].pop()
    assert values(old.run(), "event_log_entries") == {}
    assert values(old.readings, "unreadable") == {}


def test_change_from_ipmitool(old: Bench) -> None:
    """What the log has is not new to a state of the other source."""
    old.state = BmcState(started=True, record=3, content="00", read_at=0.0)
    old.bmc.event("Memory", "Critical")
    assert counted(old.run()) == []
    assert counted(old.run()) == []


# Failures.
KINDS = (404, 500, "cut", "huge", "garbage", "elsewhere", b"[]", b'{"a": NaN}', b"[" * 5000)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind)[:12])
def test_failure_at_each_request(bench: Bench, kind: int | str | bytes) -> None:
    """What another request gives is exposed; a failure is a reason, and no fault of the node."""
    bench.bmc.event("Memory", "Critical")
    everything = {(one.family, one.labels): one.value for one in bench.run().samples}
    for number in range(1, len(bench.bmc.requests) + 1):
        bench.bmc.answer = lambda at, _, number=number: kind if at == number else None  # type: ignore[misc]
        found = bench.run()
        known = {(one.family, one.labels): one.value for one in found.samples}
        reasons = values(found, "unreadable")
        assert faults(found) == []
        assert counted(found) == []
        assert values(found, "up") == {(): float(number > 1)}
        assert kind == 404 or len(reasons) > 0
        for one, value in known.items():
            own = one[0] in (P + "unreadable", P + "up", P + "info", P + "temperature_celsius")
            assert own or everything.get(one) == value
    bench.bmc.answer = lambda _number, _path: None
    again = bench.run()
    assert {(one.family, one.labels): one.value for one in again.samples} == everything
    assert counted(again) == []


def test_redirect_to_the_same_service_is_followed(bench: Bench) -> None:
    """Some redirect to the path with a slash at its end."""
    expected = bench.run().samples

    def slash(_: int, path: str) -> int | None:
        return None if path.endswith("/") or "?" in path else 308

    bench.bmc.answer = slash
    assert bench.run().samples == expected


@pytest.mark.parametrize("kind", ["hang", "trickle"])
@pytest.mark.parametrize("part", ["Managers", "LogServices", "P", "T"])
def test_resource_that_hangs(old: Bench, part: str, kind: str) -> None:
    """It has a part of the run's time; the others are read."""
    old.bmc.answer = lambda _, path: kind if path.endswith(f"/{part}") else None
    found = old.run(timeout_seconds=8.0)
    assert "timeout" in {labels[1] for labels in values(found, "unreadable")}
    assert values(found, "up") == {(): 1}
    assert bool(values(found, "fan_state")) == (part != "T")


def test_service_that_hangs(old: Bench) -> None:
    """It is not up, and nothing more is asked."""
    old.bmc.answer = lambda _number, _path: "hang"
    found = old.run(timeout_seconds=2.0)
    assert values(found, "up") == {(): 0}
    assert values(found, "unreadable") == {("controller", "timeout"): 1}
    assert len(old.bmc.requests) == 1


def test_service_that_is_not_there(tmp_path: Path) -> None:
    """As a BMC that does not answer."""
    with Redfish(tmp_path) as bmc:
        bench = Bench(bmc)
    found = bench.run()
    assert values(found, "unreadable") == {("controller", "no_answer"): 1}


def test_resource_that_the_user_may_not_read(old: Bench) -> None:
    """A reason of its own."""
    old.bmc.answer = lambda _, path: 403 if path.endswith("/P") else None
    found = old.run()
    assert values(found, "unreadable") == {
        ("power", "permission"): 1,
        ("sensors", "permission"): 1,
    }
    assert values(found, "fan_state") != {}


@pytest.mark.parametrize("number", [2, 3, 5, 8])
def test_wrong_password(old: Bench, number: int) -> None:
    """The run fails at once: a BMC locks the user after a few."""
    old.bmc.answer = lambda at, _: 401 if at >= number else None
    with pytest.raises(ProbeError, match="not accepted") as error:
        old.run()
    assert error.value.reason == "unauthorized"
    assert len(old.bmc.requests) == number
    assert "Secret" not in str(error.value)


def test_wrong_certificate(old: Bench, tmp_path: Path) -> None:
    """No password is sent; it is accepted only where the configuration says so."""
    folder = tmp_path / "other"
    folder.mkdir()
    with Redfish(folder, host="node-7-bmc") as bmc:
        other = Bench(bmc)
        with pytest.raises(ProbeError) as error:
            other.run()
        assert error.value.reason == "tls"
        assert bmc.requests == []
        files = {**bmc.settings, "server_name": "node-7-bmc"}
        bmc.__class__ = type("Named", (Redfish,), {"settings": files})
        assert values(other.run(), "up") == {(): 1}
        files.update(server_name="", insecure_skip_verify=True)
        assert values(other.run(), "up") == {(): 1}
    old.bmc.ca_file = folder / "redfish-ca.crt"
    with pytest.raises(ProbeError) as error:
        old.run()
    assert error.value.reason == "tls"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("bmc-password", b"", "secret"),
        ("bmc-password", b"a\nb", "secret"),
        ("bmc-username", b"\xff\xfe", "secret"),
        ("bmc-username", None, "secret"),
        ("redfish-ca.crt", b"no certificate", "no_ca"),
        ("redfish-ca.crt", None, "no_ca"),
    ],
)
def test_file_that_is_wrong(old: Bench, file: str, content: bytes | None, reason: str) -> None:
    """Nothing is sent."""
    path = old.bmc.folder / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ProbeError) as error:
        old.run()
    assert error.value.reason == reason
    assert old.bmc.requests == []


@pytest.mark.parametrize("shift", [0, 3])
def test_wrong_type_at_each_link(bench: Bench, shift: int) -> None:
    """Nothing is raised, nothing counted, and no fault made of it. What is within the parts is in
    tests/unit/test_redfish.py.
    """
    bench.bmc.event("Memory", "Critical")
    bench.bmc.event("Memory", "OK")
    bench.run()
    documents: Any = bench.bmc.documents
    places = [(documents, where) for where in documents]
    places += [(documents[where], key) for where in documents for key in documents[where]]
    for number, (document, key) in enumerate(places):
        value, document[key] = document[key], ODD[(number + shift) % len(ODD)]
        found = bench.run()
        document[key] = value
        assert faults(found) == [], (key, value)
        assert counted(found) == [], (key, value)


def test_agent_exposes_the_bmc(tmp_path: Path) -> None:
    """From the service to /metrics; an event increases a counter; the password is nowhere."""
    with Redfish(tmp_path, "new") as bmc:
        settings = {"interval": "2s", "timeout": "2s", "redfish": bmc.settings}
        with Node(tmp_path, {"probes": {"bmc": settings}}) as node:
            memory = {"type": "memory", "severity": "critical"}
            wait_until(lambda: node.value("nodevitals_bmc_events_total", **memory) == 0)
            wait_until(lambda: node.value("nodevitals_bmc_event_log_entries") == 0)
            bmc.event("Memory", "Critical")
            wait_until(lambda: node.value("nodevitals_bmc_events_total", **memory) == 1)
            bmc.set_password("another")
            (tmp_path / "bmc-password").write_text("wrong")
            wait_until(lambda: node.value("nodevitals_probe_success", probe="bmc") == 0)
        assert "Secret" not in node.log_file.read_text()
        assert {one.partition(":")[0] for one in bmc.refused} == {"no password"}
