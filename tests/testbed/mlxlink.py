"""A mlxlink for PATH that checks its arguments. `Mlxlink(folder)` installs it; `set` says what it
prints for the PCI address of a port.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from testbed.programs import install

OPTICAL: dict[str, Any] = {
    "Temperature [C]": "54 [-5..75]",
    "Voltage [mV]": "3261.2 [2970..3630]",
    "Bias Current [mA]": "8.380,8.380,8.380,8.380 [2..15]",
    "Rx Power Current [dBm]": "1.000,0.000,-1.000,2.000 [-10.000..6]",
    "Tx Power Current [dBm]": "1.562,1.427,1.559,1.761 [-8.508..5]",
    "Identifier": "OSFP",
    "Compliance": "400GBASE-DR4",
    "Cable Type": "Optical Module (separated)",
    "OUI": "Other",
    "Vendor Name": "TESTBED OPTICS",
    "Vendor Part Number": "TB-OSFP-DR4",
    "Vendor Serial Number": "TB0000004",
    "Rev": "A0",
    "FW Version": "1.2.3",
    "DataPath state [per lane]": {"values": ["DPActivated"] * 4},
}
COPPER: dict[str, Any] = {
    **dict.fromkeys(list(OPTICAL)[:5], "0,0,0,0 [0..0]"),
    "Temperature [C]": "0 [0..0]",
    "Voltage [mV]": "0 [0..0]",
    "Identifier": "OSFP",
    "Cable Type": "Passive copper cable",
    "Vendor Name": "TESTBED",
    "Vendor Part Number": "TB-DAC",
    "Vendor Serial Number": "TB0000005",
}
COUNTERS: dict[str, Any] = {
    "Time Since Last Clear [Min]": "1440.5",
    "Symbol Errors": "0",
    "Effective Physical Errors": "0",
    "Raw Physical Errors Per Lane": {"values": ["120", "30", "0", "7"]},
    "Effective Physical BER": "15E-255",
    "Raw Physical BER": "2E-9",
}
EMPTY = dict.fromkeys(OPTICAL, "N/A")


class Mlxlink:
    """The program, and its answers."""

    def __init__(self, folder: Path) -> None:
        self._answers = folder / "mlxlink-answers"
        self._answers.mkdir()
        self.program = install(folder / "bin", "mlxlink", ["mlxlink"], str(self._answers))
        self.program = self.program / "mlxlink"

    def set(
        self, place: str, module: dict[str, Any] = OPTICAL, counters: dict[str, Any] = COUNTERS
    ) -> None:
        """Print this for a port."""
        output = {"Module Info": module, "Physical Counters and BER Info": counters}
        self.print(place, document(output))

    def print(self, place: str, text: str) -> None:
        """Print this text; `hang` hangs."""
        (self._answers / place).write_text(text)


def document(output: dict[str, Any]) -> str:
    return json.dumps({"result": {"output": output}, "status": {"code": 0, "message": "success"}})


def main(_: str, answers: str) -> None:
    """Called by the program."""
    arguments = sys.argv[1:]
    if len(arguments) != 5 or arguments[0] != "-d" or arguments[2:] != ["-m", "-c", "--json"]:
        sys.exit(f"-E- Unexpected arguments: {arguments}")
    answer = Path(answers) / arguments[1]
    if not answer.exists():
        print(json.dumps({"status": {"code": 1, "message": "Failed to open device"}}))
        sys.exit(1)
    text = answer.read_text()
    while text == "hang":
        time.sleep(60)
    print(text)
