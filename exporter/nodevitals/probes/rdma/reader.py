"""Reads RDMA devices and their ports in sysfs, and defines the families of their counters.

In: /sys/class/infiniband and /sys/class/net; rarely changing values are read once per minute. Out:
`RdmaDevice` and `Port`. The names in `counters/` are those of the PortCounters of InfiniBand's
performance management, the same for every driver; those in `hw_counters/` are each driver's own.
https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Optional

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import (
    exists,
    link_name,
    list_names,
    list_names_or_fail,
    read_label,
    read_text,
)
from nodevitals.probe import Families, Family
from nodevitals.probes.common import links
from nodevitals.probes.common.link_watch import InterfaceFiles, LinkFiles, PortFiles
from nodevitals.probes.common.rdma import Gid, choose_up, find_interface, read_gids

LINK_LAYERS = ("", "InfiniBand", "Ethernet")

metrics = Families("rdma")
PRESENT = metrics.gauge("ports_present", "Number of RDMA ports that exist and are not excluded.")
EXPECTED = metrics.gauge(
    "ports_expected",
    "Number of RDMA ports that the configuration names or that ever existed, less the forgotten.",
)
DEVICE_INFO = metrics.gauge(
    "device_info",
    "Always 1; identity of the RDMA device.",
    "device",
    "node_guid",
    "pci_bus_id",
    "hca_type",
    "board_id",
    "firmware_version",
)

port_metrics = Families("rdma_port", "device", "port", link_layer=LINK_LAYERS)
UP = port_metrics.gauge(
    "up", "Whether the port is active; 0 also for a known port that is missing."
)
STATE = port_metrics.gauge(
    "state_id", "Logical state: 1 down, 2 initializing, 3 armed, 4 active, 5 active deferred."
)
PHYSICAL_STATE = port_metrics.gauge(
    "physical_state_id",
    "Physical state: 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
)
RATE = port_metrics.gauge(
    "rate_bytes_per_second", "Signalling rate; missing while the port is down."
)
EXPECTED_RATE = port_metrics.gauge(
    "expected_rate_bytes_per_second",
    "Rate that the configuration expects, or else the highest that the port ever had.",
)
INTERFACE_UP = port_metrics.gauge(
    "interface_up", "Whether the network interface of a RoCE port is up.", "interface"
)
GID_USABLE = port_metrics.gauge(
    "gid_usable",
    "Whether a RoCE port has a routable RoCE v2 GID on a network interface that is up.",
)
GID_INDEX = port_metrics.gauge(
    "gid_index",
    "Index of the RoCE v2 GID to use: IPv4 before IPv6 before link-local; missing without one.",
)
RECEIVED = port_metrics.counter("received_bytes_total", "Number of bytes received.")
TRANSMITTED = port_metrics.counter("transmitted_bytes_total", "Number of bytes transmitted.")
FLAPS = port_metrics.counter(
    "flaps_total",
    "Number of times the port went down: by the driver's count, or as observed where it has none.",
)
DOWN_SECONDS = port_metrics.counter(
    "down_seconds_total",
    "Time that the port was down after it had been up, to about a second; not while it is "
    "switched off or gone.",
)
LONGEST_DOWN = port_metrics.gauge(
    "longest_down_seconds",
    "Length of the longest outage of the port that goes on or has ended within the last hour.",
)
ERRORS = port_metrics.counter(
    "errors_total", "Number of errors, by the driver's name of the counter.", "counter"
)
CONGESTION = port_metrics.counter(
    "congestion_total",
    "Number of congestion events, by the driver's name of the counter; none of them is an error.",
    "counter",
)
OTHER = port_metrics.counter(
    "other_total",
    "Value of other counters that the configuration selects, by the driver's name.",
    "counter",
)
SATURATED = port_metrics.gauge(
    "saturated",
    "Whether a counter has its maximum value; it then counts no further until it is reset.",
    "counter",
)


# Counters of performance management stop at their maximum. Their widths in bits, by name.
_BITS = {
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "link_downed": 8,
    "link_error_recovery": 8,
    "port_rcv_constraint_errors": 8,
    "port_xmit_constraint_errors": 8,
    "symbol_error": 16,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "VL15_dropped": 16,
    "port_xmit_wait": 32,
}
LIMITS = {name: 2**bits - 1 for name, bits in _BITS.items()}

# Data counters of performance management count words of four bytes.
_WORD_BYTES = 4
_DATA: dict[str, tuple[Family, int]] = {
    "counters/port_rcv_data": (RECEIVED, _WORD_BYTES),
    "counters/port_xmit_data": (TRANSMITTED, _WORD_BYTES),
    # Broadcom's driver has no data counters of performance management.
    "hw_counters/rx_bytes": (RECEIVED, 1),
    "hw_counters/tx_bytes": (TRANSMITTED, 1),
}
# A driver's own counter takes precedence over that of performance management.
_OWN_DATA = {
    "counters/port_rcv_data": "hw_counters/rx_bytes",
    "counters/port_xmit_data": "hw_counters/tx_bytes",
}


def _named(group: str, family: Family, *names: str) -> dict[str, Family]:
    return {f"{group}/{name}": family for name in names}


_FAMILIES: dict[str, Family] = {
    # the link
    **_named("counters", ERRORS, "link_downed", "link_error_recovery", "symbol_error"),
    **_named("counters", ERRORS, "port_rcv_errors", "port_rcv_remote_physical_errors"),
    **_named("counters", ERRORS, "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
    **_named("counters", ERRORS, "port_xmit_discards", "VL15_dropped"),
    **_named("counters", CONGESTION, "port_xmit_wait"),
    # mlx5: transport, congestion, and congestion notifications that were ignored
    **_named("hw_counters", ERRORS, "local_ack_timeout_err", "packet_seq_err", "out_of_sequence"),
    **_named("hw_counters", ERRORS, "implied_nak_seq_err", "rnr_nak_retry_err", "out_of_buffer"),
    **_named("hw_counters", ERRORS, "req_cqe_error", "rx_icrc_encapsulated", "roce_adp_retrans"),
    **_named("hw_counters", ERRORS, "roce_adp_retrans_to", "roce_slow_restart", "rp_cnp_ignored"),
    **_named("hw_counters", CONGESTION, "np_cnp_sent", "np_ecn_marked_roce_packets"),
    **_named("hw_counters", CONGESTION, "rp_cnp_handled"),
    # bnxt_re
    **_named("hw_counters", ERRORS, "to_retransmits", "seq_err_naks_rcvd", "max_retry_exceeded"),
    **_named("hw_counters", ERRORS, "rnr_naks_rcvd", "missing_resp", "unrecoverable_err"),
    **_named("hw_counters", ERRORS, "bad_resp_err", "oos_drop_count", "rx_out_of_buffer"),
    **_named("hw_counters", ERRORS, "rx_roce_errors", "rx_roce_discards"),
    # irdma
    **_named("hw_counters", ERRORS, "RetransSegs", "cnpIgnored", "Nak Sequence Error", "RTO"),
    **_named("hw_counters", ERRORS, "Rcvd Out of order packets", "CRC errors", "RNR sent"),
    **_named("hw_counters", CONGESTION, "cnpSent", "cnpHandled", "RxECNMrkd"),
    # hns
    **_named("hw_counters", ERRORS, "cmds_err", "qp_create_err", "qp_modify_err", "mr_reg_err"),
}
# A setting: for how many milliseconds the driver caches the values.
_NO_COUNTERS = frozenset(("hw_counters/lifespan",))


def wanted(files: Iterable[str], more: tuple[str, ...]) -> Iterator[tuple[str, Family, int]]:
    """The files to read among a port's counter files (`counters/symbol_error`), each with its
    family and the factor of its value. `more` are patterns for the names of further counters.
    """
    listed = dict.fromkeys(files)
    for file in listed:
        name = file.partition("/")[2]
        if file in _DATA:
            # Two files for one family count from different starts, so always the same one is used.
            if _OWN_DATA.get(file) not in listed:
                yield (file, *_DATA[file])
        elif file in _FAMILIES:
            yield file, _FAMILIES[file], 1
        elif file not in _NO_COUNTERS and any(fnmatchcase(name, pattern) for pattern in more):
            yield file, OTHER, 1


# How often to read rarely changing values again, and values that a driver has refused.
REFRESH_SECONDS = 60.0
_INFO_FILES = ("node_guid", "hca_type", "board_id", "fw_ver")


class RdmaDevice(msgspec.Struct, frozen=True):
    """A device. `place` is its PCI address, '' for a software device; `virtual` for a virtual
    function; `info` are its labels of DEVICE_INFO after the first. Values that cannot be read keep
    their last value; a device that may be a virtual function is watched until that is known.
    """

    place: str = ""
    virtual: bool = False
    info: tuple[str, ...] = ("",) * 5


class CounterFile(msgspec.Struct, frozen=True):
    """The file of a counter, the family it fills, and the factor of its value."""

    path: str
    name: str
    family: Family
    factor: int


class Port(msgspec.Struct):
    """A port. `gid` is the GID to use; `gids_known` is false if a row of the table could not be
    read that may be better. `files` are all counters, `counters` the readable ones; `up` is the
    state at the time of reading, `read_at` (monotonic seconds).
    """

    layer: str
    interface: str
    gid: Optional[Gid]
    gids_known: bool
    files: dict[str, list[str]]
    counters: list[CounterFile]
    up: Optional[bool]
    read_at: float


class Reader:
    """Reads devices by name, and ports by `DEVICE/PORT`. No file of an excluded one is opened."""

    def __init__(self, host: Host, excluded: tuple[str, ...], counters: tuple[str, ...]) -> None:
        """`excluded` are patterns for devices and ports, `counters` for further counters."""
        self._sysfs = host.sysfs
        self.directory = str(host.sys("class/infiniband"))
        self._interfaces = str(host.sys("class/net"))
        self._excluded = excluded
        self._patterns = counters
        self.devices: dict[str, RdmaDevice] = {}
        self.virtual: list[str] = []
        """The virtual functions: their ports are not watched."""
        self.unlisted: list[str] = []
        """The devices of which no port is known, because they cannot be listed."""
        self._devices_read_at = -REFRESH_SECONDS
        self._ports: dict[str, Port] = {}

    def port_names(self, known: Iterable[str]) -> list[str]:
        """The ports that exist; for a device whose ports cannot be listed, the known ones. Raises
        ProbeError if the devices cannot be listed.
        """
        names = [
            name
            for name in list_names_or_fail(self.directory, self._sysfs)
            if not links.is_excluded(name, self._excluded)
        ]
        now = time.monotonic()
        watched = {*self.devices, *self.virtual}
        if now - self._devices_read_at >= REFRESH_SECONDS or set(names) != watched:
            devices = {name: self._read_device(name) for name in names}
            self.virtual = [name for name, device in devices.items() if device.virtual]
            self.devices = {name: device for name, device in devices.items() if not device.virtual}
            self._devices_read_at = now
        names_of_ports, self.unlisted = [], []
        for device in self.devices:
            try:
                ports = sorted(os.listdir(f"{self.directory}/{device}/ports"))
            except OSError:  # also if there is no device: a device that is gone is not listed
                last = [name for name in known if name.startswith(f"{device}/")]
                self.unlisted += [] if last else [device]
                names_of_ports += last
                continue
            names_of_ports += [f"{device}/{port}" for port in ports if port.isdigit()]
        names_of_ports = [
            name for name in names_of_ports if not links.is_excluded(name, self._excluded)
        ]
        self._ports = {name: port for name, port in self._ports.items() if name in names_of_ports}
        return names_of_ports

    def port(self, name: str, layer: str, up: bool | None) -> Port:
        """A port, read again every minute and when it goes up or down. `layer` is the last known
        link layer, used if its file cannot be read.
        """
        known, now = self._ports.get(name), time.monotonic()
        if known is None or known.up != up or now - known.read_at >= REFRESH_SECONDS:
            self._ports[name] = self._read_port(name, layer, up, now)
        return self._ports[name]

    def port_directory(self, name: str) -> str:
        """The directory of a port in sysfs."""
        device, _, number = name.partition("/")
        return f"{self.directory}/{device}/ports/{number}"

    def watched_files(self, name: str) -> LinkFiles:
        """The files to look at between two runs."""
        port = self._ports.get(name)
        if port is not None and port.interface:
            return InterfaceFiles(port.interface, f"{self._interfaces}/{port.interface}")
        return PortFiles(self.port_directory(name), LIMITS["link_downed"])

    def interface_up(self, interface: str) -> bool | None:
        """Whether a network interface is up; None if unknown, also for ''."""
        return netdev.is_up(f"{self._interfaces}/{interface}") if interface else None

    def carrier_down_count(self, interface: str) -> tuple[int, str] | None:
        """Number of times that a network interface lost its carrier, and the file with the count;
        None if unknown.
        """
        if not interface:
            return None
        return netdev.carrier_down_count(f"{self._interfaces}/{interface}")

    def _read_device(self, name: str) -> RdmaDevice:
        directory = f"{self.directory}/{name}"
        # A virtual function shares the port of its physical function, and comes and goes with its
        # virtual machine.
        virtual = exists(f"{directory}/device/physfn")
        if virtual or (virtual is None and name in self.virtual):
            return RdmaDevice(virtual=True)
        last = self.devices.get(name, RdmaDevice())
        link = link_name(f"{directory}/device")
        place = last.place if link is None else link if BUS_ID.fullmatch(link) else ""
        labels = [read_label(f"{directory}/{file}") for file in _INFO_FILES]
        labels.insert(1, place)
        info = tuple(now or was for was, now in zip(last.info, labels))
        return RdmaDevice(place, False, info)

    def _read_port(self, name: str, layer: str, up: bool | None, now: float) -> Port:
        directory = self.port_directory(name)
        last = self._ports.get(name)
        text = read_text(f"{directory}/link_layer")
        layer = text if text in LINK_LAYERS and text else last.layer if last else layer
        files = {
            group: list_names(f"{directory}/{group}") or (last.files[group] if last else [])
            for group in ("counters", "hw_counters")
        }
        paths = [f"{group}/{file}" for group, names in files.items() for file in names]
        counters = [
            CounterFile(f"{directory}/{file}", file.partition("/")[2], family, factor)
            for file, family, factor in wanted(paths, self._patterns)
        ]
        gids, complete = read_gids(directory) if layer == "Ethernet" else ([], True)
        interface = gids[0].interface if gids else self._find_interface(name, layer)
        if last and (not complete or not interface):
            interface = last.interface
        gid = choose_up(gids, self._interfaces)
        return Port(layer, interface, gid, complete, files, counters, up, now)

    def _find_interface(self, name: str, layer: str) -> str:
        """The interface of a RoCE port without a GID."""
        device, _, number = name.partition("/")
        if layer != "Ethernet":
            return ""
        return find_interface(f"{self.directory}/{device}", number, self._interfaces)
