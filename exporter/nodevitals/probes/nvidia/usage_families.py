"""The families of how a GPU is used: throughput, energy, activity, MIG instances.

Apart from the code that fills them, as `families`: the agent must not import pynvml. Which of them
are on is a setting of the probe: `details` and `activity`; the others are always on.
"""

from __future__ import annotations

from nodevitals.probe import Families

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

_gpu = Families("nvidia", "device", "uuid")
ENERGY = _gpu.counter(
    "energy_joules_total",
    "Energy that the GPU has used since the driver was loaded, read once per minute.",
)
NVLINK_BYTES = _gpu.counter(
    "nvlink_bytes_total", "Number of bytes over all NVLinks of the GPU.", direction=DIRECTIONS
)
PCIE_BYTES = _gpu.counter(
    "pcie_bytes_total",
    "Number of bytes over PCIe, seen from the GPU; missing where the driver counts in 32 bits.",
    direction=DIRECTIONS,
)
FABRIC_INFO = _gpu.gauge(
    "fabric_info",
    "Always 1; NVLink cluster and clique that the GPU belongs to; missing without a cluster.",
    *("cluster_uuid", "clique"),
)
FABRIC_MISCONFIGURATION = _gpu.gauge(
    "fabric_misconfiguration",
    "Always 1; what is incorrect in the configuration of the NVLink fabric; missing if nothing is.",
    configuration=FABRIC_CONFIGURATIONS,
)

# Setting `details`.
MEMORY_UTILIZATION = _gpu.gauge(
    "memory_utilization_ratio",
    "Share of the last sampling period in which the device memory was read or written.",
)
MEMORY_CLOCK = _gpu.gauge("memory_clock_hertz", "Clock of the device memory.")
ENGINE_UTILIZATION = _gpu.gauge(
    "engine_utilization_ratio",
    "Share of the last sampling period in which the engine was busy.",
    engine=("encoder", "decoder"),
)
PERFORMANCE_STATE = _gpu.gauge(
    "performance_state", "Performance state: 0 is the highest, 15 the lowest."
)
POWER_LIMIT_DEFAULT = _gpu.gauge(
    "power_limit_default_watts", "Power limit that the GPU starts with."
)
FEC_ERRORS = _gpu.counter(
    "nvlink_fec_errors_total",
    "Number of symbol errors that all NVLinks of the GPU corrected, by NVML's bin (NVLink 5).",
    bin=FEC_BINS,
)
C2C_ERRORS = _gpu.counter(
    "c2c_errors_total",
    "Number of errors of each link between CPU and GPU (NVLink-C2C).",
    "link",
    kind=C2C_ERROR_KINDS,
)

# Setting `activity`; gpu_instance is empty for the whole GPU.
ACTIVITY = _gpu.gauge(
    "activity_ratio",
    "Share of the time since the last run in which the unit was active, or of its peak.",
    "gpu_instance",
    unit=ACTIVITY_UNITS,
)
PCIE_RATE = _gpu.gauge(
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

USAGE = (*_gpu, *_mig)
