"""Plans what a repair starts: an object, or the words of a command, with the isolation's values.

In: settings, files, an isolation and its faults. Out: an object or an argv; or every problem of a
file; or RepairError. Values are inserted after the file was parsed, each into one text or one word:
a value adds no key, no word and no object. It has no character that a shell interprets, and does
not begin as an option does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodevitals.document import DocumentError, Problem, meant, parse_yaml, read_file
from nodevitals_hub.isolation.schedulers.kubernetes_objects import REPAIR
from nodevitals_hub.isolation.schedulers.schedulers import reason_of
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.repair.repair_records import Target
from nodevitals_hub.settings.repairs import RepairSettings

PLACEHOLDERS = (
    *("node", "device_id", "device_ids", "fault", "action", "reason"),
    *("pool", "cluster", "isolation", "repair"),
)
MAX_REASON = 200
# `${name}` is a shell variable and `{{name}}` belongs to other templates: neither is a placeholder.
_PLACEHOLDER = re.compile(r"(?<![${])\{([A-Za-z][A-Za-z0-9_-]*)\}(?!\})")
_VALUE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._:/@+-]{0,252}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:/@+_-]")
_GROUP = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_VERSION = re.compile(r"v[0-9][a-z0-9]{0,30}\Z")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}\Z")
_RESOURCE = re.compile(r"[a-z][a-z0-9]{0,62}\Z")
# The pods of a Job have its name as a label value.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?\Z")
_NAMESPACED = ("Job", "Pod", "CronJob", "ConfigMap", "Deployment", "DaemonSet")


class RepairError(Exception):
    """A repair cannot be started; the text is the reason in one line."""


class FileError(RepairError):
    """The file with an object cannot be used now."""


class Planned(NamedTuple):
    """What a repair starts: the words of a command, or an object and its Target."""

    command: tuple[str, ...] = ()
    target: Target | None = None
    document: Mapping[str, Any] = {}


def file_problems(repairs: Sequence[RepairSettings], path: str) -> Iterator[Problem]:
    """The problems of the files and commands of repairs; `path` is the path of their list."""
    for number, repair in enumerate(repairs):
        place = f"{path}[{number}]"
        for index, word in enumerate(repair.command):
            for text in _unknown(word):
                yield Problem(f"{place}.command[{index}]", text)
        if repair.command and _PLACEHOLDER.search(repair.command[0]):
            yield Problem(f"{place}.command[0]", "the program is not replaced: write its path")
        if repair.manifest_file is not None:
            template, wrong = _manifest(repair.manifest_file)
            wrong = wrong or list(_wrong(template, repair))
            for problem in wrong:
                text = problem.within(repair.manifest_file)
                yield Problem(f"{place}.manifest_file", text)


def planned(settings: RepairSettings, values: Mapping[str, str], identity: str) -> Planned:
    """What a repair starts. Raises RepairError."""
    if settings.manifest_file is None:
        words = enumerate(settings.command)
        return Planned(tuple(_text(word, values, f"command[{index}]") for index, word in words))
    template, wrong = _manifest(settings.manifest_file)
    wrong = wrong or list(_wrong(template, settings))
    if wrong:
        raise FileError(wrong[0].within(settings.manifest_file))
    return _object_of(template, settings, values, identity)


def values_of(
    isolation: Isolation, faults: Sequence[Fault], identity: str, cluster: str
) -> dict[str, str]:
    """The values of the placeholders; "" where there is none."""
    first = faults[0]
    devices = list(dict.fromkeys(fault.device_id for fault in faults if fault.device_id))
    return {
        "node": isolation.node,
        "device_id": first.device_id,
        "device_ids": ",".join(devices),
        "fault": first.fault,
        "action": first.action,
        "reason": _UNSAFE.sub("_", reason_of(isolation))[:MAX_REASON].strip(" -") or "_",
        "pool": isolation.pool,
        "cluster": cluster,
        "isolation": isolation.id,
        "repair": identity,
    }


def identity_of(isolation: Isolation, settings: RepairSettings) -> str:
    """The id of a repair: equal for an equal isolation and entry."""
    return f"{isolation.id}-{settings.name}"


def _object_of(
    template: dict[str, Any], settings: RepairSettings, values: Mapping[str, str], identity: str
) -> Planned:
    document: dict[str, Any] = _replaced(template, values, "")
    metadata = document["metadata"] = dict(document.get("metadata") or {})
    metadata.setdefault("name", identity)
    metadata["labels"] = {**(metadata.get("labels") or {}), REPAIR: identity}
    pods = (document.get("spec") or {}).get("template")
    if document["kind"] == "Job" and isinstance(pods, dict):  # a drain leaves these pods
        own = dict(pods.get("metadata") or {})
        own["labels"] = {**(own.get("labels") or {}), REPAIR: identity}
        document["spec"] = {**document["spec"], "template": {**pods, "metadata": own}}
    if not _NAME.match(metadata["name"]):
        raise RepairError(f"metadata.name: {metadata['name'][:60]!a} is no name of an object")
    target = Target(
        api_version=document["apiVersion"],
        kind=document["kind"],
        resource=settings.resource or f"{document['kind'].lower()}s",
        namespace=str(metadata.get("namespace") or ""),
        name=metadata["name"],
    )
    return Planned(target=target, document=document)


def _replaced(value: Any, values: Mapping[str, str], place: str) -> Any:
    """A copy with the placeholders in its texts replaced; keys are not changed."""
    if isinstance(value, str):
        return _text(value, values, place)
    if isinstance(value, dict):
        return {
            key: _replaced(part, values, f"{place}.{key}" if place else str(key))
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_replaced(part, values, f"{place}[{n}]") for n, part in enumerate(value)]
    return value


def _text(text: str, values: Mapping[str, str], place: str) -> str:
    return _PLACEHOLDER.sub(lambda match: _value(match[1], values, place), text)


def _value(name: str, values: Mapping[str, str], place: str) -> str:
    value = values[name]
    if not value:
        raise RepairError(f"{place}: {{{name}}} has no value here")
    check: Callable[[str], re.Match[str] | None] = _VALUE.match
    parts = value.split(",") if name == "device_ids" else [value]
    if name != "reason" and not all(map(check, parts)):
        raise RepairError(f"{place}: {{{name}}} is {value[:60]!a}: not given to a repair")
    return value


def _manifest(path: str) -> tuple[Any, list[Problem]]:
    try:
        return parse_yaml(read_file(path)), []
    except DocumentError as error:
        return None, list(error.problems)


def _wrong(document: Any, settings: RepairSettings) -> Iterator[Problem]:
    """The problems of an object."""
    if not isinstance(document, dict):
        yield Problem("", "not one object: write apiVersion, kind, metadata and spec")
        return
    api_version, kind = document.get("apiVersion"), document.get("kind")
    group, slash, version = str(api_version or "").rpartition("/")
    if not _VERSION.match(version) or (slash and not _GROUP.match(group)):
        yield Problem("apiVersion", "missing, or not GROUP/VERSION")
    if not isinstance(kind, str) or not _KIND.match(kind) or kind == "List":
        yield Problem("kind", "missing, or not the kind of one object")
    elif not _RESOURCE.match(settings.resource or f"{kind.lower()}s"):
        yield Problem("kind", f"{settings.resource!a} is no resource: correct `resource`")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        yield Problem("metadata", "not a mapping")
        return
    namespace = metadata.get("namespace")
    if namespace is None and kind in _NAMESPACED:
        yield Problem("metadata.namespace", f"missing: a {kind} is in a namespace")
    if namespace is not None and not (isinstance(namespace, str) and _GROUP.match(namespace)):
        yield Problem("metadata.namespace", "not the name of a namespace, which is not replaced")
    if "generateName" in metadata:
        yield Problem("metadata.generateName", "would be created twice: remove it")
    if not isinstance(metadata.get("name", ""), str):
        yield Problem("metadata.name", "not a text")
    pods = document["spec"].get("template") if isinstance(document.get("spec"), dict) else None
    if isinstance(pods, dict) and not isinstance(pods.get("metadata") or {}, dict):
        yield Problem("spec.template.metadata", "not a mapping")
    for part in ("labels", "annotations"):
        if not isinstance(metadata.get(part) or {}, dict):
            yield Problem(f"metadata.{part}", "not a mapping")
    if not isinstance(document.get("spec") or {}, dict):
        yield Problem("spec", "not a mapping")
    yield from _unknown_in(document, "")


def _unknown_in(value: Any, place: str) -> Iterator[Problem]:
    if isinstance(value, str):
        for text in _unknown(value):
            yield Problem(place, text)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                yield Problem(place, f"the key {key!a} is no text: put it in quotes")
            yield from _unknown_in(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _unknown_in(part, f"{place}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(place, "not a number that JSON has")
    elif value is not None and not isinstance(value, (bool, int, float)):
        yield Problem(place, f"{str(value)[:40]!a} is no text in YAML: put it in quotes")


def _unknown(text: str) -> Iterator[str]:
    for match in _PLACEHOLDER.finditer(text):
        if match[1] not in PLACEHOLDERS:
            yield f"{{{match[1]}}} is no placeholder{meant(match[1], PLACEHOLDERS)}"
