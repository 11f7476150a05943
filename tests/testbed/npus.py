"""Simulated NPU machines: what `npu-smi` and `hccn_tool` print, and the two as programs.

`Machine(folder, "910B").start()` writes both into `folder/bin`; they check their arguments, print
the state in `folder/npus.json`, and record every call, and whether another one was running, in
`folder/calls`. The layouts have the forms of seven generations; names and numbers are invented.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a program starts dozens of times per test: it imports only what it needs
    from pathlib import Path
    from typing import Any

# Segment widths, the two header rows, and how the last segment's cells are laid out.
LAYOUTS: dict[str, dict[str, Any]] = {
    "310": {
        "widths": (19, 17, 40),
        "head": (("NPU     Name", "Health", "Power(W)          Temp(C)"),
                 ("Chip    Device", "Bus-Id", "AICore(%)         Memory-Usage(MB)")),
        "at": (18, 18), "device": True, "hbm": False, "hugepages": False, "id": 8,
    },
    "910A": {
        "widths": (22, 15, 52),
        "head": (("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)"),
                 ("Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")),
        "at": (12, 18), "device": False, "hbm": True, "hugepages": True, "id": 6,
    },
    "910B": {
        "widths": (27, 15, 52),
        "head": (("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)"),
                 ("Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")),
        "at": (12, 18), "device": False, "hbm": True, "hugepages": True, "id": 6,
    },
    "910B-wide": {
        "widths": (27, 15, 70),
        "head": (("NPU   Name", "Health",
                  "Power(W)             Temp(C)                 Hugepages-Usage(page)"),
                 ("Chip", "Bus-Id",
                  "AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)")),
        "at": (21, 24), "device": False, "hbm": True, "hugepages": True, "id": 6,
    },
    "A3": {
        "widths": (27, 15, 52),
        "head": (("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)"),
                 ("Chip  Phy-ID", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")),
        "at": (12, 18), "device": True, "hbm": True, "hugepages": True, "id": 6,
    },
    "310P": {
        "widths": (31, 17, 54),
        "head": (("NPU     Name", "Health", "Power(W)     Temp(C)           Hugepages-Usage(page)"),
                 ("Chip    Device", "Bus-Id", "AICore(%)    Memory-Usage(MB)")),
        "at": (13, 18), "device": True, "hbm": False, "hugepages": True, "id": 8,
    },
    "950": {
        "widths": (8, 18, 15, 53),
        "head": (("NPU ID", "Name", "Health",
                  "Power(W)    Temp(C)           Hugepages-Usage(page)"),
                 ("", "", "Bus-Id", "NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)")),
        "at": (12, 18), "device": False, "hbm": True, "hugepages": True, "id": 8,
    },
}  # fmt: skip


def chip(npu: int, number: int = 0, **more: Any) -> dict[str, Any]:
    """Return a healthy chip."""
    return {
        "npu": npu,
        "chip": number,
        "physical": npu,
        "name": "910B3",
        "health": "OK",
        "bus": f"0000:{(0xC1 + npu) % 256:02X}:00.0",
        "power": "98.5",
        "temperature": 50 + npu % 8,
        "hugepages": (0, 0),
        "utilization": 7,
        "memory": (1800, 15000),
        "hbm": (3300 + npu % 100, 65536),
        "processes": 1,
        "vdie": f"42C711D4 20B0370{npu % 10:x} 4A10C8D4 14CC040{number:x} D21020{npu % 256:02x}",
        "codes": [],
        "ecc": {},
        "link": "UP",
        "net_health": "Success",
        "speed": "200000 Mb/s",
        "statistics": {"roce_rx_err_pkt_num": 0, "roce_tx_err_pkt_num": 0, "mac_rx_bad_pkt_num": 3},
        "receive_mw": ["1.0189", "0.9907", "1.0213", "1.0007"],
        "vnpus": {},  # templates by id; None where the chip cannot be divided
        "vnpu_free": ("20/20", "60/64"),
    } | more


def _cells(places: tuple[int, int], *values: str) -> str:
    """Return a cell as the tool prints it: each value at its column, or after the previous one."""
    line = values[0]
    at = 0
    for value, width in zip(values[1:], places, strict=False):
        at += width
        line = line.ljust(at) + value if len(line) < at else f"{line} {value}"
    return line


def _pair(pair: tuple[int, int], width: int = 4) -> str:
    return f"{pair[0]!s:<{width}} / {pair[1]}" if pair[0] < 10**width else f"{pair[0]}/ {pair[1]}"


def table(chips: list[dict[str, Any]], layout: str, version: str = "25.2.0") -> str:
    """Return what `npu-smi info` prints."""
    form = LAYOUTS[layout]
    widths = form["widths"]
    dashes = "+" + "+".join("-" * width for width in widths) + "+"
    double = dashes.replace("-", "=")
    inner = sum(widths) + len(widths) - 1

    def row(*cells: str) -> str:
        padded = (f" {cell}".ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "|" + "|".join(padded) + "|"

    lines = ["+" + "-" * inner + "+", f"| npu-smi {version:<25}Version: {version}".ljust(inner + 1)
             + "|", dashes, row(*form["head"][0]), row(*form["head"][1]), double]  # fmt: skip
    for one in chips:
        first = [str(one["power"]), str(one["temperature"])]
        if form["hugepages"]:
            first.append(_pair(one["hugepages"]))
        second = [str(one["utilization"]), _pair(one["memory"])]
        if form["hbm"]:
            second.append(_pair(one["hbm"]))
        upper, lower = _cells(form["at"], *first), _cells(form["at"], *second)
        below = str(one["chip"])
        if form["device"]:
            below = below.ljust(form["id"]) + str(one["physical"])
        if len(widths) == 4:
            lines.append(row(str(one["npu"]), one["name"], one["health"], upper))
            lines.append(row("", "", one["bus"], lower))
        else:
            lines.append(row(str(one["npu"]).ljust(form["id"]) + one["name"], one["health"], upper))
            lines.append(row(below, one["bus"], lower))
        lines.append(double)
    lines += [dashes, "| NPU     Chip              | Process id    | Process name   | Memory(MB) |"]
    for one in chips:
        count = one["processes"]
        for number in range(count):
            lines.append(f"| {one['npu']:<8}{one['chip']:<17} | {4000 + number} | trainer | 512 |")
        if not count:
            lines.append(f"| No running processes found in NPU {one['npu']} |")
        lines.append(double)
    return "\n".join(lines) + "\n"


def ecc(one: dict[str, Any], old: bool = True) -> str:
    """Return what `npu-smi info -t ecc` prints for a chip."""
    kinds: tuple[str, ...] = ("Error Count", "Aggregate Total Err Cnt", "Isolated Pages Count")
    kinds += () if old else ("Next-Isolated Pages Count",)
    names = [f"HBM {bits} Bit {kind}" for kind in kinds for bits in ("Single", "Double")]
    return "".join(f"\t{name:<40} : {one['ecc'].get(name, 0)}\n" for name in names)


def blocks(pairs: dict[str, Any]) -> str:
    """Return `key : value` lines."""
    return "".join(f"\t{key:<30} : {value}\n" for key, value in pairs.items())


def vnpus(one: dict[str, Any]) -> str:
    """Return what `npu-smi info -t info-vnpu` prints for a chip."""
    if one["vnpus"] is None:
        return "The vnpu is not in docker mode, does not support querying info-vnpu.\n"
    width = 79
    line = "+" + "-" * width + "+\n"
    head = "AICORE    Memory    AICPU    VPC    VENC    VDEC    JPEGD    JPEGE    PNGD"
    cores, memory = one["vnpu_free"]
    free = f"{cores:<9} {memory:<9} 6/6      9/9    0/0     2/2     24/24    4/4      NA/NA"
    texts = ["NPU resource static info as follow:", "Format:Free/Total", head, "           GB"]
    rows = "".join(f"| {text:<{width - 1}}|\n" for text in texts) + "|" + "=" * width + "|\n"
    rows += f"| {free:<{width - 1}}|\n{line}"
    rows += f"| Total number of vnpu: {len(one['vnpus']):<{width - 23}}|\n{line}"
    rows += "|  Vnpu ID  |  Vgroup ID     |  Container ID  |  Status  |  Template Name       |\n"
    for number, template in one["vnpus"].items():
        rows += f"|  {number:<9}|  0             |  ffffffffffff  |  1       |  {template:<20}|\n"
    return line + rows + line


def optical(one: dict[str, Any]) -> str:
    """Return what `hccn_tool -optical` prints."""
    lines = ["optical info:", "present              : present", "temperature          : 47 C"]
    lines += [f"Rx Power{lane}            : {mw} mW" for lane, mw in enumerate(one["receive_mw"])]
    lines += ["RxPower High Thres   : 3.5481 mW", "RxPower Low Thres    : 0.1445 mW"]
    return "\n".join(lines) + "\n"


class Machine:
    """One machine. The programs read `state`; call `write` after a change of it."""

    def __init__(self, folder: Path, kind: str = "910B") -> None:
        self.folder = folder
        made = {
            "910B": ("910B", [chip(npu) for npu in range(8)]),
            "A3": (
                "A3",
                [
                    chip(npu, die, physical=2 * npu + die, name="Ascend910",
                         bus=f"0000:{0x91 + 2 * npu + die:02X}:00.0",
                         power="-" if die else "211.3")
                    for npu in range(8) for die in (0, 1)
                ],
            ),
            "310P": (
                "310P",
                [
                    chip(npu, die, physical=2 * at + die, name="310P3", power="NA",
                         bus=f"0000:{0x81 + at:02X}:00.0")
                    for at, npu in enumerate((1, 2, 1792)) for die in (0, 1)
                ],
            ),
            "950": ("950", [chip(npu, name="Ascend950PR") for npu in range(4)]),
        }  # fmt: skip
        layout, chips = made[kind]
        self.state: dict[str, Any] = {"layout": layout, "chips": chips}

    def start(self) -> Machine:
        """Write the programs, the state and the PCI devices."""
        from testbed.programs import install

        install(self.folder / "bin", "npus", ("npu-smi", "hccn_tool"), str(self.folder))
        for one in self.state["chips"]:
            device = self.folder / "sys/bus/pci/devices" / one["bus"].lower()
            device.mkdir(parents=True, exist_ok=True)
            (device / "vendor").write_text("0x19e5\n")
            (device / "class").write_text("0x120000\n")
        self.write()
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The probe's settings for this machine."""
        return {
            "npu_smi": str(self.folder / "bin/npu-smi"),
            "hccn_tool": str(self.folder / "bin/hccn_tool"),
            "lock": str(self.folder / "npu-smi.lock"),
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags with which `nodevitals` reads this machine."""
        return (f"--path.sysfs={self.folder / 'sys'}",)

    def change(self, index: int, **values: Any) -> None:
        """Change a chip."""
        self.state["chips"][index].update(values)
        self.write()

    def set(self, **values: Any) -> None:
        """Change how the programs behave: seconds, hang, truncate, error, language, layout."""
        self.state.update(values)
        self.write()

    def lose(self, index: int) -> dict[str, Any]:
        """Remove a chip from the bus and from what the programs list."""
        one: dict[str, Any] = self.state["chips"].pop(index)
        device = self.folder / "sys/bus/pci/devices" / one["bus"].lower()
        for file in device.iterdir():
            file.unlink()
        device.rmdir()
        self.write()
        return one

    def write(self) -> None:
        """Write the state for the programs."""
        draft = self.folder / "npus.json.new"
        draft.write_text(json.dumps(self.state))
        draft.replace(self.folder / "npus.json")

    def calls(self) -> list[str]:
        """Every call so far: program and arguments, after OVERLAP where another one was running."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


def main(program: str, folder_name: str) -> None:
    """Act as npu-smi or hccn_tool."""
    arguments = sys.argv[1:]
    running = os.open(f"{folder_name}/running", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
        overlap = ""
    except BlockingIOError:
        overlap = "OVERLAP "
    # A call that is listed has its state: a change from then on is for those after it.
    with open(f"{folder_name}/npus.json") as file:
        state = json.load(file)
    with open(f"{folder_name}/calls", "a") as calls:
        calls.write(f"{overlap}{program} {' '.join(arguments)}\n")
    time.sleep(state.get("table_seconds" if arguments == ["info"] else "seconds", 0.0))
    while state.get("hang") == program:
        time.sleep(3600)
    error = state.get("error")
    if error:
        print(error["text"], flush=True)
        os._exit(error["status"] & 0xFF)
    text = (_npu_smi if program == "npu-smi" else _hccn_tool)(arguments, state)
    sys.stdout.write(text[: state.get("truncate", len(text))])


def _refuse(arguments: list[str]) -> str:
    print(f"Error parameter of {' '.join(arguments)}", flush=True)
    os._exit(1)


def _npu_smi(arguments: list[str], state: dict[str, Any]) -> str:
    chips = state["chips"]
    if arguments == ["info"]:
        text = table(chips, state["layout"])
        for english, other in state.get("language", {}).items():
            text = text.replace(english, other)
        return text
    if arguments == ["info", "-m"]:
        head = ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")
        rows = [(c["npu"], c["chip"], c["physical"], c["physical"], c["name"]) for c in chips]
        return "".join(
            "\t" + "".join(f"{cell!s:<31}" for cell in row) + "\n" for row in (head, *rows)
        )
    known = ("ecc", "health", "board", "info-vnpu")
    if len(arguments) < 5 or arguments[:2] != ["info", "-t"] or arguments[2] not in known:
        return _refuse(arguments)
    single = state["layout"] == "950"
    names_chip = len(arguments) == 7 and arguments[5] == "-c"
    if arguments[3] != "-i" or (single and names_chip):
        return _refuse(arguments)
    chosen = [c for c in chips if str(c["npu"]) == arguments[4]]
    if names_chip:
        chosen = [c for c in chosen if str(c["chip"]) == arguments[6]]
    if not chosen:
        print("Invalid card id.\nError parameter of -i", flush=True)
        os._exit(1)
    return _details(arguments[2], chosen, names_chip, single)


def _details(kind: str, chosen: list[dict[str, Any]], names_chip: bool, single: bool) -> str:
    one = chosen[0]
    if kind == "ecc":
        if single:
            return blocks({"NPU ID": one["npu"]}) + ecc(one, old=False)
        head = blocks({"NPU ID": one["npu"], "Chip Count": len(chosen)})
        return head + "".join(
            "\n" + ecc(c, old="new_ecc" not in c) + f"\t{'Chip ID':<40} : {c['chip']}\n"
            for c in chosen
        )
    if kind == "info-vnpu":
        return vnpus(one) if names_chip else _refuse([kind])
    codes = " ".join(one["codes"]) or "NA"
    if kind == "health":
        word = "Health" if single or not names_chip else "Health Status"
        return blocks({word: one["health"], "Error Code": codes, "Error Information": "NA"})
    pairs = {"NPU ID": one["npu"], "Chip ID": one["chip"], "Chip Name": one["name"]}
    pairs |= {"DDie ID" if single else "VDie ID": one["vdie"], "Firmware Version": "7.1.0.7.220"}
    return blocks(pairs | {"PCIe Bus Info": one["bus"]})


def _hccn_tool(arguments: list[str], state: dict[str, Any]) -> str:
    if len(arguments) != 4 or arguments[0] != "-i" or arguments[3] != "-g":
        return _refuse(arguments)
    one = next((c for c in state["chips"] if str(c["physical"]) == arguments[1]), None)
    if one is None:
        sys.stderr.write("The device is not exist!\n")
        return ""
    counters = "".join(f"{name}:{count}\n" for name, count in one["statistics"].items())
    outputs = {
        "-link": f"link status: {one['link']}\n",
        "-net_health": f"net health status: {one['net_health']}\n",
        "-speed": f"Speed: {one['speed']}\n",
        "-stat": f"packet statistics:\n{counters}",
        "-optical": optical(one),
    }
    return outputs[arguments[2]] if arguments[2] in outputs else _refuse(arguments)
