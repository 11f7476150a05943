"""Metrics of RepairManager's exporter in an expression, replaced by ours.

It exposes nvidia-smi's figures as `nvidiasmi_*`, in percent, with the device as `minor_number`.
"""

from __future__ import annotations

import re

_SELECTOR = re.compile(r"\b(?P<name>nvidiasmi_\w+)\s*(?:\{(?P<labels>[^{}]*)\})?")
_LABEL = re.compile(
    r"""\s{0,20}(\w{1,100})\s{0,20}(=~|!~|!=|=)\s{0,20}"""
    r"""("(?:[^"\\]|\\.){0,500}"|'(?:[^'\\]|\\.){0,500}')\s{0,20}(?:,|$)"""
)
_JOB = 'job="nodevitals"'
_ECC = {
    "volatile_single": ("corrected", "volatile"),
    "volatile_double": ("uncorrected", "volatile"),
    "aggregated_single": ("corrected", "aggregate"),
    "aggregated_double": ("uncorrected", "aggregate"),
}
_RETIRED = {"single": "single_bit", "double": "double_bit"}
_GAUGES = {
    "nvidiasmi_utilization_gpu": "(100 * nodevitals_accelerator_utilization_ratio{})",
    "nvidiasmi_utilization_memory": (
        "(100 * nodevitals_accelerator_memory_used_bytes{} "
        "/ nodevitals_accelerator_memory_total_bytes{})"
    ),
    "nvidiasmi_temperature": "nodevitals_accelerator_temperature_celsius{}",
}


def map_metrics(expression: str) -> tuple[str, str]:
    """The expression with our metrics, and a note about it for the report: '' where none of them
    is in it.
    """
    replaced: list[str] = []
    kept: list[str] = []

    def replace(match: re.Match[str]) -> str:
        ours = _counterpart(match["name"], match["labels"] or "")
        (replaced if ours else kept).append(match["name"])
        return ours or match[0]

    text = _SELECTOR.sub(replace, expression)
    notes = [f", {name} replaced" for name in dict.fromkeys(replaced)]
    notes += [f", {name} has no counterpart" for name in dict.fromkeys(kept)]
    return text, "".join(notes)


def _counterpart(name: str, labels: str) -> str:
    """Our selector, or '' where there is none."""
    pairs = _LABEL.findall(labels)
    if "".join(_LABEL.split(labels)[::4]).strip():
        return ""
    selected = [_JOB]
    kind = ""
    for label, operator, quoted in pairs:
        if label == "type" and operator == "=":
            kind = quoted[1:-1]
        elif label == "type":
            return ""
        else:
            ours = "device" if label == "minor_number" else label
            selected.append(f"{ours}{operator}{quoted}")
    if name in _GAUGES and not kind:
        return _GAUGES[name].replace("{}", "{" + ", ".join(selected) + "}")
    if name == "nvidiasmi_ecc_error_count" and kind in _ECC:
        errors, lifetime = _ECC[kind]
        selected += [f'kind="{errors}"', f'lifetime="{lifetime}"']
        return "nodevitals_accelerator_ecc_errors_total{" + ", ".join(selected) + "}"
    if name == "nvidiasmi_retired_page_count" and kind in _RETIRED:
        selected.append(f'cause="{_RETIRED[kind]}"')
        return "nodevitals_nvidia_retired_pages{" + ", ".join(selected) + "}"
    return ""
