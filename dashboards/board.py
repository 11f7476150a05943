"""A dashboard: its variables, links, annotations and rows of panels, as JSON for Grafana."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.job_queries import VARIABLES as OF_JOBS
from dashboards.language import Say
from dashboards.queries import CLUSTER, DATASOURCE, NODE

Row = tuple[str, Sequence[Builder[Panel]]]
"""Title and panels; an empty title has no row of its own."""

# Name: title, query of the values, and whether several may be chosen.
VARIABLES: dict[str, tuple[tuple[str, str], str, bool]] = {
    "cluster": (("Cluster", "集群"), "label_values(nodevitals:node_pool, cluster)", True),
    "pool": (("Pool", "资源池"), f"label_values(nodevitals:node_pool{{{CLUSTER}}}, pool)", True),
    "instance": (
        ("Node", "节点"),
        f'label_values(nodevitals:node_pool{{{CLUSTER}, pool=~"$pool"}}, instance)',
        True,
    ),
    "vendor": (
        ("Vendor", "厂商"),
        f"label_values(nodevitals_accelerators_present{{{NODE}}}, vendor)",
        True,
    ),
    "leaf": (
        ("Leaf", "Leaf"),
        f'label_values(nodevitals:node_domains{{{CLUSTER}, pool=~"$pool"}}, leaf)',
        True,
    ),
    "tool": (
        ("Tool", "工具"),
        f"label_values(nodevitals:fabric_runs:rate10m{{{CLUSTER}}}, tool)",
        True,
    ),
    "operation": (
        ("Operation", "操作"),
        f'label_values(nodevitals:fabric_runs:rate10m{{{CLUSTER}, tool=~"$tool"}}, operation)',
        True,
    ),
    "device": (
        ("Device", "设备"),
        f'label_values(nodevitals_accelerator_up{{{NODE}, vendor=~"$vendor"}}, device)',
        True,
    ),
    "hub": (
        ("Hub", "检测服务"),
        f"label_values(nodevitals_hub_address_info{{{CLUSTER}}}, url)",
        False,
    ),
    # Its name in the labels source and peer of the fabric tests, whose series are many.
    "fabric_name": (
        ("Name on the fabric", "互联名称"),
        f"label_values(nodevitals:fabric_name{{{NODE}}}, name)",
        False,
    ),
    **OF_JOBS,
}


class _Alerts(AnnotationQuery):
    """An annotation with the texts that Grafana's Prometheus data source reads; the SDK's schema
    lacks them.
    """

    def to_json(self) -> dict[str, object]:
        return {
            **super().to_json(),
            "titleFormat": "{{alertname}}",
            "textFormat": "{{severity}}: {{component}} {{instance}} {{domain_name}}",
            "step": "60s",
        }


class Board:
    """A dashboard to be filled. `name` is the end of its uid and the name of its file."""

    def __init__(
        self,
        say: Say,
        name: str,
        title: tuple[str, str],
        description: tuple[str, str],
        variables: Sequence[str],
        since: str = "now-6h",
        refresh: str = "1m",
        single: Sequence[str] = (),
        hidden: Sequence[str] = (),
        check: str = "",
    ) -> None:
        """`single`: the variables of which one value is chosen, and no All. `hidden`: those that
        follow from others. `check`: path of the hub with the form of a check of what is shown.
        """
        if check:
            variables, single, hidden = [*variables, "hub"], [*single, "hub"], [*hidden, "hub"]
        self.say = say
        self.name = name
        self.uid = uid(say, name)
        self._builder = (
            dashboard.Dashboard(say("nodevitals / ", "nodevitals / ") + say(*title))
            .uid(self.uid)
            .description(say(*description))
            .tags(["nodevitals", say.language])
            .readonly()
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .time(since, "now")
            .refresh(refresh)
            .timezone("browser")
            .variables(
                [
                    _datasource(say),
                    *(variable(say, one, one in single, one in hidden) for one in variables),
                ]
            )
            .links([_menu(say), *([_check(say, check)] if check else [])])
        )

    def alerts(self, selector: str) -> None:
        """Mark the times of alerts; `selector` has the label matchers that restrict them."""
        mark = _Alerts(
            name=self.say("Alerts", "告警"),
            datasource=DATASOURCE,
            enable=True,
            icon_color="red",
            expr=f'ALERTS{{alertstate="firing", {selector}}}',
        )
        self._builder.annotations([_Built(mark)])

    def rows(self, *rows: Row) -> Board:
        """Add rows of panels."""
        for title, panels in rows:
            if title:
                self._builder.with_row(dashboard.Row(title))
            for panel in panels:
                self._builder.with_panel(panel)
        return self

    def json(self) -> str:
        """Return the file's content. Panels have numbers from 1 on. It has no spaces: Helm keeps
        the whole chart in one Secret of at most 1 MiB.
        """
        made = self._builder.build()
        for number, panel in enumerate(made.panels or (), 1):
            panel.id_val = number
        text = json.dumps(
            made, cls=JSONEncoder, separators=(",", ":"), ensure_ascii=False, sort_keys=True
        )
        return text + "\n"


class _Built(Builder[AnnotationQuery]):
    """An annotation that is complete."""

    def __init__(self, made: AnnotationQuery) -> None:
        self._made = made

    def build(self) -> AnnotationQuery:
        return self._made


def uid(say: Say, name: str) -> str:
    """Return the uid of a dashboard, which links to it contain."""
    return f"nodevitals-{name}" + ("" if say.language == "en" else f"-{say.language}")


def link_to(say: Say, name: str, title: str, **variables: str) -> tuple[str, str]:
    """Return a link from a row of a table to another dashboard. It keeps time, data source and
    cluster; `variables` get the values of the row's columns.
    """
    chosen = "".join(
        f'&var-{key}=${{__data.fields["{field}"]:percentencode}}'
        for key, field in variables.items()
    )
    kept = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
    return title, f"/d/{uid(say, name)}?{kept}{chosen}"


def link_here(say: Say, name: str, title: str) -> tuple[str, str]:
    """Return a link from a panel of one node to another dashboard with that node."""
    kept = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
    return title, f"/d/{uid(say, name)}?{kept}&${{instance:queryparam}}"


def _menu(say: Say) -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink(say("Dashboards", "仪表盘"))
        .type(DashboardLinkType.DASHBOARDS)
        .tags(["nodevitals", say.language])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _check(say: Say, path: str) -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink(say("Start a check", "发起检测"))
        .type(DashboardLinkType.LINK)
        .url(f"${{hub}}{path}")
        .icon("bolt")
        .tooltip(
            say(
                "The form of a check on the hub, filled in. Needs a hub that is scraped and has an "
                "external_url.",
                "打开检测服务的表单，参数已填好。需要已采集检测服务，且其设置了 external_url。",
            )
        )
        .target_blank(True)
    )


def _datasource(say: Say) -> dashboard.DatasourceVariable:
    return (
        dashboard.DatasourceVariable("datasource")
        .label(say("Data source", "数据源"))
        .type("prometheus")
    )


def variable(
    say: Say, name: str, single: bool = False, hidden: bool = False
) -> dashboard.QueryVariable:
    """Return one of VARIABLES."""
    title, query, multi = VARIABLES[name]
    made = (
        dashboard.QueryVariable(name)
        .label(say(*title))
        .query(_query(name, query))
        .datasource(DATASOURCE)
        .multi(multi and not single)
        .include_all(not single)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.NATURAL_ASC)
    )
    if hidden:
        made.hide(VariableHide.HIDE_VARIABLE)
    if single:
        return made
    if name == "job_nodes":  # a link has each of them, not an expression
        return made.current(_every(say))
    return made.all_value(".*").current(_every(say))


def _every(say: Say) -> VariableOption:
    return VariableOption(selected=True, text=say("All", "全部"), value="$__all")


def _query(name: str, query: str) -> dict[str, Any]:
    return {"query": query, "refId": f"variable-{name}", "qryType": 1}
