"""`nodevitals init DIR`: write what a site needs, for this node and for its servers.

Ends with status 1 where hardware seems to be missing, or where an existing file differs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

import nodevitals
from nodevitals.commands.init import outputs
from nodevitals.commands.init.expected import Expected, expected_of
from nodevitals.commands.init.node import Node, read_node
from nodevitals.commands.init.outputs import Site
from nodevitals.commands.init.report import print_files, print_found, print_steps
from nodevitals.commands.init.writer import Folder
from nodevitals.commands.options import add_path_options, host_of
from nodevitals.commands.rules.site.checks import parse_values
from nodevitals.commands.rules.site.pack import read_pack
from nodevitals.commands.rules.site.rendering import render
from nodevitals.commands.rules.site.values_example import EXAMPLE
from nodevitals.commands.shipped import linked, shipped
from nodevitals.commands.terminal import CommandError, Subparsers, document_error
from nodevitals.document import DocumentError, read_file
from nodevitals.linux.host import node_name

PORT = 9855
# This drop-in is not copied: a person decides about the permissions that it grants.
HARDWARE_HEALTH = "nodevitals-hardware-health.conf"
_PACKAGED_UNIT = "/usr/lib/systemd/system/nodevitals.service"
VALUES = "rules-values.yaml"
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]{1,255}|\[[0-9A-Fa-f:.]{1,45}\]):[0-9]{1,5}")
_URL = re.compile(r"https?://[^\s\"'\\{}]+")


def add_to(commands: Subparsers) -> None:
    """Add `init` to the command line."""
    parser = commands.add_parser(
        "init",
        help="write configuration, unit, and the files of Prometheus, Alertmanager and Grafana",
        description="Write to DIR what a site needs: the agent's configuration and unit, the "
        "configuration of Prometheus and Alertmanager with the rules, and dashboards for Grafana. "
        "Files that exist are kept.",
    )
    add = parser.add_argument
    add("folder", metavar="DIR", help="where to write; made where it is missing")
    add(
        "--cluster",
        metavar="NAME",
        default="default",
        help="label `cluster` of all alerts (default: default)",
    )
    add(
        "--node",
        metavar="HOST:PORT",
        action="append",
        help="a node to scrape; repeatable (default: this node)",
    )
    add(
        "--prometheus",
        metavar="URL",
        default="http://127.0.0.1:9090",
        help="address of Prometheus (default: http://127.0.0.1:9090)",
    )
    add(
        "--alertmanager",
        metavar="HOST:PORT",
        default="127.0.0.1:9093",
        help="address of Alertmanager (default: 127.0.0.1:9093)",
    )
    add(
        "--webhook",
        metavar="URL",
        default="",
        help="where Alertmanager sends alerts (default: nowhere until a receiver is filled in)",
    )
    add(
        "--expected",
        choices=("auto", "none"),
        default="auto",
        help="auto: the configuration expects the GPUs, NPUs, ports, interfaces and mounts that "
        "this node has now; none: nothing (default: auto)",
    )
    add_path_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files; report what was found, what was written, and what to do next."""
    site = _site(options)
    with Folder(options.folder) as folder:
        values = _values(options.folder)
        servers = _server_files(site, values, os.path.join(options.folder, VALUES))
        node = _read_node(options) if options.expected == "auto" else None
        expected = expected_of(node) if node is not None else []
        command = agent_command()
        files = {**_agent_files(command, node, expected), VALUES: values, **servers}
        outcomes = folder.write({path: linked(text) for path, text in files.items()})
    print_found(expected)
    warnings = [warning for entry in expected for warning in entry.warnings] + _place_warnings(
        command
    )
    print_files(options.folder, outcomes, warnings)
    packaged = command == ["/usr/bin/nodevitals"] and os.path.exists(_PACKAGED_UNIT)
    print_steps(options.folder, site, packaged=packaged, groups=bool(node and node.groups))
    status = int(bool(warnings) or "differs" in outcomes.values())
    sys.stdout.flush()
    sys.stderr.flush()
    if node is not None:
        os._exit(status)  # the exit hooks would wait for a driver that does not return
    return status


def _read_node(options: argparse.Namespace) -> Node:
    print("Reading the hardware of this node; up to a minute where a driver does not answer.")
    sys.stdout.flush()
    return read_node(host_of(options))


def _site(options: argparse.Namespace) -> Site:
    """The site's choices. Raises CommandError with all that cannot be used."""
    nodes = [
        node if _has_port(node) else f"{node}:{PORT}" for node in options.node or [node_name()]
    ]
    wrong = [f"--node {node}: not HOST:PORT" for node in nodes if not _ADDRESS.fullmatch(node)]
    if not _ADDRESS.fullmatch(options.alertmanager):
        wrong.append(f"--alertmanager {options.alertmanager}: not HOST:PORT, such as am-1:9093")
    for name, url in (("--prometheus", options.prometheus), ("--webhook", options.webhook)):
        if url and not (url.isprintable() and _URL.fullmatch(url)):
            wrong.append(f"{name} {url}: not a URL, such as http://127.0.0.1:9090")
    if not options.cluster or not options.cluster.isprintable():
        wrong.append("--cluster: not a name")
    if wrong:
        raise CommandError("\n".join(wrong))
    return Site(
        cluster=options.cluster,
        nodes=tuple(nodes),
        prometheus=options.prometheus.rstrip("/"),
        alertmanager=options.alertmanager,
        webhook=options.webhook,
    )


def _has_port(address: str) -> bool:
    return re.search(r":[0-9]+$", address) is not None and not address.endswith("]")


def _values(folder: str) -> str:
    """The values file of an earlier run, which the site may have changed, or the shipped one."""
    path = os.path.join(folder, VALUES)
    if not os.path.lexists(path) or os.path.islink(path):
        return outputs.values((shipped("rules") / EXAMPLE).read_text(encoding="utf-8"))
    try:
        return read_file(path).decode("utf-8", "replace")
    except DocumentError as error:
        raise document_error(path, error) from None


def _agent_files(command: list[str], node: Node | None, expected: list[Expected]) -> dict[str, str]:
    packaging = shipped("packaging")
    example = (packaging / "nodevitals.example.yaml").read_text(encoding="utf-8")
    unit = (packaging / "nodevitals.service").read_text(encoding="utf-8")
    made = {
        "nodevitals.yaml": outputs.configuration(example, node, expected),
        "nodevitals.service": outputs.unit(unit, command),
        HARDWARE_HEALTH: (packaging / HARDWARE_HEALTH).read_text(encoding="utf-8"),
    }
    if node is not None and node.groups:
        made["nodevitals.service.d/groups.conf"] = outputs.groups_drop_in(node.groups)
    return made


def _server_files(site: Site, values: str, file: str) -> dict[str, str]:
    """The files of the servers; the values are those of `file`."""
    pack = read_pack(shipped("rules"))
    try:
        rules = render(pack, parse_values(values.encode(), pack), with_tests=False)
    except DocumentError as error:
        raise document_error(file, error) from None
    routes = shipped("alertmanager")
    folders = {
        "prometheus": {
            **outputs.prometheus(
                (shipped("packaging") / "prometheus.yaml").read_text(encoding="utf-8"), site
            ),
            **{f"rules/{name}": text for name, text in rules.items()},
        },
        "alertmanager": outputs.alertmanager(
            (routes / "minimal.yaml").read_text(encoding="utf-8"),
            (routes / "alertmanager.yaml").read_text(encoding="utf-8"),
            {
                path.name: path.read_text(encoding="utf-8")
                for path in sorted(routes.glob("templates/*.tmpl"))
            },
            site,
        ),
        "grafana": _grafana(site),
    }
    return {f"{top}/{name}": text for top, made in folders.items() for name, text in made.items()}


def _grafana(site: Site) -> dict[str, str]:
    dashboards, provisioning = shipped("dashboards"), shipped("provisioning")
    return outputs.grafana(
        {
            str(path.relative_to(dashboards)): path.read_text(encoding="utf-8")
            for path in sorted(dashboards.glob("*/*.json"))
        },
        (provisioning / "dashboards/nodevitals.yaml").read_text(encoding="utf-8"),
        (provisioning / "datasources/nodevitals.yaml").read_text(encoding="utf-8"),
        site,
    )


def agent_command() -> list[str]:
    """The command that starts this installation: the program as it was called, also by a link,
    otherwise the running Python.
    """
    called = shutil.which(sys.argv[0])
    if called and os.path.basename(called) == "nodevitals":
        return [os.path.abspath(called)]
    return [sys.executable, "-m", "nodevitals"]


def _place_warnings(command: list[str]) -> list[str]:
    package = Path(nodevitals.__file__).resolve().parent
    prefixes = [os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)]
    installed = any(package.is_relative_to(prefix) for prefix in prefixes)
    installed = installed or package.is_relative_to("/usr")
    program = os.path.realpath(command[0])
    return outputs.place_warnings([program, str(package), *prefixes], installed=installed)
