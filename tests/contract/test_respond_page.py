"""docs/respond.md: its configurations load, its addresses are understood, in both languages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import apprise
import kubernetes_validate
import msgspec
import pytest
import yaml

from nodevitals.document import Problem, SettingsDocument, convert
from nodevitals_hub.alerting import receiver
from nodevitals_hub.notify.channels import robots
from nodevitals_hub.repair import repair_plan
from nodevitals_hub.settings.hub import HubSettings
from testbed.node import ROOT
from testbed.servers import BINARIES

PAGE = (ROOT / "docs/respond.md").read_text()
CHINESE = (ROOT / "docs/respond.zh.md").read_text()
SECTIONS = ("notify", "incidents", "out_of_service", "drill")


def blocks(page: str, title: str) -> list[str]:
    """The fences with a title."""
    return re.findall(rf'(?ms)^```yaml title="{re.escape(title)}"\n(.*?)^```$', page)


def settings_of(text: str) -> HubSettings:
    """The settings of a file of the hub."""
    problems: list[Problem] = []
    document = SettingsDocument(text.encode())
    settings: HubSettings | None = convert(document.values(), HubSettings, "", problems)
    assert settings is not None, document.error(problems)
    assert [*problems, *settings.problems()] == []
    return settings


@pytest.mark.parametrize("text", blocks(PAGE, "hub.yaml"))
def test_each_configuration_of_the_hub_loads(text: str) -> None:
    assert settings_of(text) != HubSettings()


def test_each_section_is_shown() -> None:
    shown = {name for text in blocks(PAGE, "hub.yaml") for name in yaml.safe_load(text)}
    assert shown.issuperset(SECTIONS)


def test_the_watchdog_is_missed_after_alertmanagers_intervals() -> None:
    [alertmanager] = blocks(PAGE, "alertmanager.yaml")
    [route] = yaml.safe_load(alertmanager)["route"]["routes"]
    assert route["repeat_interval"] == route["group_interval"] == "1m"
    [watchdog] = [
        found
        for text in blocks(PAGE, "hub.yaml")
        if (found := settings_of(text).notify.watchdog) is not None
    ]
    assert watchdog.after > 2 * 60


@pytest.mark.parametrize("page", [PAGE, CHINESE])
def test_each_object_of_a_repair_can_be_created(page: str, tmp_path: Path) -> None:
    entries = [
        entry
        for text in blocks(page, "hub.yaml")
        if (found := settings_of(text).out_of_service) is not None
        for entry in found.repairs
    ]
    assert [bool(entry.command) for entry in entries] == [False, True, True]
    values = dict.fromkeys(repair_plan.PLACEHOLDERS, "gpu-7")
    assert repair_plan.planned(entries[1], values, "x").command[2] == "gpu-7"
    for title in ("repair-reset-gpu.yaml", "repair-reboot.yaml"):
        [text] = blocks(page, title)
        file = tmp_path / title
        file.write_text(text)
        entry = msgspec.structs.replace(entries[0], manifest_file=str(file))
        assert list(repair_plan.file_problems([entry], "repairs")) == []
        document = dict(repair_plan.planned(entry, values, "20261123-080030-k3fm2q-x").document)
        if document["kind"] == "Job":
            kubernetes_validate.validate(document, "1.27", strict=True)


def test_alertmanager_takes_its_configuration(tmp_path: Path) -> None:
    [text] = blocks(PAGE, "alertmanager.yaml")
    file = tmp_path / "alertmanager.yaml"
    file.write_text(text)
    done = subprocess.run(
        [str(BINARIES / "amtool"), "check-config", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [receiver_of_hub] = yaml.safe_load(text)["receivers"]
    [webhook] = receiver_of_hub["webhook_configs"]
    assert webhook["url"].endswith(receiver.PATH)


def test_each_url_of_a_channel_is_understood() -> None:
    urls = re.findall(r"`([a-z]+://[^`]+)`", PAGE.partition("| to | URL")[2].partition("\n\n")[0])
    assert len(urls) == 9
    for url in urls:
        place = url.replace("PHONE", "13800000000").replace("API_KEY", "k" * 20)
        place = place.replace("HOST", "portal.example.org").replace("ACCOUNT", "AC" + "0" * 32)
        place = place.replace("FROM/TO", "+14155550100/+14155550111")
        if robots.parse_robot(place) is None:
            assert apprise.Apprise.instantiate(place) is not None, url


def test_the_pages_have_the_same_configurations() -> None:
    for title in ("hub.yaml", "alertmanager.yaml"):
        english, chinese = (
            [yaml.safe_load(text) for text in blocks(page, title)] for page in (PAGE, CHINESE)
        )
        assert english == chinese
        assert english


def test_the_pages_have_the_same_sections_and_rows() -> None:
    for pattern in (r"(?m)^## ", r"(?m)^\| ", r"(?m)^```"):
        assert len(re.findall(pattern, PAGE)) == len(re.findall(pattern, CHINESE))
