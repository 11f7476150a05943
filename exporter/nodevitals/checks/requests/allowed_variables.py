"""The environment variables and MCA parameters that a client may set, and their allowed values.

No allowed name sets a program, a library or a file, and no allowed value has a character that a
shell would interpret, but for the semicolons of HCCL_ALGO.

NCCL: https://docs.nvidia.com/deeplearning/nccl (Environment
Variables). HCCL: https://www.hiascend.com/document (environment variable reference, HCCL). Open
MPI: `ompi_info --all`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, Optional, Union

import msgspec

from nodevitals.errors import Wording
from nodevitals.quantities import shown

_INTEGER = re.compile(r"[0-9]{1,9}")
_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}"
_DEVICES = re.compile(rf"\^?=?{_NAME}(?::[0-9]{{1,3}})?(?:,{_NAME}(?::[0-9]{{1,3}})?){{0,31}}")
_INTERFACES = re.compile(rf"\^?=?{_NAME}(?:,{_NAME}){{0,31}}")
_NETWORK = r"[a-zA-Z0-9][a-zA-Z0-9.:_-]{0,45}(?:/[0-9]{1,3})?"
_NUMBERS = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3}){0,63}")
_LEVELS = r"level[0-3]:[A-Za-z0-9_-]{1,16}"
_ALGORITHM = rf"(?:[a-z]{{1,16}}=)?{_LEVELS}(?:;{_LEVELS}){{0,3}}"
_ALGORITHMS = re.compile(rf"{_ALGORITHM}(?:/{_ALGORITHM}){{0,8}}")
_NETWORKS = re.compile(rf"{_NETWORK}(?:,{_NETWORK}){{0,31}}")


class Integer(msgspec.Struct, frozen=True):
    """Integers from `low` to `high` that are multiples of `step`."""

    low: int
    high: int
    step: int = 1

    def problem(self, name: str, value: str) -> Optional[str]:
        """Why a variable may not have the value; None where it may."""
        number = int(value) if _INTEGER.fullmatch(value) else -1
        if self.low <= number <= self.high and number % self.step == 0:
            return None
        if self.step == 1:
            return Wording(
                "{value} is no value of {name}: write an integer from {low} to {high}",
                name=name,
                value=shown(value),
                low=self.low,
                high=self.high,
            )
        return Wording(
            "{value} is no value of {name}: write an integer from {low} to {high}, a multiple of"
            " {step}",
            name=name,
            value=shown(value),
            low=self.low,
            high=self.high,
            step=self.step,
        )


class Words(msgspec.Struct, frozen=True):
    """One of some words; with `several`, a list of them, or after `^` a list to exclude."""

    words: tuple[str, ...]
    several: bool = False

    def problem(self, name: str, value: str) -> Optional[str]:
        """Why a variable may not have the value; None where it may."""
        parts = value.removeprefix("^").split(",") if self.several else [value]
        known = {word.lower() for word in self.words}
        if len(value) <= 256 and all(part.lower() in known for part in parts):
            return None
        return Wording(
            "{value} is no value of {name}: choose {words}",
            name=name,
            value=shown(value),
            words=", ".join(self.words),
        )


FITTING = {
    "devices": (_DEVICES.fullmatch, "mlx5_0,mlx5_1:1"),
    "interfaces": (_INTERFACES.fullmatch, "eth0,bond0"),
    "networks": (_NETWORKS.fullmatch, "eth0,192.0.2.0/24"),
    "numbers": (_NUMBERS.fullmatch, "0,1,2,3"),
    "algorithms": (_ALGORITHMS.fullmatch, "level0:NA;level1:ring"),
}


class Names(msgspec.Struct, frozen=True):
    """A list of names."""

    kind: Literal["devices", "interfaces", "networks", "numbers", "algorithms"]

    def problem(self, name: str, value: str) -> Optional[str]:
        """Why a variable may not have the value; None where it may."""
        fits, example = FITTING[self.kind]
        if fits(value):
            return None
        return Wording(
            "{value} is no value of {name}: write names, such as {examples}",
            name=name,
            value=shown(value),
            examples=example,
        )


Rule = Union[Integer, Words, Names]
SWITCH = Integer(0, 1)
SUGGESTED = 12
"""Number of names that a refusal lists, the most similar first."""

_KIBIBYTES_TO_GIBIBYTE = Integer(1 << 10, 1 << 30)
_LEVELS_OF_TOPOLOGY = Words(
    ("LOC", "NVL", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS", "0", "1", "2", "3", "4", "5")
)
_TRUE_OR_FALSE = Words(("TRUE", "FALSE"))

NCCL: dict[str, Rule] = {
    "CUDA_DEVICE_ORDER": Words(("PCI_BUS_ID", "FASTEST_FIRST")),
    "CUDA_VISIBLE_DEVICES": Names("numbers"),
    "NCCL_ALGO": Words(
        ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"), several=True
    ),
    "NCCL_BUFFSIZE": Integer(1 << 16, 1 << 28),
    "NCCL_COLLNET_ENABLE": SWITCH,
    "NCCL_COLLNET_NODE_THRESHOLD": Integer(1, 10_000),
    "NCCL_CROSS_NIC": Integer(0, 2),
    "NCCL_CUMEM_ENABLE": SWITCH,
    "NCCL_CUMEM_HOST_ENABLE": SWITCH,
    "NCCL_DEBUG": Words(("VERSION", "WARN", "INFO")),
    "NCCL_DEBUG_SUBSYS": Words(
        ("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "NVLS", "REG"),
        several=True,
    ),
    "NCCL_DMABUF_ENABLE": SWITCH,
    "NCCL_IB_ADAPTIVE_ROUTING": SWITCH,
    "NCCL_IB_ADDR_FAMILY": Words(("AF_INET", "AF_INET6")),
    "NCCL_IB_AR_THRESHOLD": Integer(0, 1 << 28),
    "NCCL_IB_DATA_DIRECT": Integer(0, 2),
    "NCCL_IB_DISABLE": SWITCH,
    "NCCL_IB_ECE_ENABLE": SWITCH,
    "NCCL_IB_FIFO_TC": Integer(0, 255),
    "NCCL_IB_GID_INDEX": Integer(0, 255),
    "NCCL_IB_HCA": Names("devices"),
    "NCCL_IB_MERGE_NICS": SWITCH,
    "NCCL_IB_PCI_RELAXED_ORDERING": Integer(0, 2),
    "NCCL_IB_PKEY": Integer(0, 0xFFFF),
    "NCCL_IB_QPS_PER_CONNECTION": Integer(1, 128),
    "NCCL_IB_RETRY_CNT": Integer(0, 7),
    "NCCL_IB_ROCE_VERSION_NUM": Integer(1, 2),
    "NCCL_IB_SL": Integer(0, 15),
    "NCCL_IB_SPLIT_DATA_ON_QPS": SWITCH,
    "NCCL_IB_TC": Integer(0, 255),
    "NCCL_IB_TIMEOUT": Integer(1, 31),
    "NCCL_IB_USE_INLINE": SWITCH,
    "NCCL_IGNORE_CPU_AFFINITY": SWITCH,
    "NCCL_MAX_CTAS": Integer(1, 64),
    "NCCL_MAX_NCHANNELS": Integer(1, 64),
    "NCCL_MIN_CTAS": Integer(1, 64),
    "NCCL_MIN_NCHANNELS": Integer(1, 64),
    "NCCL_MNNVL_ENABLE": Integer(0, 2),
    "NCCL_NET": Words(("IB", "Socket")),
    "NCCL_NET_GDR_C2C": SWITCH,
    "NCCL_NET_GDR_LEVEL": _LEVELS_OF_TOPOLOGY,
    "NCCL_NET_GDR_READ": SWITCH,
    "NCCL_NET_SHARED_BUFFERS": SWITCH,
    "NCCL_NSOCKS_PERTHREAD": Integer(1, 64),
    "NCCL_NTHREADS": Words(("64", "128", "256", "512")),
    "NCCL_NVLS_ENABLE": Integer(0, 2),
    "NCCL_P2P_DIRECT_DISABLE": SWITCH,
    "NCCL_P2P_DISABLE": SWITCH,
    "NCCL_P2P_LEVEL": _LEVELS_OF_TOPOLOGY,
    "NCCL_P2P_NET_CHUNKSIZE": _KIBIBYTES_TO_GIBIBYTE,
    "NCCL_P2P_NVL_CHUNKSIZE": _KIBIBYTES_TO_GIBIBYTE,
    "NCCL_P2P_PCI_CHUNKSIZE": _KIBIBYTES_TO_GIBIBYTE,
    "NCCL_P2P_PXN_LEVEL": Integer(0, 2),
    "NCCL_PROTO": Words(("LL", "LL128", "Simple"), several=True),
    "NCCL_PXN_C2C": SWITCH,
    "NCCL_PXN_DISABLE": SWITCH,
    "NCCL_RUNTIME_CONNECT": SWITCH,
    "NCCL_SHM_DISABLE": SWITCH,
    "NCCL_SOCKET_FAMILY": Words(("AF_INET", "AF_INET6")),
    "NCCL_SOCKET_IFNAME": Names("interfaces"),
    "NCCL_SOCKET_NTHREADS": Integer(1, 16),
}

HCCL: dict[str, Rule] = {
    "HCCL_ALGO": Names("algorithms"),
    "HCCL_BUFFSIZE": Integer(1, 1 << 16),
    "HCCL_CONNECT_TIMEOUT": Integer(120, 7200),
    "HCCL_DETERMINISTIC": Words(("true", "false", "strict")),
    "HCCL_EXEC_TIMEOUT": Integer(0, 2_147_483),
    "HCCL_IF_BASE_PORT": Integer(1024, 65_520),
    "HCCL_INTER_HCCS_DISABLE": _TRUE_OR_FALSE,
    "HCCL_INTRA_PCIE_ENABLE": SWITCH,
    "HCCL_INTRA_ROCE_ENABLE": SWITCH,
    "HCCL_MULTI_QP_THRESHOLD": Integer(1, 8192),
    "HCCL_OP_EXPANSION_MODE": Words(("AI_CPU", "AIV", "HOST", "HOST_TS")),
    "HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT": _TRUE_OR_FALSE,
    "HCCL_RDMA_QPS_PER_CONNECTION": Integer(1, 32),
    "HCCL_RDMA_RETRY_CNT": Integer(1, 7),
    "HCCL_RDMA_SL": Integer(0, 7),
    "HCCL_RDMA_TC": Integer(0, 252, 4),
    "HCCL_RDMA_TIMEOUT": Integer(5, 24),
    "HCCL_SOCKET_FAMILY": Words(("AF_INET", "AF_INET6")),
    "HCCL_SOCKET_IFNAME": Names("interfaces"),
    "HCCL_TEST_USE_DEVS": Names("numbers"),
    "HCCL_WHITELIST_DISABLE": SWITCH,
}

ENVIRONMENT: dict[str, dict[str, Rule]] = {"nccl": NCCL, "hccl": HCCL}

# The variable that each field of the request sets.
VARIABLES: dict[str, dict[str, str]] = {
    "nccl": {
        "device": "NCCL_IB_HCA",
        "queue_pairs": "NCCL_IB_QPS_PER_CONNECTION",
        "gid_index": "NCCL_IB_GID_INDEX",
        "traffic_class": "NCCL_IB_TC",
    },
    "hccl": {"queue_pairs": "HCCL_RDMA_QPS_PER_CONNECTION", "traffic_class": "HCCL_RDMA_TC"},
}

# plm_rsh_agent, plm_rsh_args, mca_base_* and the like are missing: they run programs or open files.
MCA: dict[str, Rule] = {
    "btl": Words(("self", "tcp", "vader", "sm", "smcuda", "openib"), several=True),
    "btl_openib_allow_ib": SWITCH,
    "btl_openib_warn_no_device_params_found": SWITCH,
    "btl_tcp_if_exclude": Names("networks"),
    "btl_tcp_if_include": Names("networks"),
    "btl_vader_single_copy_mechanism": Words(("none", "cma", "knem", "xpmem")),
    "coll_hcoll_enable": SWITCH,
    "coll_ucc_enable": SWITCH,
    "hwloc_base_binding_policy": Words(("none", "core", "socket", "numa")),
    "oob_tcp_if_exclude": Names("networks"),
    "oob_tcp_if_include": Names("networks"),
    "opal_set_max_sys_limits": SWITCH,
    "orte_base_help_aggregate": SWITCH,
    "orte_keep_fqdn_hostnames": SWITCH,
    "plm_rsh_num_concurrent": Integer(1, 1024),
    "pml": Words(("ob1", "ucx", "cm"), several=True),
    "routed": Words(("direct", "radix", "binomial")),
}


def problem_of(name: str, value: str, rules: Mapping[str, Rule]) -> Optional[str]:
    """Why a variable or a parameter is refused; None where it is allowed."""
    rule = rules.get(name)
    if rule is None:
        nearest = get_close_matches(name[:64], rules, n=SUGGESTED, cutoff=0.0)
        words = ", ".join([*nearest, *(["..."] if len(rules) > SUGGESTED else [])])
        return Wording("{name} is not on the list: choose {words}", name=shown(name), words=words)
    return rule.problem(name, value)
