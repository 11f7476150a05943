"""Disks of a simulated node: sysfs, device files whose ioctl is answered, and a smartctl for PATH.

`Machine(folder)` has none; `nvme`, `sata`, `sas`, `array`, `mapping` add one. Names and numbers are
invented. The shape of smartctl's output is that of smartmontools 7.4.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.programs import install
from testbed.trees import write

SOURCE = Path(__file__).with_name("nvmeioctl.c")
PAGE_BYTES, IDENTIFY_BYTES = 512, 4096
CAP_SYS_RAWIO, CAP_SYS_ADMIN = 17, 21
# Offset and size in the health page.
FIELDS = {
    "warnings": (0, 1),
    "kelvin": (1, 2),
    "spare": (3, 1),
    "threshold": (4, 1),
    "used": (5, 1),
    "units_read": (32, 16),
    "units_written": (48, 16),
    "hours": (128, 16),
    "unsafe_shutdowns": (144, 16),
    "media_errors": (160, 16),
    "log_entries": (176, 16),
}
HEALTHY = {"kelvin": 311, "spare": 100, "threshold": 10, "used": 3, "hours": 1000} | {
    "units_read": 5_000_000,
    "units_written": 2_000_000,
    "unsafe_shutdowns": 7,
}
ATTRIBUTES = {
    5: "Reallocated_Sector_Ct",
    177: "Wear_Leveling_Count",
    197: "Current_Pending_Sector",
    198: "Offline_Uncorrectable",
    199: "UDMA_CRC_Error_Count",
}
STAT = "  100 5 2000 300 200 6 4000 500 1 700 800 10 0 8000 20 30 40\n"


def page(**fields: int) -> bytes:
    """A health page: that of a healthy controller, with these fields."""
    data = bytearray(PAGE_BYTES)
    for name, number in {**HEALTHY, **fields}.items():
        offset, size = FIELDS[name]
        data[offset : offset + size] = number.to_bytes(size, "little")
    return bytes(data)


def identify(warning_kelvin: int = 343) -> bytes:
    """The data of Identify Controller, with the temperature at which the controller warns."""
    data = bytearray(IDENTIFY_BYTES)
    data[266:268] = warning_kelvin.to_bytes(2, "little")
    return bytes(data)


def ata(path: str = "/dev/sda", status: int = 0, **more: Any) -> dict[str, Any]:
    """The output for a SATA disk; `more` are raw values by attribute number (`raw_197=3`), left
    (the normalized wear), passed and temperature.
    """
    raw = {
        number: more.get(f"raw_{number}", 0)
        for number in ATTRIBUTES
        if number != 177 or "left" in more
    }
    table = [
        {
            "id": number,
            "name": ATTRIBUTES[number],
            "value": more.get("left", 100) if number == 177 else 100,
            "worst": 100,
            "thresh": 10,
            "raw": {"value": value, "string": str(value)},
        }
        for number, value in raw.items()
    ]
    return {
        **_head(path, "ATA", status),
        "model_name": "Example HDD 8TB",
        "serial_number": "EXHDD0001",
        "firmware_version": "EX01",
        "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": more.get("passed", True)},
        "ata_smart_attributes": {"revision": 16, "table": table},
        "power_on_time": {"hours": 2000},
        "temperature": {"current": more.get("temperature", 35)},
        "ata_smart_error_log": {"summary": {"revision": 1, "count": more.get("logged", 0)}},
    }


def scsi(path: str = "/dev/sdb", status: int = 0, **more: Any) -> dict[str, Any]:
    """The output for a SAS disk; `more` are defects, uncorrected, non_medium, passed."""
    return {
        **_head(path, "SCSI", status),
        "scsi_model_name": "EXAMPLE SAS 4TB",
        "scsi_revision": "E002",
        "serial_number": "EXSAS0001",
        "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": more.get("passed", True)},
        "temperature": {"current": 40, "drive_trip": 65},
        "power_on_time": {"hours": 3000, "minutes": 12},
        "scsi_grown_defect_list": more.get("defects", 0),
        "scsi_percentage_used_endurance_indicator": 12,
        "scsi_error_counter_log": {
            way: {"total_errors_corrected": 9, "total_uncorrected_errors": count}
            for way, count in (("read", more.get("uncorrected", 0)), ("write", 0), ("verify", 0))
        }
        | {"non_medium_error_count": more.get("non_medium", 4)},
    }


def nvme_output(path: str = "/dev/nvme0", **log: int) -> dict[str, Any]:
    """The output for an NVMe disk."""
    return {
        **_head(path, "NVMe", 0),
        "model_name": "Example NVMe 4TB",
        "smart_status": {"passed": True},
        "nvme_composite_temperature_threshold": {"warning": 70, "critical": 80},
        "nvme_smart_health_information_log": {
            "critical_warning": 0,
            "available_spare": 100,
            "available_spare_threshold": 10,
            "percentage_used": 3,
            "media_errors": 0,
            "num_err_log_entries": 2,
            "unsafe_shutdowns": 5,
            "data_units_read": 10,
            "data_units_written": 20,
        }
        | log,
        "temperature": {"current": 38},
        "power_on_time": {"hours": 100},
    }


def refused(path: str, text: str, status: int = 2) -> dict[str, Any]:
    """The output where the disk was not opened, or sleeps."""
    severity = "information" if "mode, exit" in text else "error"
    head = _head(path, "ATA", status)
    head["smartctl"]["messages"] = [{"string": text, "severity": severity}]
    return head


def _head(path: str, protocol: str, status: int) -> dict[str, Any]:
    return {
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 4], "argv": ["smartctl"], "exit_status": status},
        "device": {"name": path, "protocol": protocol},
    }


def _compiled(folder: Path) -> Path:
    library = folder / "nvmeioctl.so"
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return library


class Machine:
    """A node's disks below a folder: `sys`, `dev`, `bin`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sys, self.dev = folder / "sys", folder / "dev"
        (self.sys / "block").mkdir(parents=True, exist_ok=True)
        (self.sys / "class/nvme").mkdir(parents=True, exist_ok=True)
        self.dev.mkdir(exist_ok=True)
        self._answers = folder / "smartctl"
        self._answers.mkdir(exist_ok=True)
        self.bin = install(folder / "bin", "disks", ["smartctl"], str(self._answers))

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which ioctl and smartctl are answered."""
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "LD_PRELOAD": str(_compiled(self.folder)),
            "NVME_DEVICES": str(self.dev),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The probe's settings for this machine."""
        return {"device_directory": str(self.dev), "health_interval": "200ms"}

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags with which `nodevitals` reads this machine."""
        return (f"--path.sysfs={self.sys}",)

    def nvme(self, number: int, namespaces: int = 1, **files: str) -> str:
        """A controller with a healthy page; `files` are those of its directory."""
        name = f"nvme{number}"
        texts = {"transport": "pcie", "state": "live", "model": "Example NVMe 4TB   "} | {
            "serial": f"EXNVME{number:04}  ",
            "firmware_rev": "1.0",
            **files,
        }
        directory = self.sys / "class/nvme" / name
        write(directory, {file: f"{text}\n" for file, text in texts.items()})
        (directory / "device").symlink_to(f"../../../0000:{number:02x}:00.0")
        for count in range(1, namespaces + 1):
            (directory / f"{name}n{count}").mkdir()
            write(self.sys / f"block/{name}n{count}", _block())
            (self.sys / f"block/{name}n{count}/device").symlink_to(f"../../class/nvme/{name}")
        self.page(number)
        return name

    def page(self, number: int, raw: bytes | None = None, **fields: int) -> None:
        """Let the controller have this health page."""
        file = self.dev / f"nvme{number}"
        draft = file.with_suffix(".draft")
        draft.write_bytes((page(**fields) if raw is None else raw) + identify())
        draft.replace(file)

    def answer(self, number: int, how: str) -> None:
        """Let the ioctl fail, hang, or succeed ('')."""
        file = self.dev / f"nvme{number}.how"
        if how:
            draft = file.with_suffix(".draft")
            draft.write_text(how)
            draft.replace(file)
        else:
            file.unlink(missing_ok=True)

    def vanish(self, name: str) -> None:
        """The device falls off the bus, with its namespaces."""
        shutil.rmtree(self.sys / "class/nvme" / name, ignore_errors=True)
        for block in self.sys.glob(f"block/{name}*"):
            block.unlink() if block.is_symlink() else shutil.rmtree(block)

    def sata(self, name: str = "sda", place: str = "ata1", **more: Any) -> str:
        """A SATA disk; `more` is for `ata`."""
        self.scsi_device(name, place, "ATA", "Example HDD 8TB", f"EX{name}")
        self.smart(name, ata(f"/dev/{name}", **more))
        return name

    def sas(self, name: str = "sdb", **more: Any) -> str:
        """A SAS disk; `more` is for `scsi`."""
        self.scsi_device(name, "port-1:0/end_device-1:0", "EXAMPLE", "SAS 4TB", f"EX{name}")
        self.smart(name, scsi(f"/dev/{name}", **more))
        return name

    def scsi_device(
        self, name: str, place: str, vendor: str, model: str, serial: str, **files: str
    ) -> None:
        """A SCSI device at a place of sysfs, without an answer of smartctl."""
        address = f"{len([*self.sys.glob('block/sd*')])}:0:0:0"
        device = self.sys / "devices/pci0000:00/0000:00:17.0" / place / address
        write(device, {"vendor": f"{vendor:8}\n", "model": f"{model:16}\n", "rev": "EX01\n"})
        write(device, {"state": "running\n"})
        (device / "vpd_pg80").write_bytes(b"\0\x80\0" + bytes([len(serial)]) + serial.encode())
        write(device / "block" / name, _block() | files)
        (device / "block" / name / "device").symlink_to(f"../../../{address}")
        target = os.path.relpath(device / "block" / name, self.sys / "block")
        (self.sys / "block" / name).symlink_to(target)
        (self.dev / name).write_text("")

    def smart(self, name: str, answer: dict[str, Any] | str, kind: str = "") -> None:
        """Let smartctl print this: a document, or a text; `@hang`, `@flood`."""
        text = answer if isinstance(answer, str) else json.dumps(answer)
        file = self._answers / f"{name}{kind and '+'}{kind}"
        draft = file.with_name(f".{file.name}")
        draft.write_text(text)
        draft.replace(file)

    def calls(self) -> list[list[str]]:
        """The arguments of each call of smartctl."""
        log = self._answers / ".calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def array(self, name: str = "md0", **files: str) -> None:
        """An md array of two mirrored disks; `files` of its directory, with __ for a slash."""
        texts = {
            "level": "raid1",
            "array_state": "active",
            "raid_disks": "2",
            "degraded": "0",
            "mismatch_cnt": "0",
            "sync_action": "idle",
            "sync_completed": "none",
            "dev-nvme0n1/state": "in_sync",
            "dev-nvme1n1/state": "in_sync",
        } | {file.replace("__", "/"): text for file, text in files.items()}
        write(self.sys / f"block/{name}/md", {file: f"{text}\n" for file, text in texts.items()})
        write(self.sys / f"block/{name}", {"stat": STAT, "size": "4096\n"})

    def mapping(self, name: str, label: str, uuid: str, slaves: tuple[str, ...] = ()) -> None:
        """A device-mapper device over these disks."""
        files = {"dm/name": label, "dm/uuid": uuid, "dm/suspended": "0"}
        write(self.sys / f"block/{name}", {file: f"{text}\n" for file, text in files.items()})
        (self.sys / f"block/{name}/slaves").mkdir()
        for slave in slaves:
            (self.sys / f"block/{name}/slaves/{slave}").symlink_to(f"../../{slave}")


def _block() -> dict[str, str]:
    return {"stat": STAT, "size": "7814037168\n", "removable": "0\n"}


def _may_pass_commands(name: str) -> bool:
    """As the kernel: NVMe takes CAP_SYS_ADMIN, ATA's pass-through CAP_SYS_RAWIO."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    number = CAP_SYS_ADMIN if name.startswith("nvme") else CAP_SYS_RAWIO
    return bool(int(effective.split()[1], 16) >> number & 1)


def main(name: str, answers: str) -> None:
    """The program: the arguments are checked."""
    given = sys.argv[1:]
    with open(Path(answers, ".calls"), "a", encoding="ascii") as log:
        log.write(json.dumps(given) + "\n")
    path, options = Path(given[-1]), given[:-1]
    kind = options[options.index("-d") + 1] if "-d" in options else ""
    expected = ["--json=c", "-a"]
    expected += [] if path.name.startswith("nvme") else ["-n", "standby"]
    expected += ["-d", kind] if kind else []
    if options != expected or not path.is_absolute():
        print(f"{name}: unrecognized option; use smartctl -h: {given}")
        sys.exit(1)
    file = Path(answers, f"{path.name}{kind and '+'}{kind}")
    if not _may_pass_commands(path.name):
        text = f"Read Device Identity of {path} failed: Operation not permitted"
        print(json.dumps(refused(str(path), text)))
        sys.exit(2)
    if not path.exists() or not file.exists():
        text = f"Smartctl open device: {path} failed: No such device"
        print(json.dumps(refused(str(path), text)))
        sys.exit(2)
    text = file.read_text()
    if text == "@hang":
        time.sleep(600)
    while text == "@flood":
        os.write(1, b"{" * 65536)
    sys.stdout.write(text)
    status = text and text[0] == "{" and text.endswith("}") and json.loads(text)
    sys.exit(status["smartctl"]["exit_status"] if status else 0)
