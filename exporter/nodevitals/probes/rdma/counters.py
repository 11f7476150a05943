"""The family of each counter of a port, by the name of its file. Pure.

The names in `counters/` are those of the PortCounters of InfiniBand's performance management, the
same for every driver; those in `hw_counters/` are each driver's own.
https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from nodevitals.probe import Family
from nodevitals.probes.rdma.families import CONGESTION, ERRORS, OTHER, RECEIVED, TRANSMITTED

# Counters of performance management stop at the maximum of their width. In bits, by name.
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
# A driver's own counter comes before that of performance management.
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
            # Of two files for one family always the same one: they count from different starts.
            if _OWN_DATA.get(file) not in listed:
                yield (file, *_DATA[file])
        elif file in _FAMILIES:
            yield file, _FAMILIES[file], 1
        elif file not in _NO_COUNTERS and any(fnmatchcase(name, pattern) for pattern in more):
            yield file, OTHER, 1
