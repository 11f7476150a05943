"""The CRD of the resource Check: valid, generated, and of one mind with the model."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from helm.crd import crd, spec_schema

from nodevitals.hub.resource_spec import request_of
from testbed.charts import CHART

MATRIX = {"kind": "matrix"}


def accepted_by_the_schema(spec: Any) -> bool:
    """As the API server validates: nullable is a keyword of its own."""
    return not list(jsonschema.Draft4Validator(with_null(spec_schema())).iter_errors(spec))


def with_null(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: with_null(one) for name, one in value.items()}
        if key == "properties"
        else with_null(value)
        for key, value in schema.items()
    }
    if found.pop("nullable", False):
        return {"anyOf": [found, {"type": "null"}]}
    return found


def accepted_by_the_model(spec: Any) -> bool:
    try:
        request_of(spec)
    except ValueError:
        return False
    return True


def test_the_crd_is_valid_and_generated() -> None:
    text = (CHART / "files/crds/checks.yaml").read_text()
    assert text == crd()
    for version in ("1.27", "1.37"):
        kubernetes_validate.validate(yaml.safe_load(text), version, strict=True)


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        (MATRIX, True),
        ({}, False),
        ({"kind": "best"}, False),
        ({**MATRIX, "nodes": ["gpu-1"]}, True),
        ({**MATRIX, "nodes": ["; reboot"]}, False),
        ({**MATRIX, "nodes": "gpu-1"}, False),
        ({**MATRIX, "where": {"pool": "train"}}, True),
        ({**MATRIX, "where": {"pool": 3}}, False),
        ({**MATRIX, "rounds": None}, True),
        ({**MATRIX, "rounds": 0}, False),
        ({**MATRIX, "rounds": 1001}, False),
        ({**MATRIX, "share": 0}, False),
        ({**MATRIX, "share": 1}, True),
        ({**MATRIX, "share": 1.1}, False),
        ({**MATRIX, "expectedBytesPerSecond": 0}, False),
        ({**MATRIX, "limitSeconds": 86401}, False),
        ({**MATRIX, "isolate": None}, False),
        ({**MATRIX, "note": "x" * 501}, False),
        ({**MATRIX, "test": {"queuePairs": 65}}, False),
        ({**MATRIX, "test": {"queuePairs": 64, "gidIndex": 3, "trafficClass": 106}}, True),
        ({**MATRIX, "test": {"tool": "ssh"}}, False),
        ({**MATRIX, "test": {"tool": None}}, True),
        ({**MATRIX, "test": {"environment": {"NCCL_ALGO": "Ring"}}}, True),
        ({**MATRIX, "test": {"mca": {"btl": ["tcp"]}}}, False),
        ({**MATRIX, "test": None}, False),
    ],
)
def test_the_schema_and_the_model_agree(spec: dict[str, Any], valid: bool) -> None:
    assert (accepted_by_the_schema(spec), accepted_by_the_model(spec)) == (valid, valid)
