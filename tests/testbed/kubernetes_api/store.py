"""Objects of any kind: versions, conflicts, merge patches, lists and watches.

In: objects. Out: objects with uid and resourceVersion. A patch with an older resourceVersion is a
conflict (409), one with the uid of another object is invalid (422); a real API server accepts one
without both, so what a client of ours has to send is `Kind.needs`.
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from testbed.kubernetes_api.answers import Object, RefusedError

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True)
class Kind:
    """A kind that is installed."""

    version: str
    """With its group, where it has one."""
    name: str
    plural: str
    namespaced: bool = True
    needs: tuple[str, ...] = ()
    """Metadata without which a merge patch would lose the change of another client."""
    is_selected: bool = False
    """Whether each list has to have a selector: the cluster has too many of them for one."""
    status: jsonschema.protocols.Validator | None = None
    """The schema of the status."""

    @property
    def resource(self) -> str:
        """As kubectl names it: `nodes`, `jobs.batch`."""
        return resource_of(self.version.rpartition("/")[0], self.plural)

    @property
    def path(self) -> str:
        """The path of its group and version."""
        return f"/api{'s' if '/' in self.version else ''}/{self.version}"


class Store:
    """All objects by resource, then by `namespace/name`, or name where there is no namespace."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 100
        self.objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self.made: dict[str, list[Object]] = defaultdict(list)
        """What clients created, by resource; also what is gone."""
        self.history: list[tuple[int, str, str, Object]] = []
        """Version, resource, type of the event, and the object."""
        self.oldest = 0
        """Versions before are forgotten: watches from there end with 410."""
        self.conflicts = 0
        """Number of next patches before which another client changes the object."""
        self.invalid: list[str] = []
        """Why a status did not follow its schema."""

    def put(self, kind: Kind, one: Object, event: str = "ADDED") -> Object:
        """Keep an object, or its change, with a new version."""
        with self.lock:
            self.version += 1
            metadata = one["metadata"]
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata["resourceVersion"] = str(self.version)
            self.objects[kind.resource][key_of(metadata)] = one
            self._note(kind, event, one)
            return one

    def remove(self, kind: Kind, namespace: str, name: str) -> Object:
        """Delete an object."""
        with self.lock:
            one = self.get(kind, namespace, name)
            del self.objects[kind.resource][key_of(one["metadata"])]
            self.version += 1
            one["metadata"]["resourceVersion"] = str(self.version)
            self._note(kind, "DELETED", one)
            return one

    def _note(self, kind: Kind, event: str, one: Object) -> None:
        self.history.append((self.version, kind.resource, event, copy.deepcopy(one)))
        self.changed.notify_all()

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """An object; raises RefusedError."""
        found = self.objects[kind.resource].get(f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise RefusedError(
                404, f'{kind.resource} "{name}" not found', name=name, kind=kind.plural
            )
        return found

    def accept(self, kind: Kind, namespace: str, one: Object) -> Object:
        """Keep an object that a client creates; raises RefusedError."""
        metadata = one["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if metadata.get("namespace", namespace) != namespace:
            raise RefusedError(400, "the namespace of the object is not that of the request")
        if (one["apiVersion"], one["kind"]) != (kind.version, kind.name):
            raise RefusedError(400, f"the object is no {kind.version} {kind.name}")
        if not _NAME.fullmatch(name) or not all(map(_LABEL.fullmatch, labels.values())):
            raise RefusedError(422, f"{name}: a name or a label is invalid")
        place = {"namespace": namespace} if namespace else {}
        made = {**one, "metadata": {**metadata, **place}}
        if key_of(made["metadata"]) in self.objects[kind.resource]:
            text = f'{kind.resource} "{name}" already exists'
            raise RefusedError(409, text, "AlreadyExists", name=name, kind=kind.plural)
        self.made[kind.resource].append(one)
        return self.put(kind, made)

    def patch(self, kind: Kind, one: Object, media: str, patch: Object, part: str = "") -> Object:
        """Change an object, or only its `part` (the status); raises RefusedError."""
        if media != MERGE and (media != STRATEGIC or "." in kind.version):
            raise RefusedError(415, f"{media} is not supported for {kind.resource}")
        sent, has = patch.get("metadata") or {}, one["metadata"]
        lacks = [name for name in kind.needs if name not in sent and media == MERGE]
        if lacks:
            raise RefusedError(422, f"a patch without {lacks} would lose another's change")
        if self.conflicts:
            self.conflicts -= 1
            self.put(kind, one, "MODIFIED")
        if sent.get("resourceVersion", has["resourceVersion"]) != has["resourceVersion"]:
            text = f'Operation cannot be fulfilled on {kind.plural} "{has["name"]}": '
            raise RefusedError(409, f"{text}the object has been modified", name=has["name"])
        if sent.get("uid", has["uid"]) != has["uid"]:
            raise RefusedError(422, "metadata.uid: Invalid value: field is immutable")
        changed = copy.deepcopy(one)
        if part:
            merge(changed, {part: patch.get(part) or {}}, media == STRATEGIC)
            self._check(kind, changed[part])
        else:
            merge(changed, {key: value for key, value in patch.items() if key != "status"})
        one.clear()
        one.update(changed)
        return self.put(kind, one, "MODIFIED")

    def _check(self, kind: Kind, status: Object) -> None:
        wrong = [error.message for error in kind.status.iter_errors(status)] if kind.status else []
        if wrong:
            self.invalid += wrong
            raise RefusedError(422, "; ".join(wrong))

    def list(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> list[Object]:
        """The objects that the selectors of a query select; raises RefusedError."""
        if kind.is_selected and not {"labelSelector", "fieldSelector"} & query.keys():
            raise RefusedError(400, f"{kind.resource} of the whole cluster")
        return [
            one
            for one in self.objects[kind.resource].values()
            if namespace in ("", one["metadata"].get("namespace"))
            and _matches(query.get("labelSelector", ""), one["metadata"].get("labels") or {})
            and _matches(query.get("fieldSelector", ""), _fields(one))
        ]


def _fields(one: Any, path: str = "") -> dict[str, Any]:
    """The fields of an object by their path."""
    if not isinstance(one, dict):
        return {path.removeprefix("."): one}
    found: dict[str, Any] = {}
    for name, value in one.items():
        found |= _fields(value, f"{path}.{name}")
    return found


def _matches(selector: str, has: Mapping[str, Any]) -> bool:
    """Whether all terms `name` or `name=value` hold."""
    for term in filter(None, selector.split(",")):
        name, equals, value = term.partition("=")
        if (has.get(name) != value.removeprefix("=")) if equals else (name not in has):
            return False
    return True


def resource_of(group: str, plural: str) -> str:
    """The name of a resource, or of a part of it: `nodes/status`, `checks.nodevitals.io/status`."""
    plural, slash, part = plural.partition("/")
    return f"{plural}{'.' if group else ''}{group}{slash}{part}"


def key_of(metadata: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name where there is no namespace."""
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def merge(target: Object, patch: Object, strategic: bool = False) -> None:
    """RFC 7386; a strategic one merges conditions by their type."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            own = target[name] = target[name] if isinstance(target.get(name), dict) else {}
            merge(own, value, strategic)
        elif strategic and name == "conditions":
            by_type = {one["type"]: one for one in (*target.get(name, ()), *value)}
            target[name] = list(by_type.values())
        else:
            target[name] = value
