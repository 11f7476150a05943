"""The network interface of an RDMA port, by the device in sysfs: for the probes `rdma` and
`switches`.
"""

from __future__ import annotations

from nodevitals.linux.sysfs import list_names, read_text


def find_interface(device: str, number: str, interfaces: str) -> str:
    """The interface of a port without a GID; of several, the one with its number. '' where there is
    none. `device` is its directory in /sys/class/infiniband, `interfaces` is /sys/class/net.
    """
    names = list_names(f"{device}/device/net")
    if len(names) > 1:
        ports = {one: read_text(f"{interfaces}/{one}/dev_port") for one in names}
        names = [one for one in names if ports[one] == str(int(number) - 1)]
    return names[0] if len(names) == 1 else ""
