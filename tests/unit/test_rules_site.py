"""`nodevitals rules check` on the rules of a site: what it finds, and what it must not find."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nodevitals.catalogue import all_families, hub_families
from nodevitals.commands.rules.check import check
from nodevitals.commands.rules.findings import IDS, STRICT_IDS
from testbed.node import ROOT, run

SITE = ROOT / "tests/data/site-rules"
PROMTOOL = ROOT / ".tools/root/usr/bin/promtool"
FAMILIES = {**all_families(), **hub_families()}
WITHOUT_MARK = ("file/", "promtool/", "silence/")


def expected(file: Path) -> list[tuple[str, int, str]]:
    """What the file's comments say: `# finds ID` at the end of a line."""
    return [
        (str(file), number, name)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for name in re.findall(r"# finds (\S+)$", line)
    ]


def test_each_mistake_of_a_site_is_found_and_nothing_else() -> None:
    found = [(one.file, one.line, one.id) for one in check([SITE], str(PROMTOOL))]
    assert found == expected(SITE / "mistakes.yaml")
    assert {name for _, _, name in found} == {
        name for name in IDS if name not in STRICT_IDS and not name.startswith(WITHOUT_MARK)
    }


@pytest.mark.parametrize("name", ["correct", "kubernetes"])
def test_correct_rules_have_no_findings(name: str) -> None:
    assert list(map(str, check([SITE / f"{name}.yaml"], None))) == []


@pytest.mark.parametrize("folder", ["rules", "rules/examples"])
def test_what_is_shipped_has_no_findings(folder: str) -> None:
    assert list(map(str, check([ROOT / folder], None))) == []


def test_the_shipped_rules_beside_those_of_a_site_are_not_checked(tmp_path: Path) -> None:
    """They may have been rendered for another job."""
    text = (ROOT / "rules/rdma.yaml").read_text().replace('job="nodevitals"', 'job="agents"')
    (tmp_path / "rdma.yaml").write_text(text)
    (tmp_path / "own.yaml").write_text((SITE / "correct.yaml").read_text())
    assert check([tmp_path], None) == []


def write(folder: Path, expression: str) -> Path:
    rules = [{"alert": "A", "expr": expression, "annotations": {"summary": "{{ $labels.rack }}"}}]
    file = folder / "own.yml"
    file.write_text(json.dumps({"groups": [{"name": "own", "rules": rules}]}))
    return file


def test_labels_and_the_job_of_the_site_are_options(tmp_path: Path) -> None:
    file = write(tmp_path, 'nodevitals_rdma_port_up{job="agents", rack="r1"} == 0')
    assert {one.id for one in check([file], None)} == {"label/job", "label/unknown"}
    done = run("rules", "check", "--job", "agents", "--label", "rack", str(file))
    assert (done.returncode, done.stdout.splitlines()[0].split(";")[0]) == (0, f"{file}: ok")


def test_an_expression_that_is_not_promql_has_no_finding_but_promtools(tmp_path: Path) -> None:
    file = write(tmp_path, "nodevitals_rdma_port_up == 2 default 3")
    assert check([file], None) == []
    assert [one.id for one in check([file], str(PROMTOOL))] == ["promtool/check"]


def test_a_file_without_rules_is_found_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("group: []\n")
    assert check([tmp_path], None) == []
    (finding,) = check([tmp_path / "own.yaml"], None)
    assert finding.id == "file/missing"


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    done = run("rules", "check", str(SITE / "correct.yaml"), str(tmp_path / "none.yaml"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "none.yaml: no such file or folder" in done.stderr


def test_values_and_labels_of_a_whole_node_are_what_the_catalogue_says() -> None:
    """Findings rest on these ranges, and on labels that are never empty."""
    seen: set[str] = set()
    for line in (ROOT / "tests/data/golden.prom").read_text().splitlines():
        name = re.split("[{ ]", line)[0]
        value = line.rpartition(" ")[2]
        family = FAMILIES.get(name)
        if family is not None:
            assert family.certain <= set(re.findall(r'(\w+)="[^"]', line)), line
            if family.bounds is not None and value != "*":
                seen.add(name)
                assert True in family.bounds.results("==", float(value)), line
    assert len(seen) > 50
