"""The names of the units to watch. No I/O, and nothing that only a worker needs."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

UNIT_NAME = (
    r"^[A-Za-z0-9:_.\\@-]{1,200}"
    r"\.(service|socket|mount|automount|target|timer|path|swap|scope|slice)\Z"
)
_UNIT_NAME = re.compile(UNIT_NAME)
# Units that jobs of an AI cluster need. Of units with two names, a distribution has one.
WATCHED = tuple(
    f"{name}.service"
    for name in (
        *("kubelet", "k3s", "k3s-agent", "rke2-agent", "rke2-server"),
        *("containerd", "docker", "crio", "cri-docker"),
        *("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "nvidia-imex", "dcgm"),
        *("slurmd", "munge", "sshd", "ssh"),
        *("chronyd", "chrony", "systemd-timesyncd", "ntpd", "ntp", "ntpsec", "ptp4l", "phc2sys"),
        *("opensm", "opensmd", "openibd", "rdma-ndd", "multipathd", "iscsid", "autofs"),
        *("lustre", "lustre-client", "lnet", "beegfs-client", "beegfs-helperd", "weka-agent"),
        *("gpfs", "mmfsd", "rbdmap", "rpcbind", "rpc-gssd"),
    )
)


def is_unit_name(text: str) -> bool:
    """Whether a text can be the name of a unit: it becomes a label and a pattern."""
    return _UNIT_NAME.fullmatch(text) is not None


class Watch(NamedTuple):
    """The units to watch: those that must be active, and those that may exist."""

    expected: tuple[str, ...]
    optional: tuple[str, ...]
    ignored: tuple[str, ...]

    def ignores(self, name: str) -> bool:
        """Whether a unit is left out."""
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    def names(self) -> list[str]:
        """The names to ask for, each once."""
        return [
            unit
            for unit in dict.fromkeys((*self.expected, *self.optional))
            if not self.ignores(unit)
        ]
