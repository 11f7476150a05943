"""Switches around a simulated node: a lldpctl for PATH, and the output of ibnetdiscover.

`Lldpd(folder)` installs the program; `seen` is what it prints. Names and numbers are invented.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from testbed.programs import install

USAGE = "lldpctl: invalid option -- see lldpcli(8)"
NO_DAEMON = (
    "2026-11-02T10:00:00 [WARN/control] unable to connect to socket /run/lldpd.socket: "
    "No such file or directory\n"
    "2026-11-02T10:00:00 [WARN/lldpctl] not able to get the list of interfaces. "
    "Unable to connect to lldpd daemon\n"
)


def neighbour(
    switch: str, port: str, kind: str = "ifname", via: str = "LLDP", **more: Any
) -> dict[str, Any]:
    """A neighbour; `more` are description, capabilities (enabled or not by name), and mac."""
    return {"switch": switch, "port": port, "kind": kind, "via": via, **more}


def json0(seen: list[tuple[str, dict[str, Any]]]) -> str:
    """The output of `lldpctl -f json0` for pairs of an interface and a neighbour."""
    interfaces = [{"name": name, **_interface(one)} for name, one in seen]
    return json.dumps({"lldp": [{"interface": interfaces} if interfaces else {}]}, indent=2)


def _interface(one: dict[str, Any]) -> dict[str, Any]:
    capabilities = one.get("capabilities", {"Bridge": True, "Router": False})
    chassis: dict[str, Any] = {
        "id": [{"type": "mac", "value": one.get("mac", "02:5a:00:00:aa:01")}]
    }
    if one["switch"]:
        chassis["name"] = [{"value": one["switch"]}]
    chassis["descr"] = [{"value": "an operating system of switches"}]
    chassis["mgmt-ip"] = [{"value": "192.0.2.7"}, {"value": "2001:db8::7"}]
    chassis["capability"] = [{"type": k, "enabled": v} for k, v in capabilities.items()]
    port: dict[str, Any] = {"id": [{"type": one["kind"], "value": one["port"]}]}
    if "description" in one:
        port["descr"] = [{"value": one["description"]}]
    port["ttl"] = [{"value": "120"}]
    return {"via": one["via"], "rid": "1", "age": "3 days, 04:05:06"} | {
        "chassis": [chassis],
        "port": [port],
    }


def compact(seen: list[tuple[str, dict[str, Any]]]) -> str:
    """The output of `lldpctl -f json`: lists of one are that one, names are keys."""
    interfaces = []
    for name, one in seen:
        full = _single(_interface(one))
        chassis = full["chassis"]
        full["chassis"] = {chassis.pop("name"): chassis} if "name" in chassis else chassis
        interfaces.append({name: full})
    document = {"interface": _single(interfaces)} if interfaces else {}
    return json.dumps({"lldp": document}, indent=2)


def _single(value: Any) -> Any:
    if isinstance(value, list):
        parts = [_single(one) for one in value]
        return parts[0] if len(parts) == 1 else parts
    if isinstance(value, dict):
        return (
            value["value"] if [*value] == ["value"] else {k: _single(v) for k, v in value.items()}
        )
    return value


class Lldpd:
    """A daemon with a program that asks it: `seen` changes what that prints, `how` lets it fail."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lldpd"
        self.path = install(folder / "bin", "switches", ["lldpctl"], str(self._file))
        self.environment = {"PATH": f"{self.path}:{os.environ['PATH']}"}
        self.program = str(self.path / "lldpctl")
        self.see()

    def see(self, *seen: tuple[str, dict[str, Any]]) -> None:
        """Print these neighbours from now on."""
        self.print(json0([*seen]))

    def print(self, text: str) -> None:
        """Print this text from now on."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self._file)


def main(name: str, file: str) -> None:
    """The program: the arguments are checked as lldpd's program checks them."""
    text = Path(file).read_text()
    if sys.argv[1:] not in (["-f", "json0"], ["-f", "json"]):
        sys.exit(f"{name}: {USAGE}: {sys.argv[1:]}")
    if text == "hang":
        time.sleep(600)
    if text == "no daemon":
        sys.stderr.write(NO_DAEMON)
        sys.exit(1)
    sys.stdout.write(text)


def topology(links: dict[int, tuple[int, int, str]]) -> str:
    """The output of ibnetdiscover: by GUID of an adapter's port, the GUID of its switch, the port
    of the switch, and the switch's description.
    """
    lines = ["#", "# Topology file: generated on Mon Nov  2 10:00:00 2026", "#"]
    lines += ["# Initiated from node 02fe5a0000180001 port 02fe5a0000180001", ""]
    switches = {guid: description for guid, _, description in links.values()}
    for guid, description in switches.items():
        lines += ["vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid:x}"]
        lines += [f"switchguid=0x{guid:x}({guid:x})"]
        head = f'Switch\t129 "S-{guid:016x}"'
        lines += [f'{head}\t\t# "{description}" enhanced port 0 lid 12 lmc 0']
        for adapter, (switch, port, _) in links.items():
            if switch == guid:
                far = f'"H-{adapter:016x}"[1]({adapter:x}) '
                lines += [f'[{port}]\t{far}\t\t# "node-1 mlx5_0" lid 33 4xNDR']
        lines += ['[65]\t"S-02fe5a00ff000001"[3]\t\t# "MF0;spine-1:MQM9700/U1" lid 2 4xNDR', ""]
    for adapter, (switch, port, description) in links.items():
        lines += ["vendid=0x2c9", "devid=0x1021", f"sysimgguid=0x{adapter:x}"]
        lines += [f"caguid=0x{adapter:x}", f'Ca\t1 "H-{adapter:016x}"\t\t# "node-1 mlx5_0"']
        near = f'[1]({adapter:x}) \t"S-{switch:016x}"[{port}]'
        lines += [f'{near}\t\t# lid 33 lmc 0 "{description}" lid 12 4xNDR', ""]
    return "\n".join(lines) + "\n"
