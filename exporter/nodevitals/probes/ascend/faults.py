"""Ascend fault codes: the level at which Huawei's scheduler handles each, and the action for it.

Of the hundreds of codes only those that operators meet are listed; any other one has the level
`unlisted`.
"""

from __future__ import annotations

from nodevitals.probes.common.accelerators import Action

LEVELS: dict[str, Action] = {
    "not_handle": "none",
    "sub_health": "investigate",
    "restart_request": "restart_app",
    "restart_business": "restart_app",
    "free_restart": "reset_device",
    "restart": "reset_device",
    "pre_separate": "drain",
    "separate": "drain",
    "unlisted": "investigate",
}
_CODES: dict[str, tuple[str, ...]] = {
    # HBM with 16 isolated rows, HBM over 95 °C, RoCE link down
    "not_handle": ("80E18401", "80E00209", "81078603"),
    # chip over its temperature, RoCE lanes, low risk of wrong results
    "sub_health": ("80E20207", "81078605", "80818C06"),
    # multi-bit ECC error in HBM
    "restart_business": ("80E01801",),
    # device dropped off the bus while idle
    "free_restart": ("8C084E00",),
    # storm of uncorrectable errors, parity in HBM; device dropped, heartbeat lost
    "restart": ("80E18404", "80E18005", "40F84E00", "8C03A000"),
    # HBM with 64 isolated rows, HBM fatally hot, power module, high risk of wrong results
    "separate": ("80E18402", "80E0020B", "80E3A201", "80818C05"),
}
_LEVEL_OF = {code: level for level, codes in _CODES.items() for code in codes}


def level_of(code: str) -> str:
    """The handling level of a fault code (hexadecimal, any case)."""
    return _LEVEL_OF.get(code.upper(), "unlisted")
