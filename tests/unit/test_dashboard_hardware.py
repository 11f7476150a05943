"""The dashboards of the hardware and of conformity: what is not known is not healthy, and verdicts
are those of the rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dashboards import agents, conformity, hardware
from dashboards.language import Say

from testbed.panelqueries import evaluate, labelled

NODE = {"job": "nodevitals", "cluster": "c", "instance": "n.1"}
OTHER = {**NODE, "instance": "nx1"}
VALUES = {
    "$instance": "n.1",
    "$cluster": ".*",
    "$pool": ".*",
    "$__range": "5m",
    "$__rate_interval": "5m",
}
Samples = list[tuple[dict[str, str], float]]


def expression(module: Any, title: str, ref: str = "A") -> str:
    """Return a query of the panel with this title, with its variables filled in."""
    for panel in json.loads(module.board(Say("en")).json())["panels"]:
        for target in panel.get("targets", ()):
            if (panel["title"], target["refId"]) == (title, ref):
                query = str(target["expr"])
                for name, value in VALUES.items():
                    query = query.replace(name, value)
                return query
    raise KeyError(title, ref)


def of(
    name: str, value: str = "1x40", node: dict[str, str] = NODE, **labels: str
) -> dict[str, str]:
    """Return a series as promtool reads it."""
    prefix = "" if ":" in name else "nodevitals_"
    return {prefix + name + labelled(**node, **labels): value}


def fault(
    name: str, value: str = "1x40", node: dict[str, str] = NODE, **labels: str
) -> dict[str, str]:
    """Return a fault as the rules record it."""
    return of("nodevitals:fault", value, node, fault=name, **labels)


@pytest.mark.parametrize(
    ("title", "series", "expected"),
    [
        ("Chassis", of("bmc_up"), 0),
        ("Chassis", {**of("bmc_up"), **fault("chassis_hot"), **fault("disk_hot")}, 1),
        ("Chassis", {**of("bmc_up"), **fault("chassis_hot", node=OTHER)}, 0),
        # It does not answer, or is not read: nothing is known of the chassis.
        ("Chassis", of("bmc_up", "0x40"), None),
        ("Chassis", {}, None),
        ("Disks", {**of("disks_present", "0x40"), **fault("disk_missing")}, 1),
        ("Modules", {**of("transceiver_readable", device="a"), **fault("fec_uncorrected")}, 1),
        # Recorded every five minutes: its last sample counts until the next one.
        (
            "Modules",
            {**of("transceiver_readable", device="a"), **fault("fec_uncorrected", "1 stale")},
            1,
        ),
        ("Kernel and root", {**of("node_threads"), **fault("filesystem_read_only")}, 1),
        ("Scripts", of("scripts_status", "0x40", script="a", status="critical"), 0),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_faults_are_counted_where_something_is_known(
    tmp_path: Path, title: str, series: dict[str, str], expected: float | None
) -> None:
    found: Samples = [] if expected is None else [({}, expected)]
    evaluate(tmp_path, [(expression(hardware, title), series, found)])


def test_the_verdict_on_a_disk_is_the_worst(tmp_path: Path) -> None:
    series = {
        **{key: value for name in "abcd" for key, value in of("disk_info", device=name).items()},
        **of("disk_unreadable", device="b", reason="timeout"),
        **fault("disk_hot", device="c"),
        **fault("disk_hot", device="d"),
        **fault("disk_failing", device="d"),
        **of("disk_info", node=OTHER, device="e"),
    }
    values = {"a": 0.0, "b": 1.0, "c": 3.0, "d": 5.0}
    wanted: Samples = [({"device": name}, value) for name, value in values.items()]
    evaluate(tmp_path, [(expression(hardware, "Disk health"), series, wanted)])


def test_a_disk_without_a_limit_has_that_of_the_rules(tmp_path: Path) -> None:
    series = {
        **of("disk_temperature_celsius", "50x40", device="a"),
        **of("disk_temperature_limit_celsius", "70x40", device="a"),
        **of("disk_temperature_celsius", "50x40", device="b"),
        'nodevitals:threshold{threshold="disk_celsius"}': "60x40",
    }
    wanted: Samples = [({"device": "a"}, 20), ({"device": "b"}, 10)]
    evaluate(tmp_path, [(expression(hardware, "Disk health", "I"), series, wanted)])


def test_parts_that_are_ok_or_absent_are_not_listed(tmp_path: Path) -> None:
    def part(name: str, sensor: str, state: str) -> dict[str, str]:
        return of(name, sensor=sensor, state=state)

    series = {
        **part("bmc_power_supply_state", "PS1", "ok"),
        **part("bmc_power_supply_state", "PS2", "failed"),
        **part("bmc_power_supply_state", "PS3", "absent"),
        **part("bmc_fan_state", "Fan1", "ok"),
        **of("bmc_redundancy", sensor="PS", kind="power", state="full"),
        **of("bmc_unreadable", part="log", reason="timeout"),
        **of("bmc_events_total", "0x40", type="bus", severity="critical"),
    }
    wanted: Samples = [
        ({"what": "power supply", "sensor": "PS2", "state": "failed"}, 1),
        ({"what": "BMC", "sensor": "log", "state": "timeout"}, 1),
    ]
    evaluate(tmp_path, [(expression(hardware, "Chassis parts that are not ok"), series, wanted)])


def test_no_light_is_a_power_of_minus_forty(tmp_path: Path) -> None:
    port = {"device": "mlx5_0", "port": "1", "interface": "e"}
    series = {
        **of("transceiver_receive_watts", "0.001x40", NODE, **port, lane="1"),
        **of("transceiver_receive_watts", "0x40", NODE, **port, lane="2"),
    }
    evaluate(tmp_path, [(expression(hardware, "Received light"), series, [(port, -40)])])


def test_facts_that_are_not_known_are_not_said_to_differ(tmp_path: Path) -> None:
    def fact(node: dict[str, str], check: str, wanted: str, found: str) -> dict[str, str]:
        return of("profile_check_info", node=node, check=check, wanted=wanted, found=found)

    pool = {key: text for key, text in NODE.items() if key != "job"}
    series = {
        f"nodevitals:node_pool{labelled(**pool, pool='p')}": "1x40",
        **fact(NODE, "a", "1", "1"),
        **of("profile_conforms", "1x40", check="a"),
        **fact(NODE, "b", "1", "2"),
        **of("profile_conforms", "0x40", check="b"),
        **fact(NODE, "c", "1", ""),
        # No profile wants anything of it.
        **fact(NODE, "d", "", "5"),
    }
    wanted: Samples = [
        ({**pool, "check": "b", "wanted": "1", "found": "2"}, 2),
        ({**pool, "check": "c", "wanted": "1"}, 1),
    ]
    query = expression(conformity, "Nodes that differ from their profile")
    evaluate(tmp_path, [(query, series, wanted)])


def test_what_waits_for_a_person_has_its_alert(tmp_path: Path) -> None:
    hub = {"job": "nodevitals-hub", "cluster": "c", "instance": "h"}
    kept = {"pool": "p", "state": "kept"}
    series = {
        **of("hub_isolations", "2x40", hub, **kept, dry_run="false"),
        **of("hub_isolations", "3x40", hub, **kept, dry_run="true"),
        **of("hub_isolations", "4x40", hub, pool="p", state="isolated", dry_run="false"),
        **of("hub_isolation_problems", "0x40", hub, reason="conflict"),
        **of("hub_repairs_failed", "1x40", hub, action="replace"),
        **of("hub_set_aside", "1x40", hub, what="fact"),
    }
    wanted: Samples = [
        ({"alertname": "IsolationUndecided", "what": "kept"}, 2),
        ({"alertname": "RepairFailed", "what": "replace"}, 1),
        ({"alertname": "HubRecordsSetAside", "what": "fact"}, 1),
    ]
    evaluate(tmp_path, [(expression(agents, "Waits for a person"), series, wanted)])
