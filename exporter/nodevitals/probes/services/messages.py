"""The message that the probe `services` receives from `kernel_log`."""

from __future__ import annotations

import msgspec

PROBE = "services"


class StoppedFilesystems(msgspec.Struct, frozen=True):
    """The kernel's names of the block devices whose file systems accept no writes since an error or
    a shutdown; replaces those of earlier messages.
    """

    devices: list[str]
