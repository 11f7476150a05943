"""Which rules matter to a test of rules: none of the others changes what the test sees."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.liverules import live_rules

RULES = {
    "a.yaml": {
        "groups": [
            {
                "name": "thresholds",
                "rules": [
                    {"record": "limit", "expr": "vector(3)", "labels": {"threshold": "heat"}},
                    {"record": "limit", "expr": "vector(5)", "labels": {"threshold": "wear"}},
                ],
            },
            {
                "name": "faults",
                "rules": [
                    {
                        "record": "fault",
                        "expr": 'celsius{disk!~"sd.*"} > on () limit{threshold="heat"}',
                        "labels": {"fault": "hot"},
                    },
                    {
                        "record": "fault",
                        "expr": 'wear > on () group_left () limit{threshold="wear"}',
                        "labels": {"fault": "worn"},
                    },
                ],
            },
        ]
    },
    "b.yaml": {
        "groups": [
            {
                "name": "alerts",
                "rules": [
                    {"alert": "Hot", "expr": 'fault{fault="hot"}'},
                    {"alert": "Worn", "expr": 'fault{fault="worn"}'},
                    {"alert": "Gone", "expr": 'absent(limit{threshold="wear"})'},
                    {"record": "firing", "expr": 'count(ALERTS{alertname=~"Hot|Cold"})'},
                ],
            }
        ]
    },
}
HOT = 'celsius{disk="nvme0"}'


def _live(series: list[str], alert: str = "", expression: str = "") -> list[str]:
    test: dict[str, Any] = {"input_series": [{"series": one, "values": "1"} for one in series]}
    if alert:
        test["alert_rule_test"] = [{"eval_time": "1m", "alertname": alert}]
    if expression:
        test["promql_expr_test"] = [{"eval_time": "1m", "expr": expression}]
    return [
        rule.get("alert") or ":".join((rule["record"], *rule.get("labels", {}).values()))
        for document in live_rules(RULES, test).values()
        for group in document["groups"]
        for rule in group["rules"]
    ]


@pytest.mark.parametrize(
    ("series", "alert", "expression", "expected"),
    [
        pytest.param([HOT, "wear"], "Hot", "", ["limit:heat", "fault:hot", "Hot"], id="asked-for"),
        pytest.param(["wear"], "Hot", "", ["limit:heat", "fault:hot", "Hot"], id="threshold"),
        pytest.param([], "Gone", "", ["limit:wear", "Gone"], id="absent"),
        pytest.param(
            [HOT],
            "",
            "fault * 1",
            ["limit:heat", "limit:wear", "fault:hot", "fault:worn"],
            id="record",
        ),
        pytest.param([], "", "limit", ["limit:heat", "limit:wear"], id="without-series"),
        pytest.param(
            [HOT], "", "firing", ["limit:heat", "fault:hot", "Hot", "firing"], id="alerts"
        ),
        pytest.param([HOT], "", 'ALERTS{alertname="Cold"}', [], id="no-such-alert"),
        pytest.param(
            ['fault{fault="worn"}'], "Worn", "", ["limit:wear", "fault:worn", "Worn"], id="given"
        ),
    ],
)
def test_only_rules_that_matter_are_kept(
    series: list[str], alert: str, expression: str, expected: list[str]
) -> None:
    assert _live(series, alert, expression) == expected


def test_a_series_that_no_rule_selects_keeps_none() -> None:
    plain = {
        "r.yaml": {
            "groups": [
                {
                    "name": "g",
                    "rules": [
                        {"record": "hot", "expr": 'celsius{disk!~"sd.*"} > 3'},
                        {"record": "small", "expr": 'celsius{rack=""} > 3'},
                    ],
                }
            ]
        }
    }
    for series, kept in (
        ('celsius{disk="sda", rack="7"}', []),
        ('celsius{disk="nvme0", rack="7"}', ["hot"]),
        ('celsius{disk="sda"}', ["small"]),
        ("celsius", ["hot", "small"]),
        ("wear", []),
    ):
        test = {
            "input_series": [{"series": series, "values": "1"}],
            "promql_expr_test": [{"eval_time": "1m", "expr": "hot or small"}],
        }
        groups = live_rules(plain, test)["r.yaml"]["groups"]
        assert [rule["record"] for group in groups for rule in group["rules"]] == kept


def test_what_a_text_of_an_alert_queries_is_kept() -> None:
    text = '{{ with query (printf "nodevitals:wear:range{disk=%q}" $labels.disk) }}{{ . }}{{ end }}'
    rules = {
        "r.yaml": {
            "groups": [
                {
                    "name": "g",
                    "rules": [
                        {"record": "nodevitals:wear:rate", "expr": "wear / 14"},
                        {"record": "nodevitals:wear:range", "expr": "nodevitals:wear:rate + 1"},
                        {"record": "nodevitals:wear:other", "expr": "wear + 2"},
                        {"alert": "Worn", "expr": "wear > 3", "annotations": {"summary": text}},
                    ],
                }
            ]
        }
    }
    test = {
        "input_series": [{"series": "wear", "values": "1"}],
        "alert_rule_test": [{"eval_time": "1m", "alertname": "Worn"}],
    }
    [group] = live_rules(rules, test)["r.yaml"]["groups"]
    names = [rule.get("record", rule.get("alert")) for rule in group["rules"]]
    assert names == ["nodevitals:wear:rate", "nodevitals:wear:range", "Worn"]
