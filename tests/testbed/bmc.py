"""A BMC of a simulated node: the device file and an ipmitool for PATH that checks its arguments.

The shapes are those of ipmitool 1.8.19; names of sensors, times and numbers are invented.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from testbed.programs import install

RAW = ["raw", "0x0a", "0x43", "0x00", "0x00"]
CALLS = {
    "mc": ["mc", "info"],
    "sel": ["sel", "info"],
    "dcmi": ["dcmi", "power", "reading"],
    "sdr": ["sdr", "elist", "all"],
}
CONTROLLER = """Device ID                 : 32
Device Revision           : 1
Firmware Revision         : 4.21
IPMI Version              : 2.0
Manufacturer ID           : 99999
Manufacturer Name         : Unknown (0x1869F)
"""
POWER = """
    Instantaneous power reading:                   812 Watts
    Minimum during sampling period:                402 Watts
    Power reading state is:                   activated
"""
SENSORS = """Inlet Temp       | 04h | ok  |  7.1 | 23 degrees C
Exhaust Temp     | 01h | ok  |  7.1 | 41 degrees C
Temp             | 0Eh | ok  |  3.1 | 55 degrees C
Temp             | 0Fh | ok  |  3.2 | 57 degrees C
GPU9 Temp        | 10h | ns  | 11.9 | No Reading
Fan1A            | 30h | ok  |  7.1 | 8400 RPM
Fan1B            | 31h | ok  |  7.1 | 7200 RPM
Fan 2 Duty       | 32h | ok  | 29.2 | 25.48 percent
Fan3             | 33h | ns  | 29.3 | Disabled
PS1 Status       | 62h | ok  | 10.1 | Presence detected
PS2 Status       | 63h | ok  | 10.2 | Presence detected
PS3 Status       | 64h | ok  | 10.3 |
PS1 Input Power  | 65h | ok  | 10.1 | 405 Watts
PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant
Fan Redundancy   | 75h | ok  |  7.1 | Fully Redundant
CMOS Battery     | 26h | ok  |  7.1 | Presence Detected
Intrusion        | 73h | ok  |  7.1 | General Chassis intrusion
12V              | 40h | ok  |  7.1 | 12.10 Volts
"""


class Bmc:
    """What the BMC answers. `answer` may be `@hang`, `@fail` and `@flood` as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bmc"
        self.dev = folder / "bmc-dev"
        for one in (self.folder, self.dev):
            one.mkdir(exist_ok=True, parents=True)
        (self.dev / "ipmi0").touch()
        self.bin = install(folder / "bmc-bin", "bmc", ["ipmitool"], str(self.folder))
        self.program = self.bin / "ipmitool"
        self.log: list[str] = []
        self.answer("mc", CONTROLLER)
        self.answer("dcmi", POWER)
        self.answer("sdr", SENSORS)
        self._write()

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the probe."""
        return {"ipmitool": str(self.program), "device_directory": str(self.dev)}

    def answer(self, call: str, text: str) -> None:
        """Let a call print this."""
        (self.folder / f"{call}.new").write_text(text)
        (self.folder / f"{call}.new").replace(self.folder / call)

    def event(self, kind: int, event: int, offset: int, *, stamp: int = 0x6A000000) -> None:
        """Append an entry to the event log."""
        record = len(self.log) + 1
        body = record.to_bytes(2, "little") + b"\x02" + stamp.to_bytes(4, "little")
        body += bytes([0x20, 0x00, 0x04, kind, 0x53, event, offset, 0xFF, 0xFF])
        self.log.append(body.hex())
        self._write()

    def clear(self) -> None:
        """Empty the event log, as a person does."""
        self.log = []
        self._write()

    def calls(self) -> list[list[str]]:
        """The arguments of each call."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _write(self) -> None:
        self.answer("log", json.dumps(self.log))
        lines = [
            "SEL Information",
            "Version          : 1.5 (v1.5, v2 compliant)",
            f"Entries          : {len(self.log)}",
            "Free Space       : 14400 bytes",
            f"Percent Used     : {min(len(self.log), 100)}%",
            "Last Add Time    : 11/20/2026 03:04:05",
            "Last Del Time    : Not Available",
            "Overflow         : false",
        ]
        self.answer("sel", "\n".join(lines) + "\n")


def main(name: str, answers: str) -> None:
    """The program: only what reads is answered."""
    given = sys.argv[1:]
    with open(Path(answers, "calls"), "a", encoding="ascii") as log:
        log.write(json.dumps(given) + "\n")
    if given[:2] != ["-I", "open"]:
        sys.exit(f"{name}: wrong arguments {given}")
    words = given[2:]
    if words[:5] == RAW and len(words) == 9 and words[7:] == ["0x00", "0xff"]:
        text = Path(answers, "log").read_text()
        if text[0] != "@":
            text = _entry(json.loads(text), int(words[5], 16) + 256 * int(words[6], 16))
    elif words in CALLS.values():
        text = Path(answers, words[0]).read_text()
    else:
        sys.exit(f"{name}: wrong arguments {given}")
    if text == "@hang":
        time.sleep(600)
    if text == "@fail":
        sys.exit("Could not open device at /dev/ipmi0: No response from the BMC")
    if text == "@denied":
        sys.exit("Could not open device at /dev/ipmi0: Permission denied")
    while text == "@flood":
        os.write(1, b"x" * 65536)
    sys.stdout.write(text)


def _entry(log: list[str], record: int) -> str:
    at = {0: 1, 0xFFFF: len(log)}.get(record, record)
    if not 1 <= at <= len(log):
        words = "Unable to send RAW command (channel=0x0 netfn=0xa lun=0x0 cmd=0x43 rsp=0xcb)"
        sys.exit(f"{words}: Requested sensor, data, or record not found")
    following = at + 1 if at < len(log) else 0xFFFF
    data = following.to_bytes(2, "little") + bytes.fromhex(log[at - 1])
    shown = [f" {byte:02x}" for byte in data]
    return "".join(shown[:16]) + "\n" + "".join(shown[16:]) + "\n"
