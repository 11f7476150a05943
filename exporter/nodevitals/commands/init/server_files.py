"""The files of Prometheus, Alertmanager and Grafana: the shipped ones and the site's choices in,
texts by path out. Pure.

For Debian's packages: both servers read /etc/prometheus, and paths in the files are relative to it.
"""

from __future__ import annotations

import msgspec

from nodevitals.commands.init.spelling import quoted

_SHIPPED_CLUSTER = "external_labels: {cluster: example}"
_SHIPPED_MANAGER = '"127.0.0.1:9093"'
_SHIPPED_TARGETS = """\
    static_configs:
      - targets: [gpu-node-1:9855, gpu-node-2:9855]
"""
_TARGETS = "    file_sd_configs: [{files: [targets/nodevitals.yml]}]\n"
_SHIPPED_SERVER = '"localhost:9090"'
_MANAGERS_JOB = """
  # For the dashboard of the monitoring itself.
  - job_name: alertmanager
    static_configs: [{targets: [ALERTMANAGER]}]
"""
_SHIPPED_WEBHOOK = """\
    #webhook_configs:
    #  - url: http://webhook.example.com/alerts
"""
_SHIPPED_SILENCE = """\
# Nothing is sent until the receiver `operators` is filled in, at the end of this file: remove the #
# before the lines of the mail or of the webhook, and replace the addresses. Until then, alerts are
# only shown in Alertmanager. Check the result with: amtool check-config FILE
"""
_SENT = """\
# Alerts are sent to the webhook of the receiver `operators`, at the end of this file. For a mail,
# remove the # before its lines. Check the result with: amtool check-config FILE
"""
_VALUES_HEAD = "# Values of a site for `nodevitals rules render --values FILE --output FOLDER`.\n"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The site's choices; `nodes` are the agents' addresses, HOST:PORT."""

    cluster: str
    nodes: tuple[str, ...]
    prometheus: str = "http://127.0.0.1:9090"
    alertmanager: str = "127.0.0.1:9093"
    webhook: str = ""


def _replaced(text: str, old: str, new: str) -> str:
    """The text with another value. A shipped file that has changed must fail a test."""
    assert text.count(old) == 1, f"not once in a shipped file: {old!r}"
    return text.replace(old, new)


def prometheus(shipped: str, site: Site) -> dict[str, str]:
    """prometheus.yml and the list of the nodes; the rules are rendered by `rules render`."""
    text = _replaced(
        shipped, _SHIPPED_CLUSTER, f"external_labels: {{cluster: {quoted(site.cluster)}}}"
    )
    text = _replaced(text, _SHIPPED_MANAGER, quoted(site.alertmanager))
    text = _replaced(text, _SHIPPED_TARGETS, _TARGETS)
    server = site.prometheus.partition("://")[2].partition("/")[0]
    server = server if ":" in server else "127.0.0.1:9090"
    text = _replaced(text, _SHIPPED_SERVER, quoted(server))
    text += _MANAGERS_JOB.replace("ALERTMANAGER", quoted(site.alertmanager))
    targets = "".join(f"    - {quoted(node)}\n" for node in site.nodes)
    head = "# The nodes with an agent, as HOST:PORT. Prometheus reads changes by itself.\n"
    return {"prometheus.yml": text, "targets/nodevitals.yml": f"{head}- targets:\n{targets}"}


def values(example: str) -> str:
    """rules-values.yaml: the example of the values, as shipped."""
    head = (
        "# The site's choices about the rules. After a change, in this folder:\n"
        "#   nodevitals rules render --values rules-values.yaml --output prometheus/rules\n"
    )
    return _replaced(example, _VALUES_HEAD, head)


def alertmanager(minimal: str, full: str, templates: dict[str, str], site: Site) -> dict[str, str]:
    """alertmanager.yml with one receiver, alertmanager-full.yml, and the templates of both."""
    if site.webhook:
        filled = f"    webhook_configs:\n      - url: {quoted(site.webhook)}\n"
        minimal = _replaced(minimal, _SHIPPED_WEBHOOK, filled)
        minimal = _replaced(minimal, _SHIPPED_SILENCE, _SENT)
    minimal = minimal.replace("alertmanager.yaml", "alertmanager-full.yml")
    full = full.replace("minimal.yaml", "alertmanager.yml")
    made = {"alertmanager.yml": minimal, "alertmanager-full.yml": full}
    return made | {f"templates/{name}": text for name, text in templates.items()}


def grafana(dashboards: dict[str, str], provider: str, sources: str, site: Site) -> dict[str, str]:
    """The dashboards by LANGUAGE/NAME, and the provisioning that finds them in /etc/grafana."""
    provider = provider.replace("/nodevitals/dashboards/json/", "/etc/grafana/dashboards/")
    provider = _replaced(
        provider,
        "# Dashboards. Copy this file to /etc/grafana/provisioning/dashboards, and the folder json"
        " to the\n"
        "# path below; Grafana then reads new and changed files by itself.\n",
        "# Dashboards. Grafana reads new and changed files in the paths below by itself.\n",
    )
    sources = _replaced(sources, "url: http://prometheus:9090", f"url: {quoted(site.prometheus)}")
    manager = quoted(f"http://{site.alertmanager}")
    sources = _replaced(sources, "url: http://alertmanager:9093", f"url: {manager}")
    return {
        **{f"dashboards/{path}": text for path, text in dashboards.items()},
        "provisioning/dashboards/nodevitals.yaml": provider,
        "provisioning/datasources/nodevitals.yaml": sources,
    }
