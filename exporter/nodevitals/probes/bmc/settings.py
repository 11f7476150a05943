"""The configuration of the probe `bmc`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.document.local import LocalFile, LocalFolder, LocalProgram
from nodevitals.probe import ProbeSettings, Problem, Seconds

# A password is sent to it: https with a host and perhaps a port. Paths come from the BMC.
_URL = re.compile(r"https://(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(?::[0-9]{1,5})?/?")
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,253}")


class RedfishSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The BMC's Redfish service. Only GET requests are sent, one at a time."""

    url: str
    """URL of the BMC without a path: its address on the node's USB network (host interface), or on
    the management network. Example: `https://169.254.3.254`"""
    username_file: LocalFile
    """File with the name of a user who may only read. Example: `/etc/nodevitals/bmc-username`"""
    password_file: LocalFile
    """File with the user's password. Example: `/etc/nodevitals/bmc-password`"""
    ca_file: Optional[LocalFile] = None
    """Certificates of the authorities that may sign the BMC's certificate, or that certificate
    itself; by default the system's. Example: `/etc/nodevitals/bmc-ca.crt`"""
    server_name: str = ""
    """Name in the BMC's certificate; by default the host of the URL. Example: `node-7-bmc`"""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate: the password is then sent to any machine that has the
    BMC's address. Reasonable on the USB network of the node."""

    def problems(self) -> Iterator[Problem]:
        """A URL without TLS, paths that are not absolute."""
        if not _URL.fullmatch(self.url):
            yield Problem("url", "not a URL without a path: write it like https://169.254.3.254")
        for name in ("username_file", "password_file", "ca_file"):
            path = getattr(self, name)
            if path is not None and (not os.path.isabs(path) or "\0" in path):
                yield Problem(name, "not an absolute path: begin it with /")
        if self.server_name and not _NAME.fullmatch(self.server_name):
            yield Problem("server_name", "not a name: write it like node-7-bmc")


class BmcSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the node's own BMC is read, and how often."""

    interval: Optional[Seconds] = 300.0
    """Time between two runs. A BMC is slow: all its sensors may take a minute."""
    timeout: Optional[Seconds] = 120.0
    """Time that a run may take; at most the interval."""
    ipmitool: LocalProgram = "ipmitool"
    """Path of ipmitool, or its name on PATH."""
    device_directory: LocalFolder = "/dev"
    """Directory of the device file ipmi0, as this process and ipmitool see it."""
    exclude: tuple[str, ...] = ()
    """Patterns of sensors to leave out. Example: `["Fan9*"]`"""
    redfish: Optional[RedfishSettings] = None
    """Redfish, in place of ipmitool."""

    def problems(self) -> Iterator[Problem]:
        """A path that is not absolute, and what does not fit in `redfish`."""
        if not os.path.isabs(self.device_directory) or "\0" in self.device_directory:
            yield Problem("device_directory", "not an absolute path: begin it with /")
        if self.redfish is not None:
            for problem in self.redfish.problems():
                yield Problem(f"redfish.{problem.path}", problem.message)
