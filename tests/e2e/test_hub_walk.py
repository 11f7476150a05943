"""A person's walk through the hub, in a browser and in both languages: from a node to the form, its
cost, the start, the progress, the verdict, the raw output, another check compared, the exports.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals_hub.web.texts.translations import texts_of
from testbed.browser import Browser
from testbed.hubcluster import TEST, HubCluster

SLOW = "gpu-7"
OPERATOR = "operator"
PHONE = (390, 844)
HUB: dict[str, Any] = {
    "alerts": [{"alertname": "NodeFabricSlow", "preset": "links", "with_healthy": 3}],
    "presets": {"links": {"kind": "matrix", "test": {**TEST, "iterations": 64}}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubCluster]:
    with HubCluster(tmp_path_factory.mktemp("cluster"), slow=SLOW, **HUB) as cluster:
        yield cluster


def started(browser: Browser, t: Callable[..., str], folder: Path, name: str) -> str:
    """From the form that is open to the verdict. Returns the check's id."""
    browser.click("button[value=cost]")
    cost = browser.wait_for(t("Cost, at most"))
    assert t("Nothing is started yet.") in cost
    browser.picture(folder / f"{name}-cost.png")
    browser.click("button[value=start]")
    running = browser.wait_for(t("Runs now"), 60)
    assert " → " in running.partition(t("Runs now"))[2]
    assert (
        t("It ends after {seconds} at the latest (time limit).", seconds="").split()[0] in running
    )
    browser.picture(folder / f"{name}-running.png")
    browser.wait_for(f"{t('bad')}{t(': ')}{SLOW}", 120)
    browser.picture(folder / f"{name}-verdict.png")
    return browser.address().rpartition("/")[2]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_walk_from_a_node_to_the_comparison(
    cluster: HubCluster, tmp_path: Path, language: str
) -> None:
    t, url = texts_of(language), cluster.hub.url
    with Browser(language=language) as browser:
        browser.send_headers(
            **{
                "Authorization": f"Bearer {cluster.hub.tokens[OPERATOR]}",
                "Accept-Language": language,
            }
        )
        # As the link of an alert: the node as Prometheus knows it.
        browser.open(f"{url}/checks/for?nodes={SLOW}:9855&alert=NodeFabricSlow")
        nodes = browser.evaluate("document.querySelector('[name=nodes]').value").split()
        assert nodes[0] == SLOW
        assert len(nodes) == 4
        browser.picture(tmp_path / "form.png")
        first = started(browser, t, tmp_path, "first")

        browser.click(f"h3 a[href^='/checks/{first}/runs/']")
        output = browser.text()
        assert f"# {SLOW}" in output
        assert "iperf3 -c " in output
        assert '"bits_per_second"' in output, "what the tool printed"
        browser.picture(tmp_path / "test.png")
        browser.click("a[href$='/runs']")
        assert browser.text().count(" → ") >= 12, "each pair in both directions"
        browser.picture(tmp_path / "tests.png")

        browser.open(f"{url}/checks/{first}")
        browser.click(f"a[href='/checks/new?copy={first}']")
        second = started(browser, t, tmp_path, "second")
        browser.choose("select[name=with]", first)
        browser.click("form[action$='#comparison'] button")
        compared = browser.wait_for(t("Compared with"))
        assert (
            t("{count} test is in both checks|{count} tests are in both checks", count=12)
            in compared
        )
        browser.picture(tmp_path / "compared.png")
        for width, height in (PHONE, (1280, 900)):
            browser.resize(width, height)
            wide = browser.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
            browser.picture(tmp_path / f"compared-{width}.png")
        exports = browser.evaluate("[...document.querySelectorAll('.links a')].map(a => a.href)")

    [detail_url] = [one for one in exports if one.endswith(f"/api/v1/checks/{second}")]
    [table_url] = [one for one in exports if one.endswith("results.csv")]
    detail = cluster.hub.request("GET", detail_url.removeprefix(url)).json()
    rows = list(csv.DictReader(io.StringIO(cluster.hub.request("GET", table_url[len(url) :]).text)))
    assert len(detail["results"]) == len(rows) >= 12
    assert {tuple(row["nodes"].split()) for row in rows} == {
        (source, target) for source in nodes for target in nodes if source != target
    }
    for row in rows:
        assert row["device"] == "fab0"
        assert row["message_bytes"] == str(128 << 10)
        assert "iperf3 -c " in row["commands"]
        assert float(row["bandwidth_bytes_per_second"]) > 0
