"""RDMA devices and network interfaces of a simulated node: a sysfs tree of small files.

`Machine(folder, mlx5_infiniband=8)` writes the tree. Its methods take ports down, lower their rate,
let them flap, and remove devices and add them again. `folder` is the value of `--path.sysfs`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from testbed.trees import write

# Counters of performance management, as every driver that has them names its files.
LINK_COUNTERS = (
    "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery "
    "local_link_integrity_errors multicast_rcv_packets multicast_xmit_packets "
    "port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets "
    "port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors "
    "port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error "
    "unicast_rcv_packets unicast_xmit_packets"
).split()
MLX5_COUNTERS = (
    "duplicate_request implied_nak_seq_err lifespan local_ack_timeout_err out_of_buffer "
    "out_of_sequence packet_seq_err req_cqe_error req_cqe_flush_error req_remote_access_errors "
    "req_remote_invalid_request resp_cqe_error resp_cqe_flush_error resp_local_length_error "
    "resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans roce_adp_retrans_to "
    "roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans rx_atomic_requests "
    "rx_dct_connect rx_icrc_encapsulated rx_read_requests rx_write_requests"
).split()
MLX5_ROCE_COUNTERS = "np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled rp_cnp_ignored".split()
BNXT_COUNTERS = (
    "active_qps rx_pkts rx_bytes tx_pkts tx_bytes recoverable_errors rx_roce_errors "
    "rx_roce_discards to_retransmits seq_err_naks_rcvd max_retry_exceeded rnr_naks_rcvd "
    "missing_resp unrecoverable_err bad_resp_err local_qp_op_err local_protection_err "
    "remote_access_err dup_req oos_drop_count rx_out_of_buffer"
).split()
IRDMA_COUNTERS = [
    *"cnpHandled cnpIgnored cnpSent RxECNMrkd RxUDP TxUDP InRdmaReads RetransSegs".split(),
    *("Nak Sequence Error", "RTO", "Rcvd Out of order packets", "CRC errors", "RNR sent"),
]
HNS_COUNTERS = "aeqe ceqe cmds cmds_err qp_create_err qp_modify_err mr_reg_err rx_rc_pkt".split()
NO_PMA = "N/A (no PMA)"
ACTIVE, DOWN = "4: ACTIVE", "1: DOWN"
NO_GID = ":".join(["0000"] * 8)
STATISTICS = (
    "rx_bytes tx_bytes rx_packets tx_packets rx_errors tx_errors rx_dropped tx_dropped "
    "rx_missed_errors rx_crc_errors tx_carrier_errors"
).split()


class Kind(msgspec.Struct, frozen=True):
    """A kind of RDMA device: the names of its device and interface, and its counters.

    `link_counters` is the content of the files in `counters/`; None where that does not exist.
    """

    device: str
    interface: str
    layer: str
    rate_gigabits: int
    rate_name: str
    driver: str
    hca_type: str
    board_id: str
    firmware: str
    counters: tuple[str, ...]
    link_counters: str | None = "0"


KINDS = {
    "mlx5_infiniband": Kind(
        *("mlx5_{}", "ibp{}s0", "InfiniBand", 400, "4X NDR", "mlx5_core"),
        *("MT4129", "TB_0000000042", "28.99.1000", tuple(MLX5_COUNTERS)),
    ),
    "mlx5_roce": Kind(
        *("mlx5_{}", "ens{}f0np0", "Ethernet", 200, "2X NDR", "mlx5_core"),
        *("MT4129", "TB_0000000043", "28.99.1000", (*MLX5_COUNTERS, *MLX5_ROCE_COUNTERS)),
    ),
    "bnxt_re": Kind(
        *("bnxt_re{}", "enp{}s0f0np0", "Ethernet", 100, "4X EDR", "bnxt_en"),
        *("BCM57508", "TB57508", "229.0.1.0", tuple(BNXT_COUNTERS)),
    ),
    "irdma": Kind(
        *("irdma{}", "enp{}s0f1", "Ethernet", 100, "4X EDR", "ice"),
        *("IRDMA", "TBE810", "1.71", tuple(IRDMA_COUNTERS), None),
    ),
    "hns": Kind(
        *("hns_{}", "enp{}s0f2", "Ethernet", 100, "4X EDR", "hns3"),
        *("HIP09", "TB189", "9.9", tuple(HNS_COUNTERS), NO_PMA),
    ),
}


class Machine:
    """A tree below `folder`. Devices are numbered by their kind of name, PCI slots in sequence."""

    def __init__(self, folder: Path, gid_rows: int = 8, **counts: int) -> None:
        self.folder = folder
        self.flags = (f"--path.sysfs={folder}",)
        self._gid_rows = gid_rows
        self._homes: dict[str, Path] = {}
        self._slot = 0x10
        for name in ("infiniband", "net"):
            (folder / "class" / name).mkdir(parents=True, exist_ok=True)
        self.ports: list[str] = []
        self.interfaces: dict[str, str] = {}
        """The interface of each device."""
        numbers: dict[str, int] = {}
        for kind_name, count in counts.items():
            kind = KINDS[kind_name]
            for _ in range(count):
                number = numbers.setdefault(kind.device, 0)
                numbers[kind.device] += 1
                self._add(kind, number)

    def _add(self, kind: Kind, number: int) -> None:
        self._slot += 8
        bus_id = f"0000:{self._slot:02x}:00.0"
        home = self.folder / "devices" / bus_id
        device, interface = kind.device.format(number), kind.interface.format(self._slot)
        port = f"infiniband/{device}/ports/1"
        roce = kind.layer == "Ethernet"
        files = {
            f"infiniband/{device}/fw_ver": kind.firmware,
            f"infiniband/{device}/hca_type": kind.hca_type,
            f"infiniband/{device}/board_id": kind.board_id,
            f"infiniband/{device}/node_guid": f"02fe:5a00:00{self._slot:02x}:0001",
            f"{port}/state": ACTIVE,
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/rate": f"{kind.rate_gigabits} Gb/sec ({kind.rate_name})",
            f"{port}/link_layer": kind.layer,
            f"{port}/lid": "0x0" if roce else f"0x{self._slot:x}",
        }
        files |= {f"{port}/hw_counters/{name}": "0" for name in kind.counters}
        if "lifespan" in kind.counters:
            files[f"{port}/hw_counters/lifespan"] = "12"
        if kind.link_counters is not None:
            files |= {f"{port}/counters/{name}": kind.link_counters for name in LINK_COUNTERS}
        files |= self._interface_files(interface, kind.rate_gigabits * 1000 if roce else -1, roce)
        if roce:
            files |= self._gid_files(port, interface)
        else:
            guid = f"02fe:5a00:00{self._slot:02x}:0001"
            files[f"{port}/gids/0"] = f"fe80:0000:0000:0000:{guid}"
        write(home, {name: f"{text}\n" for name, text in files.items()})
        self._homes[device] = home
        (home / "infiniband" / device / "device").symlink_to(f"../../../{bus_id}")
        (home / "net" / interface / "device").symlink_to(f"../../../{bus_id}")
        (home / "driver").symlink_to(f"../../bus/pci/drivers/{kind.driver}")
        self.interfaces[device] = interface
        self.ports.append(f"{device}/1")
        self._link(device)

    def _interface_files(self, name: str, speed: int, up: bool) -> dict[str, str]:
        files = {
            "operstate": "up" if up else "down",
            "carrier": "1" if up else "0",
            "flags": "0x1003",
            "type": "1" if up else "32",
            "speed": str(speed),
            "duplex": "full",
            "mtu": "9000",
            "dev_port": "0",
            "ifindex": str(self._slot),
            "address": f"02:5a:00:00:00:{self._slot:02x}",
            "carrier_changes": "1",
            "carrier_down_count": "0",
        }
        files |= {f"statistics/{counter}": "0" for counter in STATISTICS}
        return {f"net/{name}/{file}": text for file, text in files.items()}

    def _gid_files(self, port: str, interface: str) -> dict[str, str]:
        host = f"fe80:0000:0000:0000:005a:00ff:fe00:00{self._slot:02x}"
        ipv4 = f"0000:0000:0000:0000:0000:ffff:0a01:{self._slot:04x}"
        rows = {0: (host, "IB/RoCE v1"), 1: (host, "RoCE v2")}
        rows |= {2: (ipv4, "IB/RoCE v1"), 3: (ipv4, "RoCE v2")}
        files = {f"{port}/gids/{row}": NO_GID for row in range(self._gid_rows)}
        for row, (address, kind) in rows.items():
            files[f"{port}/gids/{row}"] = address
            files[f"{port}/gid_attrs/types/{row}"] = kind
            files[f"{port}/gid_attrs/ndevs/{row}"] = interface
        return files

    def _link(self, device: str) -> None:
        home = f"../../devices/{self._homes[device].name}"
        interface = self.interfaces[device]
        for group, name in (("infiniband", device), ("net", interface)):
            (self.folder / "class" / group / name).symlink_to(f"{home}/{group}/{name}")

    def path(self, port: str, file: str) -> Path:
        """The path of a port's file, without symbolic links."""
        device, _, number = port.partition("/")
        return self._homes[device] / "infiniband" / device / "ports" / number / file

    def set(self, port: str, **files: object) -> None:
        """Write files of a port; `counters__symbol_error=3` writes `counters/symbol_error`."""
        for name, value in files.items():
            self._put(self.path(port, name.replace("__", "/")), value)

    def set_interface(self, interface: str, **files: object) -> None:
        """Write files of a network interface."""
        folder = (self.folder / "class/net" / interface).resolve()
        for name, value in files.items():
            self._put(folder / name.replace("__", "/"), value)

    def _put(self, path: Path, value: object) -> None:
        """Replace a file atomically, as a file of sysfs changes: no read returns a part of it."""
        draft = self.folder.with_suffix(".draft")
        draft.write_text(f"{value}\n")
        draft.replace(path)

    def count(self, port: str, file: str, more: int = 1) -> None:
        """Increase a counter."""
        path = self.path(port, file)
        self._put(path, int(path.read_text()) + more)

    def down(self, port: str, counted: bool = True) -> None:
        """Take a port's link down, as a removed cable does; not all drivers count it."""
        self.set(port, state=DOWN, phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
        device = port.partition("/")[0]
        if self._roce(port):
            self.set_interface(self.interfaces[device], operstate="down", carrier=0)
        if counted:
            self._count_drop(port)

    def up(self, port: str, rate: str = "400 Gb/sec (4X NDR)") -> None:
        """Bring a port's link up, at a rate in the format of sysfs."""
        self.set(port, state=ACTIVE, phys_state="5: LinkUp", rate=rate)
        if self._roce(port):
            interface = self.interfaces[port.partition("/")[0]]
            speed = int(float(rate.split()[0]) * 1000)
            self.set_interface(interface, operstate="up", carrier=1, speed=speed)

    def flap(self, port: str, times: int = 1) -> None:
        """Let the link go down and up between two runs."""
        for _ in range(times):
            self._count_drop(port)

    def _roce(self, port: str) -> bool:
        return self.path(port, "link_layer").read_text() == "Ethernet\n"

    def _count_drop(self, port: str) -> None:
        if self._roce(port):
            interface = self.interfaces[port.partition("/")[0]]
            folder = (self.folder / "class/net" / interface).resolve()
            count = int((folder / "carrier_down_count").read_text())
            self.set_interface(interface, carrier_down_count=count + 1)
        else:
            self.count(port, "counters/link_downed")

    def vanish(self, device: str) -> None:
        """Remove a device from the bus, and its directories as the kernel does."""
        for group, name in (("infiniband", device), ("net", self.interfaces[device])):
            (self.folder / "class" / group / name).unlink()
        self._homes[device].rename(self._gone(device))

    def come_back(self, device: str) -> None:
        """Add a removed device again."""
        self._gone(device).rename(self._homes[device])
        self._link(device)

    def _gone(self, device: str) -> Path:
        return self.folder.with_suffix(f".gone-{device}")

    def rename(self, device: str, name: str) -> None:
        """Rename a device, as udev rules do."""
        home = self._homes.pop(device)
        (self.folder / "class/infiniband" / device).unlink()
        (home / "infiniband" / device).rename(home / "infiniband" / name)
        link = self.folder / "class/infiniband" / name
        link.symlink_to(f"../../devices/{home.name}/infiniband/{name}")
        self._homes[name] = home
        self.interfaces[name] = self.interfaces.pop(device)

    def bond(self, name: str, *members: str, speed: int) -> None:
        """Add a bond of interfaces."""
        home = f"devices/virtual/net/{name}"
        files = self._interface_files(name, speed, True)
        moved = {
            f"{home}/{file.partition('/')[2].partition('/')[2]}": t for file, t in files.items()
        }
        moved[f"{home}/bonding/slaves"] = " ".join(members)
        write(self.folder, {file: f"{text}\n" for file, text in moved.items()})
        (self.folder / "class/net" / name).symlink_to(f"../../{home}")
        for member in members:
            folder = (self.folder / "class/net" / member).resolve()
            write(folder, {"bonding_slave/mii_status": "up\n"})

    def virtual_interface(self, name: str) -> None:
        """Add an interface without a device."""
        home = f"devices/virtual/net/{name}"
        write(self.folder, {f"{home}/ifindex": "900\n", f"{home}/operstate": "up\n"})
        (self.folder / "class/net" / name).symlink_to(f"../../{home}")

    def remove_tree(self) -> None:
        """Remove all RDMA devices, as unloading the drivers does."""
        shutil.rmtree(self.folder / "class/infiniband")
