"""The CRD of the custom resource Check: the type of its spec in, YAML for Helm out."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from nodevitals_hub.triggers.resource_spec import GROUP, KIND, PHASES, PLURAL, VERSION, CheckSpec

_TEXT = {"type": "string"}
_STATUS = {
    "phase": {"type": "string", "enum": list(PHASES)},
    "observedGeneration": {"type": "integer", "format": "int64"},
    "verdict": {"type": "string", "enum": ["ok", "bad", "unknown"]},
    **dict.fromkeys(("reason", "message", "warning", "link", "checkId", "progress"), _TEXT),
    **{key: {"type": "string", "format": "date-time"} for key in ("started", "ended")},
}
_COLUMNS = {
    "Kind": ".spec.kind",
    "Phase": ".status.phase",
    "Progress": ".status.progress",
    "Verdict": ".status.verdict",
    "Message": ".status.message",
}


def structural(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema as Kubernetes takes it: no references, no null types, no closed objects (the
    API server itself refuses or drops unknown fields).
    """
    if "$ref" in schema:
        return structural(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        [some] = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return {**structural(some, definitions), "nullable": True}
    dropped = ("title", "default", "properties", "items")
    found = {key: value for key, value in schema.items() if key not in dropped}
    if found.get("pattern", "").endswith(r"\Z"):  # in RE2, `$` is the end of the text
        found["pattern"] = found["pattern"][:-2] + "$"
    for bound, key in (("Minimum", "minimum"), ("Maximum", "maximum")):
        if f"exclusive{bound}" in found:
            found[key] = found.pop(f"exclusive{bound}")
            found[f"exclusive{bound}"] = True
    if found.get("additionalProperties") is False:
        del found["additionalProperties"]
    if "enum" in found:
        found["type"] = "string"
        if None in found["enum"]:
            found["enum"] = [one for one in found["enum"] if one is not None]
            found["nullable"] = True
    if "additionalProperties" in found:
        found["additionalProperties"] = structural(found["additionalProperties"], definitions)
    if "items" in schema:
        found["items"] = structural(schema["items"], definitions)
    if "properties" in schema:
        found["properties"] = {
            name: structural(one, definitions) for name, one in schema["properties"].items()
        }
    if not found.get("required", True):
        del found["required"]
    return found


def spec_schema() -> dict[str, Any]:
    """The schema of the spec."""
    [schema], definitions = msgspec.json.schema_components([CheckSpec])
    return structural(schema, definitions)


def crd() -> str:
    """The CustomResourceDefinition as YAML."""
    properties = {
        "spec": spec_schema(),
        "status": {"type": "object", "properties": _STATUS},
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": "string", "jsonPath": path} for name, path in _COLUMNS.items()
        ],
        "schema": {
            "openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}
        },
    }
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # An uninstallation would delete all resources with it.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "plural": PLURAL, "singular": KIND.lower()},
            "versions": [version],
        },
    }

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _: Any) -> bool:
            return True

    return yaml.dump(document, Dumper=Plain, sort_keys=False, width=100)
