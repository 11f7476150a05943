"""What `nodevitals rules check` can find: stable ids, each documented in docs/rules-check.md."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

FindingId = Literal[
    "file/missing",
    "file/invalid",
    "metric/unknown",
    "label/unknown",
    "label/value",
    "label/job",
    "promql/value",
    "promql/counter",
    "promql/rate",
    "promql/join",
    "template/label",
    "promtool/check",
    "promtool/test",
    "silence/no-reason",
    "silence/unknown",
    "silence/unused",
    "label/missing",
    "label/template",
    "severity/unknown",
    "annotation/missing",
    "runbook/missing",
    "test/missing",
    "threshold/unlisted",
    "promql/prometheus3",
]
IDS: tuple[FindingId, ...] = get_args(FindingId)
# Only --strict searches these.
STRICT_IDS = IDS[IDS.index("label/missing") :]
REMEDIES: dict[FindingId, str] = {
    "file/missing": "name the folder or the files that contain the rules",
    "file/invalid": "correct the file there",
    "metric/unknown": "correct the name (`nodevitals metrics` lists them), or check the file that "
    "records it as well",
    "label/unknown": "use a label of the metric (`nodevitals metrics`); where the scrape job adds "
    "it: --label NAME",
    "label/value": "use a value of the list (`nodevitals metrics`)",
    "label/job": "correct the job; where the agents' scrape job has another name: --job NAME",
    "promql/value": "compare with a value that occurs",
    "promql/counter": "compare what was added in some time: increase(…[15m])",
    "promql/rate": "counters: rate, increase; gauges: delta, deriv, avg_over_time",
    "promql/join": "match by labels that both sides have: on (cluster, instance); where the scrape "
    "job adds it: --label NAME",
    "template/label": "use a label of the result, or keep it in the expression: by, on, group_left",
    "promtool/check": "correct the rule; promtool check rules FILE prints everything",
    "promtool/test": "correct the rule or the test; promtool test rules FILE prints everything",
    "silence/no-reason": "write the reason after a colon",
    "silence/unknown": "correct the id",
    "silence/unused": "delete the comment, or move it to the rule",
    "label/missing": "add the label, or alert on a recorded fault",
    "label/template": "move the value to an annotation",
    "severity/unknown": "use one of the four",
    "annotation/missing": "write the annotation",
    "runbook/missing": "correct the URL, or write the page",
    "test/missing": "add the test to tests/",
    "threshold/unlisted": "add it to the alert ThresholdMissing",
    "promql/prometheus3": "write what has the same meaning on both",
}


class Finding(msgspec.Struct, frozen=True, order=True):
    """One defect: its file, line (0: the whole file), id, rule ('': none) and a message."""

    file: str
    line: int
    id: FindingId
    rule: str
    message: str

    @property
    def place(self) -> str:
        """`FILE:LINE`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def remedy(self) -> str:
        """What to do."""
        return REMEDIES[self.id]

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.id, self.rule, self.message) if part)
