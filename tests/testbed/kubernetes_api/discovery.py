"""What an API server says of its kinds: discovery, and OpenAPI v3. In: kinds. Out: documents.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/: groups, versions, kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.kubernetes_api.answers import Object
from testbed.kubernetes_api.store import Kind


def documents(kinds: Iterable[Kind]) -> dict[str, Object]:
    """By path."""
    versions: dict[str, list[Kind]] = {}
    for kind in kinds:
        versions.setdefault(kind.version, []).append(kind)
    paths = {version: of[0].path for version, of in versions.items()}
    return {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [_group(version) for version in versions if "/" in version],
        },
        "/openapi/v3": {
            "paths": {
                path[1:]: {"serverRelativeURL": f"/openapi/v3{path}"} for path in paths.values()
            }
        },
        **{f"/openapi/v3{path}": _openapi(versions[version]) for version, path in paths.items()},
        **{path: _resources(versions[version]) for version, path in paths.items()},
    }


def _group(version: str) -> Object:
    name, _, number = version.partition("/")
    one = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [one], "preferredVersion": one}


def _resources(kinds: Sequence[Kind]) -> Object:
    found = [
        {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": ["get", "list", "patch", "create"],
        }
        for kind in kinds
    ]
    return {"kind": "APIResourceList", "groupVersion": kinds[0].version, "resources": found}


def _openapi(kinds: Sequence[Kind]) -> Object:
    """A document that says only that each kind can be patched with `fieldValidation`."""
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {}
    for kind in kinds:
        group, _, number = kind.version.rpartition("/")
        names = {"group": group, "version": number, "kind": kind.name}
        patch = {"parameters": parameters, "x-kubernetes-group-version-kind": names}
        paths[f"{kind.path}/{kind.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "test", "version": "1"}, "paths": paths}
