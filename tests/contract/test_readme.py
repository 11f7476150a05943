"""The READMEs: short, the same in both languages, with tables that say what the rules do."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tools.main_of_probes import MAIN, Main
from tools.probe_tables import (
    END,
    MARK,
    OTHERS,
    depends_on,
    described,
    main_of,
    probes_page,
    unknown,
)

from nodevitals import catalogue, probes
from nodevitals.commands.rules.site.pack import read_pack
from testbed.readme_page import height_px

ROOT = Path(__file__).parents[2]
ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
PACK = read_pack(ROOT / "rules")
FENCES = re.compile(r"^```(?:sh|console).*?^```$", re.MULTILINE | re.DOTALL)
PICTURES = [ROOT / "docs/pictures" / name for name in ("flow.svg", "flow.zh.svg")]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_a_page_is_short(name: str) -> None:
    assert height_px(ROOT / name) <= 3000


def test_each_probe_has_one_line() -> None:
    """At a width of 1,000 px; a Chinese character is twice as wide as a Latin one."""
    for text in (ENGLISH, CHINESE):
        lines = re.findall(r"^- \[`(\w+)`\]\(docs/probes\.md#\w+\): (.*)$", text, re.MULTILINE)
        assert [name for name, _ in lines] == list(probes.registered())
        for name, line in lines:
            width = len(name) + sum(1 + (ord(letter) > 0x2E80) for letter in line)
            assert width <= 112, line


def test_both_have_the_same_sections_commands_and_tables() -> None:
    for pattern in (r"^## ", r"^\*\*|^- \*\*", r"^- ", r"^!?\[?!\["):
        found = [len(re.findall(pattern, text, re.MULTILINE)) for text in (ENGLISH, CHINESE)]
        assert found[0] == found[1] > 0, pattern
    assert FENCES.findall(ENGLISH) == FENCES.findall(CHINESE)


def test_both_link_to_the_same_pages() -> None:
    def pages(text: str) -> set[str]:
        targets = set(re.findall(r"\]\(([^)]+)\)", text))
        english = re.sub(r"\.zh\.(?!png)", ".", "\n".join(targets)).replace("/zh/", "/")
        return {*english.replace(".zh.png", ".en.png").splitlines()}

    assert pages(ENGLISH) ^ pages(CHINESE) == {"README.md", "README.zh-CN.md"}


def test_each_link_to_a_metric_leads_to_its_table() -> None:
    page = catalogue.markdown(catalogue.hub_families())
    heads = re.findall(r"^## (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-"): head for head in heads}
    probes_page = (ROOT / "docs/probes.md").read_text()
    links = re.findall(r"\[`(nodevitals_\w+)`\]\(METRICS\.md#([\w-]+)\)", probes_page)
    assert len(links) > len(MAIN)
    for metric, anchor in links:
        table = page.partition(f"## {anchors[anchor]}\n")[2].partition("\n## ")[0]
        assert f"| `{metric}` |" in table


def test_what_does_not_exist_is_found() -> None:
    wrong = {name: main for name, main in MAIN.items() if name != "rdma"}
    wrong["node"] = Main(("made_up",), ("MadeUp",), "")
    assert unknown(PACK) == []
    assert unknown(PACK, wrong) == [
        "probe rdma: no `chinese` in its class",
        "metric nodevitals_made_up of node",
        "alert MadeUp of node",
    ]


@pytest.mark.parametrize(
    ("probe", "alert"), [(name, alert) for name in MAIN for alert in MAIN[name].alerts]
)
def test_an_alert_reads_a_metric_of_its_probe(probe: str, alert: str) -> None:
    families = {family.name for family in probes.registered()[probe].families}
    assert families & depends_on(alert, PACK.rules)


def test_a_probe_without_an_entry_has_a_section_of_its_docstrings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(MAIN, "services")
    main = main_of("services", PACK)
    assert {"FilesystemReadOnly", "ServiceDown", "ThreadsHigh"} <= {*main.alerts}
    assert not {"NodeDown", "FleetIncident", "JobOwnerImpact"} & {*main.alerts}
    assert "services_unit_active" in main.metrics
    marks = f"{MARK.format(OTHERS)}{END.format(OTHERS)}"
    page = probes_page(marks, PACK)
    assert f"\n## services\n\n{described('services')}\n" in page


def test_an_alert_does_not_read_the_metrics_of_others() -> None:
    read = depends_on("MountReadOnly", PACK.rules)
    assert "nodevitals_mount_writable" in read
    assert not {name for name in read if re.match("nodevitals_(rdma|nvidia|accelerator)_", name)}


def test_the_pictures_are_the_same_drawing() -> None:
    drawings = [
        [
            (element.tag, {**element.attrib})
            for element in ElementTree.parse(path).iter()
            if element.tag.rpartition("}")[2] != "title"
        ]
        for path in PICTURES
    ]
    assert drawings[0] == drawings[1]
    assert len(drawings[0]) > 50
