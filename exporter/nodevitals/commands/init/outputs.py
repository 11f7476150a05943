"""The texts that `init` writes, from the shipped files, the hardware and the site's choices.

No I/O. The texts suit Debian's packages: Prometheus and Alertmanager read /etc/prometheus, and
paths in the files are relative to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from nodevitals.commands.init.expected import Expected, quoted
from nodevitals.commands.init.node import Node

_EXEC_START = "ExecStart=/usr/bin/nodevitals serve "
_INSTALL_NOTE = "# /usr/lib/systemd/system/nodevitals.service of the packages; without one, "
# Paths that the unit hides from the agent.
HIDDEN = ("/root", "/run/user")
OF_USERS = "/home"
_UNQUOTED = re.compile(r"[A-Za-z0-9_@+./:=,-]+")


def configuration(example: str, node: Node | None, expected: Iterable[Expected]) -> str:
    """nodevitals.yaml: the example configuration with what is expected of this node."""
    if node is None:
        return example
    head = (
        f"# What is expected is what `nodevitals init` found on {node.name}, {node.date}: use this "
        "file\n# on nodes of the same hardware, and run it again on others.\n#\n"
    )
    first, _, rest = example.partition("\n")
    return f"{first}\n{head}{_with_expected(rest, {entry.probe: entry for entry in expected})}"


def _with_expected(example: str, expected: dict[str, Expected]) -> str:
    """The example configuration with these keys set, each in the section of its probe."""
    lines, made = example.split("\n"), []
    probe = ""
    for line in lines:
        section = re.fullmatch(r"  ([a-z_]+):", line)
        probe = section[1] if section else probe
        entry = expected.get(probe)
        if entry is None or not line.startswith(f"    #{entry.key}:"):
            made.append(line)
        elif entry.lines:
            made += [f"    {text}" for text in entry.lines]
        else:
            made += [f"    # {entry.remark}".rstrip(), line]
    return "\n".join(made)


def unit(shipped: str, command: Sequence[str]) -> str:
    """nodevitals.service that starts this command."""
    assert _EXEC_START in shipped
    words = " ".join(map(_unit_word, command))
    text = shipped.replace(_EXEC_START, f"ExecStart={words} serve ")
    return text.replace(_INSTALL_NOTE, "# Place: ")


def _unit_word(word: str) -> str:
    """A word of ExecStart, systemd.service(5)."""
    word = word.replace("%", "%%")
    if _UNQUOTED.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def groups_drop_in(groups: Sequence[str]) -> str:
    """The drop-in that lets the agent use the devices and sockets of these groups."""
    return (
        "# For /dev/davinci* (HwHiAiUser) and the socket of lldpd, where these groups exist.\n"
        f"[Service]\nSupplementaryGroups={' '.join(groups)}\n"
    )


def place_warnings(places: Iterable[str], *, installed: bool) -> list[str]:
    """Why a unit cannot or should not start programs at these resolved paths."""
    places = set(places)
    warnings = []
    remedy = "install it elsewhere: PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install …"
    if not installed:
        warnings.append(f"nodevitals runs from a checkout; the unit cannot find it: {remedy}")
    for path in sorted(place for place in places if not _below(place, places - {place})):
        if _below(path, HIDDEN):
            warnings.append(f"the unit hides {path} from the agent, which cannot start: {remedy}")
        elif _below(path, (OF_USERS,)):
            warnings.append(f"a user may change {path}, which the unit runs as root: {remedy}")
    return warnings


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(os.path.commonpath((path, folder)) == folder for folder in folders)


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
# before the lines of mail, Slack or the webhook, and replace the addresses. Until then, alerts are
# only shown in Alertmanager. Check the result with: amtool check-config FILE
"""
_SENT = """\
# Alerts are sent to the webhook of the receiver `operators`, at the end of this file. For mail or
# Slack, remove the # before its lines. Check the result with: amtool check-config FILE
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
    """The text with `old` replaced. A shipped file without `old` must fail a test."""
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
