"""The families of the probe `nvidia`.

They are apart from the code that fills them because the agent, which renders them, must not import
pynvml. The settings `details` and `activity` turn some of them on; the others are always on.
"""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ACTIONS, ECC_KINDS
from nodevitals.probes.common.facts import Fact
from nodevitals.probes.common.nvidia import RECOVERY_ACTIONS

DIRECTIONS = ("received", "transmitted")
FEC_BINS = tuple(str(number) for number in range(16))
C2C_ERROR_KINDS = ("crc", "replay", "replay_back_to_back")
ACTIVITY_UNITS = (
    *("graphics", "sm", "sm_occupancy", "tensor", "integer", "fp64", "fp32", "fp16", "dram"),
)
FABRIC_CONFIGURATIONS = (
    *("incorrect_system_guid", "incorrect_chassis_serial_number", "no_partition"),
    *("insufficient_nvlinks", "incompatible_gpu_firmware", "invalid_location"),
    *("gpu_state_invalid", "other"),
)

_usage = Families("nvidia", "device", "uuid")
ENERGY = _usage.counter(
    "energy_joules_total",
    "Energy that the GPU has used since the driver was loaded, read once per minute.",
)
NVLINK_BYTES = _usage.counter(
    "nvlink_bytes_total", "Number of bytes over all NVLinks of the GPU.", direction=DIRECTIONS
)
PCIE_BYTES = _usage.counter(
    "pcie_bytes_total",
    "Number of bytes over PCIe, seen from the GPU; missing where the driver counts in 32 bits.",
    direction=DIRECTIONS,
)
FABRIC_INFO = _usage.gauge(
    "fabric_info",
    "Always 1; NVLink cluster and clique that the GPU belongs to; missing without a cluster.",
    *("cluster_uuid", "clique"),
)
FABRIC_MISCONFIGURATION = _usage.gauge(
    "fabric_misconfiguration",
    "Always 1; what is incorrect in the configuration of the NVLink fabric; missing if nothing is.",
    configuration=FABRIC_CONFIGURATIONS,
)

# Setting `details`.
MEMORY_UTILIZATION = _usage.gauge(
    "memory_utilization_ratio",
    "Share of the last sampling period in which the device memory was read or written.",
)
MEMORY_CLOCK = _usage.gauge("memory_clock_hertz", "Clock of the device memory.")
ENGINE_UTILIZATION = _usage.gauge(
    "engine_utilization_ratio",
    "Share of the last sampling period in which the engine was busy.",
    engine=("encoder", "decoder"),
)
PERFORMANCE_STATE = _usage.gauge(
    "performance_state", "Performance state: 0 is the highest, 15 the lowest."
)
POWER_LIMIT_DEFAULT = _usage.gauge(
    "power_limit_default_watts", "Power limit that the GPU starts with."
)
FEC_ERRORS = _usage.counter(
    "nvlink_fec_errors_total",
    "Number of symbol errors that all NVLinks of the GPU corrected, by NVML's bin (NVLink 5).",
    bin=FEC_BINS,
)
C2C_ERRORS = _usage.counter(
    "c2c_errors_total",
    "Number of errors of each link between CPU and GPU (NVLink-C2C).",
    "link",
    kind=C2C_ERROR_KINDS,
)

# Setting `activity`; gpu_instance is empty for the whole GPU.
ACTIVITY = _usage.gauge(
    "activity_ratio",
    "Share of the time since the last run in which the unit was active, or of its peak.",
    "gpu_instance",
    unit=ACTIVITY_UNITS,
)
PCIE_RATE = _usage.gauge(
    "pcie_bytes_per_second",
    "PCIe throughput since the last run, seen from the GPU.",
    direction=DIRECTIONS,
)

# Where MIG is on.
_mig = Families("nvidia_mig", "device", "uuid", "gpu_instance")
MIG_INFO = _mig.gauge(
    "info",
    "Always 1; identity of the MIG instance; uuid is that of its GPU.",
    *("compute_instance", "mig_uuid", "profile"),
)
MIG_MEMORY_USED = _mig.gauge("memory_used_bytes", "Memory of the GPU instance in use.")
MIG_MEMORY_TOTAL = _mig.gauge("memory_total_bytes", "Size of the GPU instance's memory.")
MIG_PROCESSES = _mig.gauge(
    "processes", "Number of compute processes on the MIG instance.", "compute_instance"
)
MIG_ECC_ERRORS = _mig.counter(
    "ecc_errors_total",
    "Number of uncorrected SRAM errors of the GPU instance since the driver was loaded.",
)

USAGE = (*_usage, *_mig)


VENDOR = "nvidia"

SLOWDOWN_REASONS = (
    *("hw_thermal", "hw_power_brake", "hw_slowdown", "sw_thermal", "sw_power_cap", "thermal"),
)
NVLINK_ERROR_KINDS = (
    *("replay", "recovery", "crc", "crc_data", "ecc_data"),
    *("malformed_packet", "buffer_overrun", "receive", "receive_remote", "receive_general"),
    *("local_link_integrity", "transmit_discard", "recovery_failed", "effective", "symbol"),
)
FABRIC_STATES = ("not_started", "in_progress", "completed", "failed")
FABRIC_FAULTS = (
    *("degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout"),
    "incorrect_configuration",
)

_gpu = Families("nvidia", "device", "uuid")
MODE_INFO = _gpu.gauge(
    "mode_info",
    "Always 1; whether each mode is on or off; empty where the GPU does not have it.",
    *("persistence", "mig", "ecc"),
)
SRAM_THRESHOLD = _gpu.gauge(
    "sram_threshold_exceeded",
    "Whether uncorrected SRAM errors passed the driver's threshold for replacing the GPU.",
)
REMAPPED_ROWS = _gpu.gauge(
    "remapped_rows",
    "Number of memory rows remapped in the GPU's life, by the kind of error that caused it.",
    cause=ECC_KINDS,
)
ROW_REMAP_PENDING = _gpu.gauge(
    "row_remap_pending", "Whether a row remapping is pending a reset of the GPU."
)
ROW_REMAP_FAILURE = _gpu.gauge(
    "row_remap_failure", "Whether a row could not be remapped; the GPU must be replaced."
)
REMAP_BANKS = _gpu.gauge(
    "remap_banks",
    "Number of memory banks by how many of their spare rows are left.",
    spare_rows=("max", "high", "partial", "low", "none"),
)
RETIRED_PAGES = _gpu.gauge(
    "retired_pages",
    "Number of memory pages retired in the GPU's life (Volta and older).",
    cause=("single_bit", "double_bit"),
)
RETIRED_PAGES_PENDING = _gpu.gauge(
    "retired_pages_pending", "Whether a page is pending retirement until the GPU is reset."
)
NVLINK_UP = _gpu.gauge("nvlink_up", "Whether an NVLink of the GPU is active.", "link")
NVLINKS_UP = _gpu.gauge("nvlinks_up", "Number of NVLinks of the GPU that are active.")
NVLINKS_EXPECTED = _gpu.gauge(
    "nvlinks_expected",
    "Number of NVLinks that must be active: as configured, or else the highest ever active.",
)
NVLINKS_UNREADABLE = _gpu.gauge(
    "nvlinks_unreadable", "Number of NVLinks whose state cannot be read."
)
NVLINK_ERRORS = _gpu.counter(
    "nvlink_errors_total",
    "Number of NVLink errors since the driver was loaded; link is empty for the sum of all links.",
    "link",
    kind=NVLINK_ERROR_KINDS,
)
FABRIC_STATE = _gpu.gauge(
    "fabric_state",
    "Always 1; state of the GPU's registration with the NVLink fabric.",
    state=FABRIC_STATES,
)
FABRIC_HEALTHY = _gpu.gauge(
    "fabric_healthy",
    "Whether the NVLink fabric's health summary is healthy; before driver 580, whether it reports "
    "no fault.",
)
FABRIC_FAULT = _gpu.gauge(
    "fabric_fault", "Whether the NVLink fabric reports this fault.", fault=FABRIC_FAULTS
)
PCIE_WIDTH = _gpu.gauge("pcie_link_width", "Number of PCIe lanes in use.")
PCIE_WIDTH_MAX = _gpu.gauge(
    "pcie_link_width_max", "Number of PCIe lanes that both GPU and slot support."
)
PCIE_GENERATION = _gpu.gauge(
    "pcie_link_generation", "PCIe generation in use; 1 is normal for an idle GPU."
)
PCIE_GENERATION_MAX = _gpu.gauge(
    "pcie_link_generation_max", "PCIe generation that both GPU and slot support."
)
PCIE_REPLAYS = _gpu.counter(
    "pcie_replays_total", "Number of PCIe packets sent again since the last reset of the GPU."
)
SLOWDOWN_ACTIVE = _gpu.gauge(
    "slowdown_active",
    "Whether the clocks are reduced now for this reason.",
    reason=SLOWDOWN_REASONS,
)
SLOWDOWN_SECONDS = _gpu.counter(
    "slowdown_seconds_total",
    "Time with clocks reduced for this reason since the driver was loaded.",
    reason=SLOWDOWN_REASONS,
)
MEMORY_TEMPERATURE = _gpu.gauge("memory_temperature_celsius", "Temperature of the GPU's memory.")
TEMPERATURE_MARGIN = _gpu.gauge(
    "temperature_margin_celsius", "Difference to the temperature at which the GPU slows down."
)
POWER_LIMIT = _gpu.gauge("power_limit_watts", "Enforced power limit of the GPU.")
SM_CLOCK = _gpu.gauge("sm_clock_hertz", "Clock of the streaming multiprocessors.")
RECOVERY_ACTION = _gpu.gauge(
    "recovery_action",
    "Always 1; recovery action that the driver reports for the GPU.",
    vendor_action=tuple(name for name, _ in RECOVERY_ACTIONS.values()),
    action=ACTIONS,
)

_node = Families("nvidia")
DRIVER_INFO = _node.gauge(
    "driver_info",
    "Always 1; versions of the loaded driver, of the NVML library and of CUDA.",
    *("driver_version", "library_version", "cuda_version"),
)
VERSION_MISMATCH = _node.gauge(
    "version_mismatch",
    "Whether NVML does not work because library and loaded driver differ in their versions.",
)
DEVICES = _node.gauge(
    "devices",
    "Number of GPUs listed by the PCI bus (without those of virtual machines), driver and NVML, "
    "also of those that cannot be read.",
    source=("pci", "driver", "nvml"),
)

_held = Families("accelerator", *accelerators.DEVICE_LABELS)
MEMORY_WITHOUT_JOB = _held.gauge(
    "memory_without_job_bytes",
    "Device memory of compute processes in no job's cgroup, monitoring programs left out; missing "
    "where processes or jobs cannot be seen.",
)
PROCESSES_WITHOUT_JOB = _held.gauge(
    "processes_without_job",
    "Number of compute processes in no job's cgroup, monitoring programs left out; missing where "
    "processes or jobs cannot be seen.",
)

# What the probe `profile` compares.
PROFILE_FACTS = (
    *accelerators.PROFILE_FACTS,
    Fact("nvidia.ecc", MODE_INFO, "ecc"),
    Fact("nvidia.mig", MODE_INFO, "mig"),
    Fact("nvidia.persistence", MODE_INFO, "persistence"),
    Fact("nvidia.nvlinks", NVLINKS_UP),
    Fact("nvidia.pcie_generation", PCIE_GENERATION_MAX),
    Fact("nvidia.pcie_width", PCIE_WIDTH_MAX),
    Fact("nvidia.power_limit_watts", POWER_LIMIT),
)
FAMILIES = (*accelerators.counts, *accelerators.metrics, *_held, *_gpu, *_node, *USAGE)
