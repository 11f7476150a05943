"""Xid and SXid: the errors that the NVIDIA driver writes into the kernel log, and the one action
for each.

In: a line of the kernel log, bare or as dmesg, syslog and journalctl print it. Out: an `Xid` or
`Sxid`, or None. Actions are NVIDIA's own recommendations, mapped to our closed list:
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

import re

import msgspec

from nodevitals.probes.common.accelerators import Action
from nodevitals.probes.common.nvidia import RECOVERY_ACTIONS, normal_bus_id

# The prefixes before the driver's text. Strict, and only at the start of the line: text that a user
# can write to the log (the name of a file or a command) must not be taken for the driver's.
_PRINTED = (
    r"(?:\w{3} [ \d]\d [\d:]{8} \S+ kernel: )?"  # syslog, journalctl
    r"(?:kern *: *[a-z]+ *: )?"  # dmesg --decode
    r"(?:\[?\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[-+]\d\d:?\d\d)\]?:? (?:\S+ kernel: )?)?"  # ISO times
    r"(?:\[[\w .:]+\] ?)*"  # dmesg's seconds or --ctime, and printk's caller
)
_BUS = r"(?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_XID = re.compile(
    rf"{_PRINTED}NVRM: Xid \({_BUS}(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): ?(?P<code>\d{{1,4}})"
    r"(?:, pid=(?:\d+|'?<unknown>'?))?(?:, name=[^,]*)?(?:, ?(?P<text>.*))?$"
)
_SXID = re.compile(
    rf"{_PRINTED}nvidia-nvswitch(?P<switch>\d{{1,9}}): SXid \({_BUS}\): (?P<code>\d{{1,6}}), "
    r"(?P<severity>Fatal|Non-fatal), (?P<text>.*)$"
)
_RECOVERY_CHANGE = re.compile(r"to 0x(?P<code>[0-9a-fA-F]+) \(")
_NVLINK5 = re.compile(
    r"(?<![A-Z0-9_])(?P<unit>[A-Z][A-Z0-9_]*)\s+(?P<severity>(?:Link )?Fatal|Non-?fatal)\s.{0,300}?"
    r"[(\[]0x(?P<info>[0-9a-fA-F]{8})(?:,? 0x(?P<status>[0-9a-fA-F]{8}))?"
)
UNKNOWN_ACTION: Action = "investigate"
FIRST_NVLINK5, LAST_NVLINK5 = 144, 150
RECOVERY_CHANGED = 154

# Where NVIDIA recommends "ignore" and then "investigate", informational codes are `none`, and
# warnings are `investigate`; "contact support" alone is `investigate`.
_CODES: dict[Action, tuple[int, ...]] = {
    "none": (37, 43, 45, 63, 66, 67, 93, 106, 107, 137, 141, 152, 153, 160, 162, 171, 172, 174),
    "restart_app": (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83),
        *(84, 85, 86, 88, 89, 94, *range(96, 106), *range(126, 136), 139),
    ),
    "reset_device": (
        *(46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 150, 155, 156, 158),
        *(169, 175, 177),
    ),
    "reboot_node": (79, 151),
    "replace": (164,),
    "investigate": (
        *(38, 44, 54, 61, 78, 81, 92, 121, 122, 123, 124, 125, 142, 157, 159, 161, 163, 165),
        *(166, 167, 168, 170, 173, 176),
    ),
}
XID_ACTIONS: dict[int, Action] = {
    code: action for action, codes in _CODES.items() for code in codes
}

# The codes that alerting rules name: these counters are 0 before the first event.
RULE_CODES = (48, 74, 79, 95, 119)

# NVLink 5 (Xid 144 to 150): the error bits of each unit that need a reset. The message contains
# the unit; the bits are its second word.
_NVLINK5_RESET_BITS: dict[str, int] = {
    "SAW_MVB": 0x2 | 0x10,
    "RLW_REMAP": 0x40 | 0x80,
    "RLW_RSPCOL": 0x2,
    "RLW_SRC_TRACK": 0x1 | 0x10 | 0x20,
    "RLW_TAGSTATE": 0x2 | 0x2_0000 | 0x10_0000,
    "TLW_CTRL": 0x4,
    "TLW_RX": 0x4,
    "TLW_RX_PIPE0": 0x4,
    "TLW_RX_PIPE1": 0x4,
    "TLW_TX": 0x4,
    "TLW_TX_PIPE0": 0x4,
    "TLW_TX_PIPE1": 0x4,
}
# The second word of this unit is a number, not bits.
_MFDE_RESET = (1, 4, 5, 7)
# A link that went down needs a reset, except for two reasons that come from software and the host.
# The reason is in bits 20 to 25 of the first word.
_LINK_DOWN_IGNORED = (0b100110, 0b101000)


class Xid(msgspec.Struct, frozen=True):
    """One GPU error. `bus_id` is as `normal_bus_id` makes it."""

    bus_id: str
    code: int
    action: Action
    text: str


class Sxid(msgspec.Struct, frozen=True):
    """One NVSwitch error."""

    switch: str
    bus_id: str
    code: int
    action: Action
    text: str


def parse_xid(line: str) -> Xid | None:
    """The Xid that a line of the kernel log reports; None if it reports none."""
    match = _XID.match(line)
    if match is None:
        return None
    code, text = int(match["code"]), (match["text"] or "").strip()
    return Xid(normal_bus_id(match["bus"]), code, action_of(code, text), text)


def parse_sxid(line: str) -> Sxid | None:
    """The SXid that a line reports. Of the three lines that the driver writes for each, only the
    one with `Fatal` or `Non-fatal` counts.
    """
    match = _SXID.match(line)
    if match is None:
        return None
    # Fabric Manager's guide: fatal SXids need a reset of GPUs and switches, the others no action.
    action: Action = "reset_device" if match["severity"] == "Fatal" else "none"
    bus_id, switch = normal_bus_id(match["bus"]), f"nvswitch{match['switch']}"
    return Sxid(switch, bus_id, int(match["code"]), action, match["text"].strip())


def action_of(code: int, text: str) -> Action:
    """The one action for an Xid, by its code and, if that is not enough, by its message."""
    if code == RECOVERY_CHANGED:
        match = _RECOVERY_CHANGE.search(text)
        known = RECOVERY_ACTIONS.get(int(match["code"], 16)) if match else None
        return known[1] if known else UNKNOWN_ACTION
    if FIRST_NVLINK5 <= code <= LAST_NVLINK5:
        decoded = _nvlink5_action(text)
        if decoded is not None:
            return decoded
    return XID_ACTIONS.get(code, UNKNOWN_ACTION)


def _nvlink5_action(text: str) -> Action | None:
    match = _NVLINK5.search(text)
    if match is None:
        return None
    unit, info = match["unit"], int(match["info"], 16)
    status = int(match["status"] or "0", 16)
    if unit in ("NETIR_LINK_EVT", "NETIR_LINK_DOWN"):
        needs_reset = info >> 20 & 0x3F not in _LINK_DOWN_IGNORED
    elif unit == "NETIR_MFDE_EVENT":
        needs_reset = status in _MFDE_RESET
    else:  # what NVIDIA's table does not list is judged by the severity in the message
        bits = _NVLINK5_RESET_BITS.get(unit, 0)
        needs_reset = bool(status & bits) or "Fatal" in match["severity"]
    return "reset_device" if needs_reset else "none"
