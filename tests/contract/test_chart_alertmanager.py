"""The Alertmanager configuration of the chart is the shipped one, with the site's addresses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import pytest

from testbed.charts import Object, load_all, of_kind, render
from testbed.node import ROOT
from testbed.servers import BINARIES
from testbed.shipped import filled_in

FILES = {"full": "alertmanager.yaml", "minimal": "minimal.yaml"}
ADDRESSES = ("to", "url", "api_url_file", "routing_key_file", "http_config")
CRD = json.loads((ROOT / "tests/data/crds/alertmanagerconfig.json").read_text())
# What only the site knows, in the words of an AlertmanagerConfig.
CAMEL = {
    "email_configs": ("emailConfigs", {"to": "a@example.com"}),
    "pagerduty_configs": ("pagerdutyConfigs", {"routingKey": {"name": "s", "key": "k"}}),
    "slack_configs": ("slackConfigs", {"apiURL": {"name": "s", "key": "k"}}),
    "webhook_configs": ("webhookConfigs", {"url": "http://x.example.com"}),
}


def receivers(configuration: str) -> dict[str, Any]:
    """Return the addresses of the shipped configuration, as values."""
    return {
        receiver.pop("name"): {
            kind: [{key: entry[key] for key in ADDRESSES if key in entry} for entry in entries]
            for kind, entries in receiver.items()
        }
        for receiver in filled_in(FILES[configuration])["receivers"]
    }


def secret(configuration: str, **values: Any) -> dict[str, str]:
    """Return the files of the Secret."""
    chosen = {"kind": "Secret", "configuration": configuration, **values}
    [one] = [
        each
        for each in of_kind(render({"alertmanager": chosen}), "Secret")
        if each["metadata"]["name"] == "nodevitals-alertmanager"
    ]
    files: dict[str, str] = one["stringData"]
    return files


def check_config(folder: Path, files: dict[str, str]) -> None:
    """Check the files as an operator mounts them: amtool reads the templates as well."""
    for name, text in files.items():
        (folder / name).write_text(text.replace("/etc/alertmanager/config", str(folder)))
    argv = [str(BINARIES / "amtool"), "check-config", str(folder / "alertmanager.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 templates" in done.stdout


@pytest.mark.parametrize("configuration", FILES)
def test_with_the_shipped_addresses_it_is_the_shipped_configuration(
    configuration: str, tmp_path: Path
) -> None:
    shipped = filled_in(FILES[configuration])
    mail = {key: value for key, value in shipped["global"].items() if key.startswith("smtp")}
    files = secret(configuration, receivers=receivers(configuration), **{"global": mail})
    [made] = load_all(files["alertmanager.yaml"])
    assert made == {**shipped, "templates": ["/etc/alertmanager/config/*.tmpl"]}
    for template in (ROOT / "alertmanager/templates").glob("*.tmpl"):
        assert files[template.name] == template.read_text()
    check_config(tmp_path, files)


def test_a_receiver_without_settings_sends_nothing(tmp_path: Path) -> None:
    files = secret("full")
    [made] = load_all(files["alertmanager.yaml"])
    assert all(receiver.keys() == {"name"} for receiver in made["receivers"])
    check_config(tmp_path, files)


def test_the_site_has_the_last_word(tmp_path: Path) -> None:
    """Own settings of an entry, several entries, kinds that are not shipped, and times."""
    hardware = {
        "email_configs": [
            {"to": "a@example.com", "send_resolved": False, "text": ""},
            {"to": "b@example.com"},
        ],
        "webhook_configs": [{"url": "http://x.example.com"}],
    }
    night = [{"times": [{"start_time": "00:00", "end_time": "05:00"}]}]
    files = secret(
        "full",
        receivers={"hardware": hardware},
        timeIntervals={"maintenance": night},
        **{"global": {"smtp_smarthost": "mail:25", "smtp_from": "x@example.com"}},
    )
    [made] = load_all(files["alertmanager.yaml"])
    [found] = [one for one in made["receivers"] if one["name"] == "hardware"]
    first, second = found["email_configs"]
    assert (first["send_resolved"], first["text"]) == (False, "")
    assert second["send_resolved"] is True
    assert "nodevitals.subject" in first["headers"]["Subject"]
    assert found["webhook_configs"] == hardware["webhook_configs"]
    assert {one["name"]: one for one in made["time_intervals"]}["maintenance"] == {
        "name": "maintenance",
        "time_intervals": night,
    }
    check_config(tmp_path, files)


def alertmanager_config(**values: Any) -> Object:
    """Return the AlertmanagerConfig."""
    chosen = {"kind": "AlertmanagerConfig", **values}
    [one] = of_kind(render({"alertmanager": chosen}), "AlertmanagerConfig")
    return one


def as_operator(spec: Any) -> Any:
    """Return a spec, or a part of one, in Alertmanager's words, as the operator converts it."""
    if isinstance(spec, list):
        if spec and all(isinstance(one, dict) and "matchType" in one for one in spec):
            return [f'{one["name"]}{one["matchType"]}"{one["value"]}"' for one in spec]
        if spec and all(isinstance(one, dict) and one.keys() == {"key", "value"} for one in spec):
            return {one["key"]: one["value"] for one in spec}
        return [as_operator(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    names = {"sourceMatch": "source_matchers", "targetMatch": "target_matchers"}
    return {names.get(key, snake(key)): as_operator(value) for key, value in spec.items()}


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@pytest.mark.parametrize("configuration", FILES)
def test_an_alertmanager_config_is_the_same_without_times(configuration: str) -> None:
    shipped = filled_in(FILES[configuration])
    values = {
        receiver["name"]: {
            CAMEL[kind][0]: [CAMEL[kind][1] for _ in entries]
            for kind, entries in receiver.items()
            if kind != "name"
        }
        for receiver in shipped["receivers"]
    }
    made = alertmanager_config(configuration=configuration, receivers=values)
    jsonschema.validate(made, CRD)
    spec = as_operator(made["spec"])
    for route in shipped["route"]["routes"]:
        route.pop("mute_time_intervals", None)
        route.pop("active_time_intervals", None)
    assert spec["route"] == shipped["route"]
    assert spec["inhibit_rules"] == shipped["inhibit_rules"]
    for found, expected in zip(spec["receivers"], shipped["receivers"], strict=True):
        for kind in expected.keys() - {"name"}:
            for entry, wanted in zip(found[kind], expected[kind], strict=True):
                assert {key: entry.get(key) for key in wanted if key not in ADDRESSES} == {
                    key: value for key, value in wanted.items() if key not in ADDRESSES
                }


def test_among_others_it_takes_only_its_own_alerts() -> None:
    own = [{"name": "scope", "matchType": "=~", "value": ".+"}]
    made = alertmanager_config(matchers=own, labels={"role": "x"})
    assert made["spec"]["route"]["matchers"] == own
    assert made["metadata"]["labels"]["role"] == "x"
    jsonschema.validate(made, CRD)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"receivers": {"onn-call": {}}}, "additional properties 'onn-call' not allowed"),
        ({"kind": "AlertmanagerConfig", "global": {"smtp_from": "x"}}, "alertmanagerConfiguration"),
        ({"kind": "ConfigMap"}, "value must be one of"),
    ],
)
def test_a_value_that_does_nothing_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm.HelmError, match=message):
        render({"alertmanager": values})
