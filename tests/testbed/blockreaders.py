"""What reads each kind of YAML in the pages.

In: a document and its text. Out: nothing, an error where it is refused, or SYNTAX where the reader
is no part of the project.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import msgspec
import yaml
from helm.crd import crd
from tools import registry

from nodevitals import config, probes
from nodevitals.document import Problem, convert
from nodevitals.probes.profile.document import parse_profile
from nodevitals.web_config import WebSettings
from nodevitals_hub import service
from nodevitals_hub.web.access import Token
from testbed import charts
from testbed.node import ROOT
from testbed.servers import BINARIES

READ, SYNTAX = "read by its reader in make test", "syntax only"


class RefusedError(Exception):
    """The reader of a block refuses it."""


def values(document: Any) -> str:
    """The chart checks them by its schema, together with its own, and renders them."""
    charts.render(document)
    return READ


def _keys(*names: str) -> Callable[[Any], bool]:
    """Whether a document is a mapping, or a list of mappings, with these keys."""

    def accepts(document: Any) -> bool:
        first = document[0] if isinstance(document, list) and document else document
        return isinstance(first, Mapping) and set(names) <= set(first)

    return accepts


def _struct(kind: type[Any]) -> Callable[[Any, str], str | None]:
    def read(document: Any, _text: str) -> None:
        for one in document if isinstance(document, list) else [document]:
            problems: list[Problem] = []
            convert(one, kind, "", problems)
            if problems:
                raise RefusedError(str(problems))

    return read


def _profile(_document: Any, text: str) -> None:
    parse_profile(text.encode())


def _token(document: Any, _text: str) -> None:
    """The pages shorten the sum with an ellipsis."""
    _struct(Token)([{**one, "sha256": "0" * 64} for one in document], "")


def _agent(_document: Any, text: str) -> None:
    config.parse(text.encode(), probes.registered())


def hub(page: str, text: str) -> str:
    """With the presets of the page; a command stands in for a manifest, another of its blocks."""
    text = re.sub(r"(?m)^( *)manifest_file:.*$", r"\1command: [/bin/true]", text)
    if "preset: " in text and "presets:" not in text:
        text += re.findall(r"(?m)^presets:\n(?: .*\n)+", (ROOT / page).read_text())[0]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_text(text)
        service.load(file.name)
    return READ


def _section_of_agents(document: Any, _text: str) -> None:
    needed = {"token_file": "/t", "tls": {"cert_file": "/c", "key_file": "/k", "ca_file": "/a"}}
    hub("", yaml.safe_dump({"agents": {**needed, **document}}))


def _tool(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(BINARIES / program), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RefusedError(done.stdout + done.stderr)


def _prometheus(document: Any, _text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prometheus.yaml")
        whole = {"scrape_configs": document} if isinstance(document, list) else document
        file.write_text(yaml.safe_dump(whole))
        _tool("promtool", "check", "config", "--syntax-only", str(file))


def _part_of_a_job(document: Any, text: str) -> None:
    _prometheus([{"job_name": "j", **document}], text)


def _targets(document: Any, _text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "targets.yml").write_text(yaml.safe_dump(document))
        job = {"job_name": "j", "file_sd_configs": [{"files": ["targets.yml"]}]}
        Path(folder, "p.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
        _tool("promtool", "check", "config", f"{folder}/p.yaml")


def _alertmanager(document: Any, _text: str) -> None:
    receivers = document.get("receivers") or []
    route = {"receiver": receivers[0]["name"], **document["route"]} if receivers else None
    whole = {**document, "route": route or document["route"]}
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_text(yaml.safe_dump(whole))
        _tool("amtool", "check-config", file.name)


def _rules(document: Any, _text: str) -> None:
    groups = document if "groups" in document else {"groups": [{"name": "g", "rules": document}]}
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_text(yaml.safe_dump(groups))
        _tool("promtool", "check", "rules", file.name)


def _faults(document: Any, _text: str) -> None:
    for one in document:
        msgspec.convert(one, registry.Fault)


def _kubernetes(document: Any, _text: str) -> str:
    if document["apiVersion"].startswith("nodevitals.io/"):
        [version] = yaml.safe_load(crd())["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        jsonschema.Draft4Validator(schema).validate(document["spec"])
        return READ
    named = {**document, "metadata": {"name": "n", **document["metadata"]}}
    if "medik8s.io" in document["apiVersion"]:
        return SYNTAX  # the resource of another project
    kubernetes_validate.validate(named, "1.27", strict=True)
    return READ


def _policy(document: Any, _text: str) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", **document}
    kubernetes_validate.validate({**role, "metadata": {"name": "n"}}, "1.27", strict=True)


def _role(document: Any) -> bool:
    return _keys("rules")(document) and "apiGroups" in document["rules"][0]


# The first that accepts a document reads it.
READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], str | None]], ...] = (
    (_keys("apiVersion", "kind"), _kubernetes),
    (_role, _policy),
    (_keys("job_name"), _prometheus),
    (_keys("scrape_configs"), _prometheus),
    (_keys("targets"), _targets),
    (_keys("route", "receivers"), _alertmanager),
    (_keys("fault", "alert"), _faults),
    (_keys("groups"), _rules),
    (_keys("alert", "expr"), _rules),
    (_keys("record", "expr"), _rules),
    (_keys("name", "expect"), _profile),
    (_keys("metrics_scheme"), _section_of_agents),
    (_keys("basic_auth_users"), _struct(WebSettings)),
    (_keys("role", "sha256"), _token),
    (_keys("file_sd_configs"), _part_of_a_job),
    (_keys("monitor"), lambda document, _text: values(document)),
    (_keys("probes"), _agent),
)
