"""What NVIDIA's driver reports both in the kernel log and through NVML."""

from __future__ import annotations

from nodevitals.probes.common.accelerators import Action

# The recovery action of the driver (NVML field 230, Xid 154): NVIDIA's name and ours.
RECOVERY_ACTIONS: dict[int, tuple[str, Action]] = {
    0: ("none", "none"),
    1: ("gpu_reset", "reset_device"),
    2: ("node_reboot", "reboot_node"),
    3: ("drain_p2p", "drain"),
    4: ("drain_and_reset", "drain"),
    5: ("recover_imex_domain", "investigate"),
    6: ("bus_reset", "reset_device"),
    7: ("system_reboot", "reboot_node"),
}


def normal_bus_id(text: str) -> str:
    """`0000:18:00` from any spelling: NVML's domain has 8 digits, Xid's 4, and no function.

    >>> normal_bus_id("00000000:9B:00.0")
    '0000:9b:00'
    """
    domain, bus, device = text.lower().partition(".")[0].split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"
