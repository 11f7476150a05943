"""PromQL that several dashboards share: selectors of the variables, and joins.

A variable that is set to All has the value `.*`, which also matches series without the label.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER}, instance=~"$instance"'
POOL = f'nodevitals:node_pool{{{CLUSTER}, pool=~"$pool"}}'


def in_pool(expression: str) -> str:
    """Return the series of the nodes of the chosen pools; they need `cluster` and `instance`."""
    return f"({expression}) and on (cluster, instance) {POOL}"


def over_time(expression: str, legend: str = "__auto") -> prometheus.Dataquery:
    """Return a query over the dashboard's time range."""
    return prometheus.Dataquery().expr(expression).range().legend_format(legend)


def now(expression: str, legend: str = "__auto") -> prometheus.Dataquery:
    """Return a query of the current value."""
    return prometheus.Dataquery().expr(expression).instant().legend_format(legend)


def rows(expression: str) -> prometheus.Dataquery:
    """Return a query of current values whose labels are columns."""
    return prometheus.Dataquery().expr(expression).instant().format(PromQueryFormat.TABLE)
