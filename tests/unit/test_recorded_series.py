"""Every series that a rule records is in the catalogue, with its help and its labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tools.recorded_series import help_problems, recorded_json

from nodevitals.catalogue import all_families, hub_families
from nodevitals.commands.generated.recorded import FILE, decoded, metrics_page, recorded_series
from nodevitals.commands.rules.site.pack import Pack, read_pack
from testbed.node import ROOT

RULES = ROOT / "rules"


def pack_of(folder: Path, text: str) -> Pack:
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text(text)
    return read_pack(folder)


def rules_of(*rules: str) -> str:
    return "groups:\n  - name: own\n    rules:\n" + "".join(f"{rule}\n" for rule in rules)


PORTS = "      - {record: 'nodevitals:ports', expr: nodevitals_rdma_port_up}"
HELP = "      # HELP nodevitals:ports Number of ports."


def test_every_recorded_series_is_in_the_page() -> None:
    recorded = {
        rule["record"]
        for file in RULES.glob("*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    assert len(recorded) > 200
    page = (ROOT / "docs/METRICS.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    assert recorded - listed == set()
    assert list(help_problems(read_pack(RULES))) == []
    assert all(one.help for one in recorded_series().values())


def test_the_catalogue_is_the_one_of_the_rules() -> None:
    made = recorded_json(read_pack(RULES), RULES)
    assert FILE.read_text() == made, "make generate"
    page = metrics_page(decoded(made.encode()))
    assert (ROOT / "docs/METRICS.md").read_text() == page, "make generate"


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ((PORTS,), "own.yaml: record nodevitals:ports: no help: write `# HELP nodevitals:ports …`"),
        ((HELP, HELP, PORTS), "# HELP nodevitals:ports: 2 times"),
        ((HELP, PORTS, HELP.replace(":ports", ":port")), "# HELP nodevitals:port: no rule records"),
        ((HELP, PORTS), ""),
        # A family has its own help.
        (("      - {record: nodevitals_rdma_port_up, expr: vector(1)}",), ""),
    ],
)
def test_help_that_is_missing_or_wrong_is_a_problem(
    rules: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    found = list(help_problems(pack_of(tmp_path, rules_of(*rules))))
    assert len(found) == bool(problem), found
    assert problem in "".join(found)


def test_the_labels_are_those_of_the_expressions(tmp_path: Path) -> None:
    text = rules_of(
        "      # HELP nodevitals:ports Number of ports.",
        "      - record: nodevitals:ports",
        "        labels: {state: up}",
        "        expr: count by (cluster, instance) (nodevitals_rdma_port_up == 1)",
        "      - record: nodevitals:ports",
        "        labels: {state: down}",
        "        expr: count without (port) (nodevitals_rdma_port_up == 0)",
    )
    [found] = decoded(recorded_json(pack_of(tmp_path, text), tmp_path).encode())
    assert (found.file, found.help) == ("own.yaml", "Number of ports.")
    assert found.labels == ("cluster", "instance", "job", "device", "link_layer", "state")
    assert found.closed == {"state": ("up", "down")}


def test_no_recorded_series_has_the_name_of_a_family() -> None:
    assert recorded_series().keys() & ({**all_families(), **hub_families()}).keys() == set()
