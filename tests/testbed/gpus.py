"""Simulated GPU machines: a state file for the stand-in libnvidia-ml, and the trees beside it.

`Machine(folder, "H100").start()` builds eight GPUs; its methods inject faults into them. Only the
library that `library` compiles is simulated; it reads the state file.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from testbed import trees

SOURCE = Path(__file__).parent / "nvml/libnvidia-ml.c"
GIB = 1 << 30
# Field ids of nvml.h
RECOVERY_ACTION = 230
MEMORY_TEMPERATURE = 82
LINK_COUNT = 91
SW_POWER_CAP = 74
# Slowdowns by software and heat, hardware and heat, power brake: since this driver.
SLOWDOWN_IDS = {(580, 82): (269, 270, 271), (575, 0): (251, 252, 253)}
POWER_SMOOTHING_IDS = {
    (580, 82): (251, 252, 253),
    (575, 0): (269, 270, 271),
    (570, 0): (251, 252, 253),
}
HOPPER_NVLINK_FIELDS = (161, 162, 163)
BLACKWELL_NVLINK_FIELDS = (*range(206, 213), 214, 215, 219, 221)
# Bytes of all links together (scope 0xFFFFFFFF): in KiB up to Hopper, in bytes on Blackwell.
ALL_LINKS = 0xFFFF_FFFF
NVLINK_KIB_SENT, NVLINK_KIB_RECEIVED = 138, 139
NVLINK_BYTES_SENT, NVLINK_BYTES_RECEIVED = 202, 204
PCIE_BYTES_SENT, PCIE_BYTES_RECEIVED = 197, 198
C2C_LINKS, C2C_ERRORS = 170, (231, 232, 233)
FEC_HISTORY = tuple(range(235, 251))
# Summed fields of older drivers, which Hopper answers with 0 whatever happened.
LEGACY_NVLINK_FIELDS = (38, 45, 52, 59, 160)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU model supports."""

    name: str
    memory_gib: int
    links: int = 0
    link_fields: tuple[int, ...] = ()
    link_functions: bool = False
    sram: bool = True
    remaps_rows: bool = True
    fabric: bool = False
    margin: bool = False
    recovery: bool = True
    ecc: bool = True
    mig: bool = True
    serial: bool = True
    pcie_generation: int = 5
    cumulative_slowdown: bool = True
    nvlink5: bool = False
    gpm: bool = False
    narrow_fields: tuple[int, ...] = ()
    """The fields of 32 bits."""


MODELS = {
    "A100": Model(
        name="NVIDIA A100-SXM4-80GB",
        memory_gib=80,
        links=12,
        link_functions=True,
        pcie_generation=4,
        recovery=False,
        cumulative_slowdown=False,
    ),
    "H100": Model(
        name="NVIDIA H100 80GB HBM3",
        memory_gib=80,
        links=18,
        link_fields=HOPPER_NVLINK_FIELDS,
        gpm=True,
        fabric=True,
        margin=True,
    ),
    "B200": Model(
        name="NVIDIA B200",
        memory_gib=180,
        links=18,
        link_fields=BLACKWELL_NVLINK_FIELDS,
        nvlink5=True,
        gpm=True,
        fabric=True,
        margin=True,
    ),
    "V100": Model(
        name="Tesla V100-SXM2-32GB",
        memory_gib=32,
        links=6,
        link_functions=True,
        sram=False,
        remaps_rows=False,
        recovery=False,
        mig=False,
        pcie_generation=3,
        cumulative_slowdown=False,
    ),
    "RTX4090": Model(
        name="NVIDIA GeForce RTX 4090",
        memory_gib=24,
        sram=False,
        remaps_rows=False,
        recovery=False,
        ecc=False,
        mig=False,
        serial=False,
        pcie_generation=4,
    ),
}
# As driver 580.159 returns it.
MODELS["H200"] = msgspec.structs.replace(
    MODELS["H100"],
    name="NVIDIA H200",
    memory_gib=141,
    narrow_fields=(
        *(MEMORY_TEMPERATURE, LINK_COUNT, RECOVERY_ACTION),
        *(PCIE_BYTES_SENT, PCIE_BYTES_RECEIVED),
    ),
)
# The first slot number of MIG instances in the state file: seven for each GPU.
MIG_SLOTS = 8
# GPM: graphics, SM, occupancy, integer, tensor, DRAM, FP64, FP32, FP16 in percent; PCIe in MiB/s.
GPM = {f"gpm.{metric}": 50 for metric in (1, 2, 3, 4, 5, 10, 11, 12, 13, 20, 21)}
SLOTS = ("18", "2a", "3b", "5d", "9a", "ab", "ba", "db")


@cache
def library(hidden: tuple[str, ...] = ()) -> Path:
    """Return the stand-in, compiled; `hidden` are functions that an older driver lacks.

    The folder's name has a digest of the source: several working trees may share `.tools`.
    """
    compiler = shutil.which("cc")
    assert compiler is not None, "there is no C compiler: tools/setup"
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = Path(__file__).parents[2] / ".tools" / "-".join(("nvml", digest, *hidden))
    made = folder / "libnvidia-ml.so.1"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "version-script"
    script.write_text(f"{{ global: nvml*; local: {''.join(f'{name}; ' for name in hidden)}*; }};")
    draft = folder / f"draft.{uuid4().hex}"  # pids of workers are alike
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    flags += ["-Wl,-soname,libnvidia-ml.so.1", f"-Wl,--version-script={script}"]
    subprocess.run([compiler, *flags, "-o", draft, SOURCE], check=True)
    draft.replace(made)
    return made


class Machine:
    """One machine and its trees, under `folder`: `proc`, `sys`, `nvml.state`."""

    def __init__(
        self, folder: Path, model: str = "H100", gpus: int = 8, driver: str = "580.95.05"
    ) -> None:
        self.folder = folder
        self.driver = driver
        self.model = MODELS[model]
        self.slots = [f"0000:{bus}:00" for bus in SLOTS[:gpus]]
        self.state: dict[str, str] = {}
        self.hidden: tuple[str, ...] = ()
        self._state_file = folder / "nvml.state"
        self._events = folder / "nvml.state.events"

    def start(self) -> Machine:
        """Boot it with every GPU healthy."""
        trees.procfs(self.folder / "proc")
        trees.sysfs(self.folder / "sys")
        self._events.write_text("")
        self._load_driver(self.driver)
        self.state |= {"cuda": "12080", "generation": "1", "events": "1"}
        for number, slot in enumerate(self.slots):
            self._add_device(slot)
            self.state |= self._gpu(number, slot)
        self.state["gpus"] = " ".join(str(number) for number in range(len(self.slots)))
        self.write()
        return self

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the stand-in finds its state."""
        return {"NVML_STATE": str(self._state_file)}

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags with which `nodevitals` reads this machine's trees."""
        return (f"--path.procfs={self.folder / 'proc'}", f"--path.sysfs={self.folder / 'sys'}")

    @property
    def settings(self) -> dict[str, Any]:
        """The probe's settings for this machine."""
        return {"library": str(library(self.hidden))}

    def uuid(self, number: int) -> str:
        """A GPU's uuid."""
        return self.state[f"{number}.uuid"]

    def set(self, number: int, **values: object) -> None:
        """Change what calls on a GPU return; `__` stands for a dot in a key."""
        for name, value in values.items():
            self.state[f"{number}.{name.replace('__', '.')}"] = str(value)
        self.write()

    def remove(self, *keys: str) -> None:
        """Remove keys: their calls become unsupported, or a fault ends."""
        for key in keys:
            self.state.pop(key, None)
        self.write()

    def set_field(self, number: int, field: int, value: object, link: int = 0) -> None:
        """Change a field value of a GPU."""
        self.set(number, **{f"field__{field}__{link}": value})

    def add_field(self, number: int, field: int, amount: int, link: int = 0) -> None:
        """Add to a counter."""
        key = f"{number}.field.{field}.{link}"
        self.set_field(number, field, int(self.state[key]) + amount, link)

    def lose(self, number: int, code: int = 15) -> None:
        """Let every call on a GPU return GPU_IS_LOST (15) or Unknown Error (999)."""
        self.set(number, error=f"!{code}")

    def hang(self) -> None:
        """Let the driver return to no process."""
        self.state["count"] = "@hang"
        self.write()

    def recover(self, number: int) -> None:
        """Let a lost GPU answer again."""
        self.remove(f"{number}.error")

    def vanish(self, number: int) -> None:
        """Let a GPU be dead since boot: the PCI bus lists it, the driver and NVML do not."""
        self._entry(number).rmdir()
        self.refuse(number)

    def unbind(self, number: int) -> None:
        """Let the driver no longer have a GPU."""
        self._entry(number).rmdir()
        self._link(number).rename(
            self.folder / f"departed-{uuid4().hex}"
        )  # its inode is not given again

    def refuse(self, number: int) -> None:
        """Let NVML be unable to open a GPU that the driver has: NVML does not list it."""
        listed = [one for one in self.state["gpus"].split() if one != str(number)]
        self.state["gpus"] = " ".join(listed)
        self.write()

    def admit(self, number: int) -> None:
        """Let NVML list a GPU again."""
        self.state["gpus"] = " ".join(sorted({*self.state["gpus"].split(), str(number)}, key=int))
        self.write()

    def bind(self, number: int) -> None:
        """Let the driver have a GPU again. As in sysfs, the link has another inode."""
        self._entry(number).mkdir()
        self._link(number).unlink(missing_ok=True)
        self._link(number).symlink_to("../../../bus/pci/drivers/nvidia")

    def bind_to_vfio(self, number: int, driver: str = "vfio-pci") -> None:
        """Bind a GPU to a driver of VFIO, for a virtual machine."""
        self._link(number).unlink()
        self._link(number).symlink_to(f"../../../bus/pci/drivers/{driver}")

    def partition(self, number: int, *profiles: str) -> None:
        """Turn MIG on, with one instance per profile; a profile may be empty, for a gap.

        The GPU then counts volatile memory errors only by instance.
        """
        for key in [key for key in self.state if key.startswith(f"{number}.ecc.")]:
            if key.split(".")[3] == "0":
                del self.state[key]
        self.state[f"{number}.mig_mode"] = "1"
        self.state[f"{number}.mig_max"] = "7"
        for index, profile in enumerate(profiles):
            if profile:
                self._add_instance(number, index, profile)
        self.write()

    def _add_instance(self, number: int, index: int, profile: str) -> None:
        slot = MIG_SLOTS + 7 * number + index
        uuid = self.uuid(number).replace("GPU-", "MIG-")
        one = {
            "uuid": f"{uuid[:-1]}{index}",
            "name": f"{self.model.name} MIG {profile}",
            "gpu_instance": index + 7,
            "compute_instance": 0,
            "memory_total": 10 * GIB,
            "memory_used": GIB,
            "processes": 1,
            "ecc.1.0.7": 0,
        }
        self.state |= {f"{slot}.{key}": str(value) for key, value in one.items()}
        self.state[f"{number}.mig.{index}"] = str(slot)

    def raise_xid(self, number: int, xid: int) -> None:
        """Let NVML report an Xid."""
        with self._events.open("a") as events:
            events.write(f"{number} {xid}\n")

    def upgrade_library(self, version: str) -> None:
        """Replace the library on disk, with the old driver still loaded."""
        self.state["library"] = version
        self.write()

    def reload_driver(self, version: str) -> None:
        """Load another driver: a process that has started the library must start again."""
        self._load_driver(version)
        self.state["generation"] = str(int(self.state["generation"]) + 1)
        self.write()

    def unload_driver(self) -> None:
        """Unload the driver, also from processes that have started the library."""
        shutil.rmtree(self.folder / "proc/driver")
        for key in ("driver", "gpus"):
            self.state.pop(key, None)
        self.state["generation"] = "0"
        self.write()

    def write(self) -> None:
        """Replace the state file, sorted as the library requires."""
        draft = self._state_file.with_suffix(".new")
        lines = sorted(self.state.items(), key=lambda item: item[0].encode())
        draft.write_text("".join(f"{key}\t{value}\n" for key, value in lines))
        draft.replace(self._state_file)

    def _load_driver(self, version: str) -> None:
        self.state |= {"driver": version, "library": version}
        text = (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
        )
        trees.write(self.folder / "proc/driver/nvidia", {"version": text})
        for slot in self.slots:
            (self.folder / "proc/driver/nvidia/gpus" / f"{slot}.0").mkdir(
                parents=True, exist_ok=True
            )

    def _entry(self, number: int) -> Path:
        """What the driver lists of a GPU."""
        return self.folder / "proc/driver/nvidia/gpus" / f"{self.slots[number]}.0"

    def _link(self, number: int) -> Path:
        """The link to a GPU's driver."""
        return self.folder / "sys/bus/pci/devices" / f"{self.slots[number]}.0" / "driver"

    def _add_device(self, slot: str) -> None:
        device = self.folder / "sys/bus/pci/devices" / f"{slot}.0"
        trees.write(device, {"vendor": "0x10de\n", "class": "0x030200\n"})
        drivers = self.folder / "sys/bus/pci/drivers/nvidia"
        drivers.mkdir(parents=True, exist_ok=True)
        if not (device / "driver").is_symlink():
            (device / "driver").symlink_to(drivers)
        trees.write(
            self.folder / "sys/bus/pci/devices" / slot.replace(":00", ":01.0"),
            {"vendor": "0x15b3\n", "class": "0x020700\n"},
        )

    def _gpu(self, number: int, slot: str) -> dict[str, str]:
        model = self.model
        one = {
            "bus": f"0000{slot}.0",
            "uuid": f"GPU-{number:08x}-1111-4222-8333-{self.folder.name.encode().hex()[:12]:0>12}",
            "name": model.name,
            "vbios": "96.00.74.00.0A",
            "minor": number,
            "temperature": 40 + number,
            "threshold.1": 90,
            "power": 120_500,
            "power_limit": 700_000,
            "utilization": 50,
            "memory_total": model.memory_gib * GIB,
            "memory_used": 10 * GIB,
            "clock.1": 1980,
            "persistence": 1,
            "clock_reasons": 0,
            "processes": 2,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_generation": model.pcie_generation,
            "pcie_generation_max": model.pcie_generation,
            "pcie_replays": 7,
            "event_types": 31,
            "energy": 5_000_000_000,
            "performance_state": 0,
            "power_limit_default": 700_000,
            "clock.2": 2619,
            "encoder": 0,
            "decoder": 25,
        }
        if model.serial:
            one["serial"] = f"16500000000{number:02d}"
        if model.margin:
            one["margin"] = 47
            del one["threshold.1"]
        if model.mig:
            one["mig_mode"] = 0
        if model.ecc:
            one |= {"ecc_mode": 1} | _ecc(model)
        if model.remaps_rows:
            one["remapped"] = "0 0 0 0"
            one["remap_banks"] = "640 0 0 0 0"
            one["sram_threshold"] = 0
        elif model.ecc:
            one |= {"retired.0": 0, "retired.1": 0, "retired_pending": 0}
        if model.gpm:
            one |= {"gpm": 1} | GPM
        if model.fabric:
            one["fabric"] = "3 0 0x0 0"
        one |= _fields(model) | _slowdown_fields(model, self.driver)
        one |= {f"field_type.{field}": 1 for field in model.narrow_fields}
        return {f"{number}.{key}": str(value) for key, value in one.items()}


def _ecc(model: Model) -> dict[str, int]:
    locations: Iterable[object] = (2, 7) if model.sram else (0, 1, 2, 3)
    return {
        f"ecc.{kind}.{lifetime}.{location}": 0
        for kind in (0, 1)
        for lifetime in (0, 1)
        for location in (*locations, "all")
    }


def _fields(model: Model) -> dict[str, int]:
    found: dict[str, int] = {f"field.{MEMORY_TEMPERATURE}.0": 50, "field.75.0": 0}
    found |= {f"field.{field}.0": 10**12 for field in (PCIE_BYTES_SENT, PCIE_BYTES_RECEIVED)}
    if model.recovery:
        found[f"field.{RECOVERY_ACTION}.0"] = 0
    if model.links:
        found[f"field.{LINK_COUNT}.0"] = model.links
        found |= {f"field.{field}.0": 0 for field in LEGACY_NVLINK_FIELDS}
        found |= {
            f"field.{field}.{ALL_LINKS}": 2**30 for field in (NVLINK_KIB_SENT, NVLINK_KIB_RECEIVED)
        }
    if model.nvlink5:
        counts = (NVLINK_BYTES_SENT, NVLINK_BYTES_RECEIVED, *FEC_HISTORY)
        found |= {f"field.{field}.{ALL_LINKS}": 2**40 + 7 for field in counts}
    for link in range(model.links):
        found[f"nvlink.{link}"] = 1
        found |= {f"field.{field}.{link}": 0 for field in model.link_fields}
        if model.link_functions:
            found |= {f"nvlink_counter.{kind}.{link}": 0 for kind in range(5)}
    return found


def _slowdown_fields(model: Model, driver: str) -> dict[str, int]:
    """The counters under the ids of this driver, and the settings that have the other ids."""
    if not model.cumulative_slowdown:
        return {}
    version = tuple(int(number) for number in driver.split(".")[:2])
    ids = next((ids for since, ids in SLOWDOWN_IDS.items() if version >= since), ())
    settings = next((ids for since, ids in POWER_SMOOTHING_IDS.items() if version >= since), ())
    found = {f"field.{field}.0": 0 for field in (SW_POWER_CAP, *ids)}
    return found | {f"field.{field}.0": 12_000_000_000 for field in settings}
