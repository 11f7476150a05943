"""The example of the values file: its keys, and every threshold and alert with what is shipped.

`make generate` writes it to rules/examples/.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodevitals.commands.generated.example import fields_of, key_lines
from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults, severities
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.pools import pool_problem
from nodevitals.commands.rules.site.values import Values

EXAMPLE = "examples/values.example.yaml"
HEAD = """\
# Values of a site for `nodevitals rules render --values FILE --output FOLDER`.
#
# Every key is optional, an unknown key is an error. Remove the # before a key to set it. The values
# shown are the defaults or, where there is none, examples. Durations: 500ms, 30s, 5m, 1h, 1d.
"""


def example_values(pack: Pack) -> str:
    """The whole file."""
    lines = [HEAD]
    for field in fields_of(Values):
        lines += [*key_lines(field, ""), ""]
    lines += [*_thresholds(pack), "#", *_alerts(pack)]
    return "\n".join(lines) + "\n"


def _thresholds(pack: Pack) -> Iterator[str]:
    yield "# Thresholds as shipped; (pool): can differ by pool."
    for name, rule in pack.thresholds.items():
        mark = "" if pool_problem(name, pack.rules) else " (pool)"
        value = rule.expression.strip().removeprefix("vector(").removesuffix(")")
        yield f"#   {name}: {value}{mark}"


def _alerts(pack: Pack) -> Iterator[str]:
    yield "# Alerts as shipped: severity, wait, keep_firing_for."
    faults = recorded_faults(pack.rules)
    rows = {
        (
            rule.name,
            " or ".join(
                severity or "as its fault" for severity in severities(label_sets(rule, faults))
            ),
            rule.wait or "0s",
            rule.keep_firing_for or "0s",
        )
        for rule in pack.alerts
    }
    for name, *cells in sorted(rows):
        yield f"#   {name}: {', '.join(cells)}"
