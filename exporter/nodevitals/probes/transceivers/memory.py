"""The memory of a module of any kind, by its first byte (SFF-8024). Pure."""

from __future__ import annotations

from nodevitals.probes.transceivers.cmis import read_cmis
from nodevitals.probes.transceivers.module import LOW, Module, ReadPage
from nodevitals.probes.transceivers.sff import read_qsfp, read_sfp

_ADDRESS = 0x50
_SFP = 0x03
_QSFP = (0x0C, 0x0D, 0x11)
_CMIS = {0x18: "QSFP-DD", 0x19: "OSFP", 0x1E: "QSFP", 0x1F: "SFP-DD"}


def read_module(read: ReadPage) -> Module | None:
    """The module; None for a kind that is not known here. Raises ValueError where its memory makes
    no sense, and what `read` raises.
    """
    first = read(0, LOW, _ADDRESS)
    if first[0] == _SFP:
        return read_sfp(read, first)
    if first[0] in _QSFP:
        return read_qsfp(read, first)
    if first[0] in _CMIS:
        return read_cmis(read, first, _CMIS[first[0]])
    return None
