"""The pure parts of `nodevitals doctor`: answers in, findings out."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevitals.commands.doctor.agent_side import offset_findings
from nodevitals.commands.doctor.alertmanager_findings import (
    inhibition_findings,
    maintenance_findings,
    receiver_findings,
    silence_findings,
    watchdog_findings,
)
from nodevitals.commands.doctor.findings import Finding, ago, parse_samples, printable, status_of
from nodevitals.commands.doctor.http import Answer, HttpConfig, ask, endpoint, read_http_config
from nodevitals.commands.doctor.permissions import (
    Credentials,
    device_findings,
    may_open,
    parse_status,
)
from nodevitals.commands.doctor.prometheus_findings import (
    Expected,
    alert_findings,
    fingerprint,
    rule_findings,
    server_findings,
)
from nodevitals.commands.doctor.scrape_findings import Node, scrape_findings
from nodevitals.commands.doctor.servers import (
    FiringAlert,
    LoadedRule,
    ReceivedAlert,
    RuleGroup,
    Sample,
    Silence,
    SilenceMatcher,
    Target,
)
from nodevitals.commands.doctor.targets import MAX_ROWS, TargetState, from_metrics, target_findings
from testbed.standin import stand_in
from testbed.trees import write

NOW = 1_795_300_000.0
SERVER = endpoint("--prometheus", "http://lin:hunter2@p:9090/base/", HttpConfig(), 1)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def states(findings: Any) -> list[tuple[str, str]]:
    return [(one.check, one.state) for one in findings]


@pytest.mark.parametrize(
    ("found", "status"),
    [((), 0), (("ok", "off"), 0), (("ok", "unknown"), 2), (("unknown", "problem", "ok"), 1)],
)
def test_the_status_is_that_of_the_worst_finding(found: tuple[str, ...], status: int) -> None:
    assert status_of(Finding("check", one, "") for one in found) == status


def test_texts_of_servers_are_one_short_line_without_control_characters() -> None:
    assert printable("a\x1b[31m b\n\tc\x00") == "a\\x1b[31m b c\\x00"
    assert len(printable("x" * 10_000)) == 401
    assert [ago(one) for one in (-5, 40, 130, 7300, 200_000)] == [
        "0 s",
        "40 s",
        "2 min",
        "2 h",
        "2 d",
    ]


def test_a_url_is_split_and_its_password_is_not_shown() -> None:
    assert (SERVER.base, SERVER.shown) == ("http://p:9090", "http://p:9090/base")
    assert SERVER.config.basic_auth.password == "hunter2"
    assert endpoint("--url", "https://h", HttpConfig(), 1).port == 443


def test_a_redirect_is_named_and_not_followed() -> None:
    """It may lead to a login page, or take the password elsewhere."""
    with stand_in({}) as server:
        server.bad["*"] = "redirect loop"
        asked = endpoint("--url", server.url, HttpConfig(), 1000)
        answer = ask(asked, "/metrics", time.monotonic() + 10)
    assert (answer.status, answer.state) == (302, "unknown")
    assert answer.problem == "HTTP 302: it redirects to http://127.0.0.1/login"


def test_passwords_and_tokens_are_read_from_the_files_that_are_named(tmp_path: Path) -> None:
    """Relative to the file that names them, without the line's end."""
    files = {"password": "hunter2\n", "token": "abc\n"}
    write(tmp_path, {f"secrets/{name}": text for name, text in files.items()})
    basic = "basic_auth: {username: lin, password_file: secrets/password}\n"
    header = "authorization: {credentials_file: secrets/token}\n"
    write(tmp_path, {"http.yaml": basic + header})
    config = read_http_config(str(tmp_path / "http.yaml"))
    assert (config.basic_auth.password, config.authorization.credentials) == ("hunter2", "abc")


METRICS = """\
nodevitals_probe_success{probe="mounts",target="/a"} 1
nodevitals_probe_success{probe="mounts",target="/b"} 0
nodevitals_probe_success{probe="mounts",target="/c"} 0
nodevitals_probe_success{probe="mounts",target="/d"} 0
nodevitals_probe_success{probe="mounts",target="/e"} 0
nodevitals_probe_duration_seconds{probe="mounts",target="/b"} 1
nodevitals_probe_duration_seconds{probe="mounts",target="/e"} 10
nodevitals_probe_stuck_seconds{probe="mounts",target="/c"} 95
nodevitals_probe_unanswered_seconds{probe="mounts",target="/e"} 85
nodevitals_probe_last_success_timestamp_seconds{probe="mounts",target="/a"} 1795299990
nodevitals_probe_last_success_timestamp_seconds{probe="mounts",target="/b"} 1795299400
"""


def test_each_target_has_its_state_its_reason_and_its_remedy() -> None:
    history = {
        ("mounts", "/b"): ("stale_handle", "/b: statvfs: Stale file handle"),
        ("nvidia", "nvidia"): ("absent", "no NVIDIA GPU"),
    }
    known = from_metrics(parse_samples(METRICS.encode()), history, NOW)
    rows = target_findings(known, ["peers"], ["mounts", "nvidia", "peers", "rdma"])
    by_check = {(one.check, one.state): one for one in rows}
    assert by_check["probe mounts", "ok"].detail == "/a; last success 10 s ago"
    failing = by_check["probe mounts /b", "problem"]
    assert failing.detail == (
        "failing (stale_handle): /b: statvfs: Stale file handle; last success 10 min ago"
    )
    assert failing.remedy == "remount it: umount -l /b; mount /b"
    assert "has not ended for 95 s" in by_check["probe mounts /c", "problem"].detail
    assert by_check["probe mounts /d", "unknown"].detail == "has not ended its first run"
    late = by_check["probe mounts /e", "problem"]
    assert late.detail == "failing (timeout): no run has ended in time for 85 s"
    assert late.remedy.startswith("check the file server")
    assert by_check["probe nvidia", "off"].detail == "not on this node: no NVIDIA GPU"
    assert "probes.peers.enabled is false" in by_check["probe peers", "off"].detail
    assert "not configured" in by_check["probe rdma", "off"].detail
    assert len(rows) == 8


def test_of_thousands_of_failing_targets_the_first_are_shown() -> None:
    many = [TargetState("mounts", f"/{n:04}", "failing", "io_error") for n in range(3000)]
    rows = target_findings(many, (), ["mounts"])
    assert len(rows) == MAX_ROWS + 1
    assert rows[-1].detail == f"{3000 - MAX_ROWS} more targets are not ok"


def test_a_page_that_is_not_an_exposition_is_none() -> None:
    for body in (b"<html>", b"\xff\xfe", b'a{b="c} 1', b"{} {} {}"):
        with pytest.raises(ValueError, match="not the format"):
            parse_samples(body)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("sum(x) by (a, b) > 60  # why", "sum by (a, b) (x) > 60"),
        ("rate(x{a='b'}[60m] offset 90s)", 'rate(x{a="b"}[1h] offset 1m30s)'),
        ("count by () (x)", "count(x)"),
        (
            "x * on () group_left () y\n  or (vector(1e3))",
            "x * on () group_left () y or vector(1000)",
        ),
        ("max_over_time(x[1h:])", "max_over_time(x[1h:])"),
    ],
)
def test_an_expression_is_known_however_it_is_written(written: str, printed: str) -> None:
    assert fingerprint(written) == fingerprint(printed)


@pytest.mark.parametrize(
    ("one", "other"),
    [("x > 60", "x > 61"), ("x{a='b'}", "x{a='c'}"), ("x[5m]", "x[6m]"), ("x and y", "x or y")],
)
def test_a_change_of_an_expression_is_seen(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


def expected(**groups: dict[str, str]) -> Expected:
    rules = {
        f"nodevitals-{name}": Counter((rule, fingerprint(text)) for rule, text in own.items())
        for name, own in groups.items()
    }
    return Expected(rules, frozenset(), ())


def group(name: str, *rules: LoadedRule, seconds: float = 0.1) -> RuleGroup:
    return RuleGroup(f"nodevitals-{name}", list(rules), interval=15, evaluationTime=seconds)


def test_rules_missing_different_broken_slow() -> None:
    wanted = expected(a={"A": "x > 1"}, b={"B": "y"})
    good = [group("a", LoadedRule("A", "x > 1", "ok")), group("b", LoadedRule("B", "y", "ok"))]
    found = list(rule_findings(good, wanted, "9"))
    assert states(found) == [("rules", "ok"), ("rule evaluation", "ok")]
    assert states(rule_findings([], wanted, "9")) == [("rules", "problem")]
    (missing, _) = rule_findings(good[:1], wanted, "9")
    assert missing.detail == "1 of 2 rule groups are not loaded: nodevitals-b"
    old = [group("a", LoadedRule("A", "x > 2", "ok")), good[1]]
    (changed, _) = rule_findings(old, wanted, "9")
    assert changed.detail == "1 rules are not those of version 9: A"
    broken = [group("a", LoadedRule("A", "x > 1", "err", "found duplicate series")), good[1]]
    (_, health) = rule_findings(broken, wanted, "9")
    assert (health.state, "A: found duplicate series" in health.detail) == ("problem", True)
    fresh = [group("a", LoadedRule("A", "x > 1", "unknown")), good[1]]
    assert states(rule_findings(fresh, wanted, "9"))[1] == ("rule evaluation", "unknown")
    slow = [group("a", LoadedRule("A", "x > 1", "ok"), seconds=20), good[1]]
    (_, speed) = rule_findings(slow, wanted, "9")
    assert "nodevitals-a takes 20.0 s of 15 s" in speed.detail


def target(**changes: Any) -> Target:
    labels = {"job": changes.pop("job", "nodevitals"), "instance": "gpu-1"}
    given = {"scrapeUrl": "http://10.0.0.1:9855/metrics", "health": "up", "scrapeInterval": "15s"}
    return Target(**{"labels": labels, "lastScrape": at(NOW - 5), **given, **changes})


AGENT = Sample({"job": "nodevitals", "instance": "gpu-1"}, (NOW, "1795000000.25"))
NODE = Node(1795000000.25, {"gpu-1", "10.0.0.1"}, 9855)


@pytest.mark.parametrize(
    ("targets", "state", "text"),
    [
        ([target()], "ok", "as instance gpu-1, 5 s ago"),
        ([target(lastScrape=at(NOW - 300))], "problem", "last scraped 5 min ago"),
        ([target(health="unknown")], "unknown", "was not scraped yet"),
        ([target(health="down", lastError="401")], "problem", "is down: 401"),
        ([target(job="agents")], "problem", "is scraped as job agents"),
        ([], "unknown", "from no target of its own"),
    ],
)
def test_the_scrape_of_this_node(targets: list[Target], state: str, text: str) -> None:
    agent = [Sample({**AGENT.metric, "job": one.labels["job"]}, AGENT.value) for one in targets]
    found = scrape_findings(targets, agent or [AGENT], NODE, "nodevitals", NOW)
    assert [one.state for one in found.findings] == [state]
    assert text in found.findings[0].detail


def test_an_agent_that_started_at_another_time_is_not_this_one() -> None:
    """Nodes that boot together start their agents within a second."""
    other = Sample({"job": "nodevitals", "instance": "gpu-2"}, (NOW, "1795000000.75"))
    there = target(labels={"job": "nodevitals", "instance": "gpu-2"}, scrapeUrl="http://10.0.0.2:1")
    found = scrape_findings([there, target()], [other, AGENT], NODE, "nodevitals", NOW)
    assert (states(found.findings), found.instances) == ([("scrape", "ok")], frozenset({"gpu-1"}))


def test_the_operator_that_selects_nothing_is_named() -> None:
    other = target(job="kubelet", scrapePool="serviceMonitor/monitoring/kubelet/0")
    stranger = NODE._replace(names={"gpu-9"})
    (found,) = scrape_findings([other], [], stranger, "nodevitals", NOW).findings
    assert "release" in found.remedy


def test_other_exporters_of_the_node_are_not_its_agent() -> None:
    other = target(job="node", scrapeUrl="http://10.0.0.1:9100/metrics")
    (found,) = scrape_findings([other, target()], [AGENT], NODE, "nodevitals", NOW).findings
    assert found.state == "ok"


def test_alerts_of_this_node_that_fire() -> None:
    def alert(**labels: str) -> FiringAlert:
        given = {"alertname": "NodeCpuHigh", "severity": "warning", "instance": "gpu-1"}
        return FiringAlert({**given, **labels}, "firing")

    quiet = [alert(instance="gpu-2"), alert(severity="info")]
    rule = LoadedRule("NodeCpuHigh", "x", "ok", alerts=quiet)
    assert states(alert_findings([group("a", rule)], {"nodevitals-a"}, {"gpu-1"})) == [
        ("alerts", "ok")
    ]
    rule.alerts.append(alert())
    (found,) = alert_findings([group("a", rule)], {"nodevitals-a"}, {"gpu-1"})
    assert found.detail == "firing for this node, of the shipped alerts: NodeCpuHigh (warning)"


def test_an_old_prometheus_is_a_problem() -> None:
    ready = Answer(200, b"Prometheus Server is Ready.\n")
    for version, state in (("2.41.9", "problem"), ("2.42.0+ds", "ok"), ("3.1.0", "ok")):
        (found,) = server_findings(SERVER, version, ready)
        assert found.state == state


@pytest.mark.parametrize(
    ("server", "state"), [(NOW, "ok"), (NOW + 3, "problem"), (NOW - 3, "problem")]
)
def test_the_clock_of_prometheus(server: float, state: str) -> None:
    (found,) = offset_findings(Answer(sent=NOW - 0.01, received=NOW + 0.01), server)
    assert found.state == state
    (unknown,) = offset_findings(Answer(sent=NOW - 0.01, received=NOW + 0.01), float("nan"))
    assert unknown.state == "unknown"
    (slow,) = offset_findings(Answer(sent=NOW - 4, received=NOW + 4), NOW + 3)
    assert slow.state == "ok"  # not known to better than four seconds


def received(age: float, state: str = "active") -> ReceivedAlert:
    text = {
        "labels": {"alertname": "Watchdog"},
        "updatedAt": at(NOW - age),
        "endsAt": at(NOW - age + 240),
        "status": {"state": state},
    }
    return msgspec.json.decode(msgspec.json.encode(text), type=ReceivedAlert)


@pytest.mark.parametrize(
    ("alerts", "age", "state"),
    [
        ([received(50)], None, "ok"),
        ([received(500), received(50)], None, "ok"),
        ([received(130)], None, "problem"),
        ([received(50, "suppressed")], None, "problem"),
        ([], 4000.0, "problem"),
        ([], None, "problem"),
        ([], 30.0, "unknown"),
    ],
)
def test_the_watchdog(alerts: list[ReceivedAlert], age: float | None, state: str) -> None:
    (found,) = watchdog_findings(alerts, NOW, age)
    assert found.state == state


CONFIG = """
route:
  receiver: "null"
  routes:
    - {matchers: [severity="critical"], receiver: operators}
    - {matchers: [severity="warning"], receiver: tickets}
receivers: [{name: "null"}, {name: operators}, {name: tickets, email_configs: [{to: a@b}]}]
"""


def test_receivers_that_are_not_filled_in_send_nothing() -> None:
    critical, warning, watchdog = receiver_findings(CONFIG)
    assert critical.state == "problem"
    assert critical.detail == "critical alerts of a node go to operators, which sends nothing"
    assert (warning.state, "tickets (email)" in warning.detail) == ("ok", True)
    assert watchdog.state == "off"
    (unreadable,) = receiver_findings("route: [")
    assert unreadable.state == "unknown"


@pytest.mark.parametrize(
    ("matchers", "state"),
    [
        ([SilenceMatcher("instance", "gpu-1")], "off"),
        ([SilenceMatcher("instance", "gpu-2")], "ok"),
        ([SilenceMatcher("instance", "gpu-.*", isRegex=True)], "off"),
        ([SilenceMatcher("alertname", "Other")], "ok"),
        ([SilenceMatcher("severity", "critical", isEqual=False)], "ok"),
        ([SilenceMatcher("rack", "r12")], "off"),  # which only a firing alert has
        ([SilenceMatcher("instance", "(", isRegex=True)], "off"),
    ],
)
def test_silences_that_mute_this_node(matchers: list[SilenceMatcher], state: str) -> None:
    silence = Silence(matchers, received(0).status, at(NOW), "lin", "work")
    alerts = [{"alertname": "NodeDown", "severity": "critical"}]
    (found,) = silence_findings([silence], alerts, [], {"gpu-1"})
    assert found.state == state


def of_the_node(name: str, fingerprint: str = "", **status: list[str]) -> ReceivedAlert:
    text = {
        "labels": {"alertname": name, "instance": "gpu-1"},
        "updatedAt": at(NOW),
        "endsAt": at(NOW + 240),
        "status": {"state": "suppressed" if status else "active", **status},
        "fingerprint": fingerprint,
    }
    return msgspec.json.decode(msgspec.json.encode(text), type=ReceivedAlert)


def test_a_silence_for_an_alert_of_the_site() -> None:
    """Firing, it comes first; not yet firing, the silence is known by the node that it names."""
    own, node = SilenceMatcher("alertname", "OwnAlert"), SilenceMatcher("instance", "gpu-1")
    silence = Silence([own], received(0).status, at(NOW), "lin", "work", "id-1")
    alerts = [of_the_node("OwnAlert", silencedBy=["id-1"]), of_the_node("Loud")]
    ours = [{"alertname": "NodeDown"}]
    (found,) = silence_findings([silence], ours, alerts, {"gpu-1"})
    assert (found.state, found.detail.rpartition(": ")[2]) == ("off", "OwnAlert")
    (found,) = silence_findings([silence], ours, [of_the_node("Loud")], {"gpu-1"})
    assert found.state == "ok"
    silence.matchers.append(node)
    (found,) = silence_findings([silence], ours, [], {"gpu-1"})
    assert found.detail.endswith('alertname="OwnAlert", instance="gpu-1"')
    (found,) = silence_findings([silence], ours, [], {"gpu-2"})
    assert found.state == "ok"


def test_alerts_that_others_mute() -> None:
    alerts = [
        of_the_node("NodeMaintenance", "f1"),
        of_the_node("MountMissing", "f2", inhibitedBy=["f1", "f9"]),
    ]
    (found,) = inhibition_findings(alerts)
    assert found.state == "off"
    text = "1 alerts of this node are muted while NodeMaintenance, another fires: MountMissing"
    assert found.detail == text
    assert list(inhibition_findings(alerts[:1])) == []


def test_maintenance_is_said_with_its_end() -> None:
    samples = [
        Sample({"instance": "gpu-1"}, (NOW, str(NOW + 60))),
        Sample({"instance": "gpu-2"}, (NOW, "0")),
    ]
    (found,) = maintenance_findings(samples, {"gpu-1"})
    assert found.state == "off"
    end = at(NOW + 60).astimezone().isoformat(" ", "minutes")
    assert found.detail.startswith(f"in maintenance until {end}")
    (found,) = maintenance_findings(samples, {"gpu-2"})
    assert found.detail.startswith("in maintenance without an end")
    assert list(maintenance_findings(samples, {"gpu-3"})) == []
    endless = [Sample({"instance": "gpu-1"}, (NOW, "1e300"))]
    (found,) = maintenance_findings(endless, {"gpu-1"})
    assert found.state == "off"


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_a_silence_without_an_end(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last day that a date can have, which is later or earlier in another zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    for end in (datetime.max, datetime.min):
        matchers = [SilenceMatcher("instance", "gpu-1")]
        active = received(0).status
        silence = Silence(matchers, active, end.replace(tzinfo=timezone.utc), "lin", "work")
        (found,) = silence_findings([silence], [{"alertname": "NodeDown"}], [], {"gpu-1"})
        assert found.state == "off"
    monkeypatch.delenv("TZ")
    time.tzset()


def test_of_thousands_of_silences_the_first_are_shown() -> None:
    silence = Silence(
        [SilenceMatcher("instance", "gpu-1")], received(0).status, at(NOW), "lin", "work"
    )
    found = list(silence_findings([silence] * 5000, [{"alertname": "NodeDown"}], [], {"gpu-1"}))
    assert len(found) == MAX_ROWS + 1
    assert found[-1].detail.startswith(f"{5000 - MAX_ROWS} more silences")


def test_credentials_of_a_process_and_what_they_may_open() -> None:
    text = "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t27 1001\nCapEff:\t0000000400080004\n"
    process = parse_status(text)
    assert process == Credentials(0, frozenset({0, 27, 1001}), 1 << 2 | 1 << 19 | 1 << 34)
    assert process.has("CAP_SYSLOG")
    assert not process.has("CAP_SYS_NICE")
    assert may_open(0o660, 1000, 1001, process)
    assert not may_open(0o660, 1000, 1002, process)  # root without CAP_DAC_OVERRIDE
    assert may_open(0o666, 1000, 1002, process)
    assert may_open(0o600, 0, 1002, process)
    assert not may_open(0o066, 0, 1001, process)  # the owner's bits alone count
    assert not may_open(0o640, 1000, 1001, process)
    with pytest.raises(ValueError, match="no 'Gid'"):
        parse_status("Uid: 0 0")


def test_a_device_that_goes_away_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset of a device removes its file for a moment."""
    monkeypatch.setattr(Path, "glob", lambda *_: [Path("/dev/nvidia-that-is-gone")])
    assert list(device_findings(Credentials(0, frozenset(), 0))) == []
