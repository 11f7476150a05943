"""Calls of ipmitool that read the node's own BMC through /dev/ipmi0. None changes anything.

In: the program and the end of the run. Out: texts and entries, or `PartError`.
"""

from __future__ import annotations

import re
import time
from typing import Optional

from nodevitals.linux import tool
from nodevitals.probe import ProbeError
from nodevitals.probes.bmc.events import Entry, parse_entry
from nodevitals.probes.bmc.parts import LogInfo, PartError

_RESPONSE = re.compile(r"rsp=0x([0-9a-f]{2})")
_NOT_FOUND = "cb"
_REFUSED = ("permission denied", "operation not permitted")
_SHOWN_CHARACTERS = 160
_REASONS = ("missing", "timeout", "stuck", "start", "too_long")
_PERCENT = re.compile(r"(\d{1,3})%")
_WATTS = re.compile(r"Instantaneous power reading:\s{0,80}(\d{1,7})\s{1,8}Watts")
_NUMBER = re.compile(r"\d{1,8}")


class Ipmitool:
    """The program; one call at a time, none after the end of the run."""

    def __init__(self, program: str, until: float) -> None:
        self._program = program
        self._until = until

    def text(self, *arguments: str) -> str:
        """What a call prints. Raises PartError, also where it fails."""
        output = self._run(*arguments)
        if output.status != 0:
            raise _failed(arguments, output.text)
        return output.text

    def sensors(self) -> str:
        """All sensors. Some BMCs fail for one of hundreds: what was printed is kept."""
        output = self._run("sdr", "elist", "all")
        if output.status != 0 and "|" not in output.text:
            raise _failed(("sdr", "elist", "all"), output.text)
        return output.text

    def entry(self, record: int) -> Optional[Entry]:
        """The entry with this record ID; None where there is none. `sel list` would read all
        entries from the first one at each call, also for the last ten.
        """
        low, high = f"0x{record & 0xFF:02x}", f"0x{record >> 8:02x}"
        arguments = ("raw", "0x0a", "0x43", "0x00", "0x00", low, high, "0x00", "0xff")
        output = self._run(*arguments)
        if output.status != 0:
            response = _RESPONSE.search(output.text)
            if response is not None and response[1] == _NOT_FOUND:
                return None
            raise _failed(arguments, output.text)
        entry = parse_entry(output.text)
        if entry is None:
            raise PartError("malformed", f"entry {record:04x}: {_shown(output.text)}")
        return entry

    def _run(self, *arguments: str) -> tool.Output:
        left = self._until - time.monotonic()
        if left <= 0:
            raise PartError("timeout", f"no time left for ipmitool {' '.join(arguments)}")
        try:
            return tool.run((self._program, "-I", "open", *arguments), left)
        except ProbeError as error:
            reason = error.reason if error.reason in _REASONS else "no_answer"
            raise PartError(reason, error.message) from None


def _failed(arguments: tuple[str, ...], text: str) -> PartError:
    refused = any(words in text.lower() for words in _REFUSED)
    what = f"ipmitool {' '.join(arguments)}: {_shown(text)}"
    return PartError("permission" if refused else "no_answer", what)


def _shown(text: str) -> str:
    return repr(" ".join(text[: 4 * _SHOWN_CHARACTERS].split())[:_SHOWN_CHARACTERS])


def fields(text: str) -> dict[str, str]:
    """Lines `KEY : VALUE`."""
    pairs = (line[:512].partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def parse_log_info(text: str) -> LogInfo:
    """The output of `sel info`."""
    found = fields(text)
    entries, used = found.get("Entries", ""), _PERCENT.fullmatch(found.get("Percent Used", ""))
    share = None if used is None else int(used[1]) / 100
    return LogInfo(
        int(entries) if _NUMBER.fullmatch(entries) else None,
        share if share is not None and share <= 1 else None,
        {"true": True, "false": False}.get(found.get("Overflow", "")),
    )


def parse_watts(text: str) -> Optional[float]:
    """The output of `dcmi power reading`; None where the BMC measures nothing."""
    match = _WATTS.search(text)
    return float(match[1]) if match is not None and int(match[1]) > 0 else None
