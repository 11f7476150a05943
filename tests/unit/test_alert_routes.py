"""Who is notified of an alert, by the routes' matchers; the page that lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals.commands.rules.alerts_page import alerts_page, severity_section, without_reason
from nodevitals.commands.rules.routes import deliveries
from testbed.pack import small_pack

CONFIG: dict[str, Any] = yaml.safe_load("""
route:
  receiver: chat
  group_wait: 20s
  routes:
    - {matchers: ['severity="critical"'], receiver: on-call, group_wait: 5s, continue: true}
    - matchers: ['severity="critical"', "component!=mount"]
      receiver: second
      continue: true
      active_time_intervals: [day]
      routes:
        - {matchers: ['{scope=~"fleet|rack", instance=""}'], receiver: lead}
    - {matchers: [severity=warning], receiver: tickets}
    - {matchers: ['severity="none"'], receiver: "null"}
""")


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ({"severity": "critical"}, [("on-call", "5s"), ("second", "20s")]),
        ({"severity": "critical", "component": "mount"}, [("on-call", "5s")]),
        ({"severity": "critical", "scope": "fleet"}, [("on-call", "5s"), ("lead", "20s")]),
        (
            {"severity": "critical", "scope": "fleet", "instance": "n"},
            [("on-call", "5s"), ("second", "20s")],
        ),
        ({"severity": "warning"}, [("tickets", "20s")]),
        ({}, [("chat", "20s")]),
    ],
)
def test_routes_are_taken_as_alertmanager_takes_them(
    labels: dict[str, str], receivers: list[tuple[str, str]]
) -> None:
    assert [(one.receiver, one.group_wait) for one in deliveries(CONFIG, labels)] == receivers


def test_a_page_lists_each_alert_in_both_profiles(tmp_path: Path) -> None:
    page = alerts_page(small_pack(tmp_path), CONFIG, "")
    (hot,) = [line for line in page.splitlines() if "[Hot]" in line]
    assert hot == (
        "| [Hot](../rules/runbooks/Hot.md) | critical: on-call, second | warning: tickets | 2m |  "
        "| It burns. |"
    )
    (space,) = [line for line in page.splitlines() if "[SpaceLow]" in line]
    assert "| critical: on-call; warning: tickets | warning: tickets |" in space
    (rack,) = [line for line in page.splitlines() if "[RackHot]" in line]
    assert "| critical: on-call, lead | as small |" in rack
    assert "| second | 20s | day |  |" in page


def test_a_page_keeps_what_is_between_markers(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    page = alerts_page(pack, CONFIG, "")
    for name in ("messages", "scenarios", "replay", "backtest"):
        marker = f"<!-- {name} -->\n"
        assert page.count(marker) == 1
        page = page.replace(marker, f"{marker}A table of {name}.\n")
    assert alerts_page(pack, CONFIG, page) == page
    assert alerts_page(pack, CONFIG, "") != page


def test_the_reason_is_one_section_of_the_runbook(tmp_path: Path) -> None:
    text = "# A\n\n## Severity\n\nOne\ntwo.\n\n## Impact\n\nx\n"
    assert severity_section(text) == "One two."
    assert severity_section("# A\n\n## Severity\n\nLast.\n") == "Last."
    assert severity_section("# A\n\n## Severity\n\n## Impact\n\nx\n") == ""
    assert without_reason(small_pack(tmp_path)) == [
        "FleetIncident",
        "InsideFleetIncident",
        "RackHot",
        "SpaceLow",
    ]
