"""The message that the probe `kernel_log` receives from the probe `nvidia`, besides the names of
the GPUs: the log and NVML identify a GPU by its PCI bus id, series by index and uuid.
"""

from __future__ import annotations

import msgspec


class NvmlXids(msgspec.Struct, frozen=True, tag="xids"):
    """PCI bus id and code of each Xid that NVML reported since the last message."""

    xids: list[tuple[str, int]]
