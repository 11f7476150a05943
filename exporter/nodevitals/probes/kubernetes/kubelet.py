"""Asks the kubelet's pod resources API over its Unix socket, once per run.

In: the socket's path. Out: typed records, or a ProbeError with the reason. h2
is imported here only, where it is installed.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from nodevitals.probe import Absent, ProbeError
from nodevitals.probes.kubernetes.podresources import (
    SERVICE,
    Container,
    Devices,
    parse_allocatable,
    parse_list,
)

T = TypeVar("T")
# The limit of Kubernetes' own clients.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 1.0
INSTALL = "install nodevitals with the extra pods"
_SHOWN_CHARACTERS = 200


class CallError(ProbeError):
    """A call that failed; `result` is the label of the counter of requests."""

    def __init__(self, result: str, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.result = result


class UnsupportedError(CallError):
    """A call that this kubelet does not have, or that is turned off there."""


def find_socket(*paths: str) -> str:
    """The first of these paths that exists, else the first one. The socket is below the node's
    root, or mounted at the same place in a container.
    """
    return next((path for path in paths if os.path.exists(path)), paths[0])


def check_socket(path: str) -> None:
    """Connect once, to get the kernel's reason for a failure. Raises Absent if there is no socket,
    CallError if the socket accepts no connection.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect(path)
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(f"no socket of a kubelet at {path}") from None
        except (TimeoutError, BlockingIOError):  # EAGAIN: its queue of connections is full
            text = f"{path}: no connection is accepted: the kubelet hangs"
            raise CallError("timeout", "timeout", text) from None
        except OSError as error:
            raise _refused(path, error) from None


def _refused(path: str, error: OSError) -> CallError:
    if error.errno in (errno.EACCES, errno.EPERM):
        text = f"{path}: {error.strerror}: the agent must run as root, with the socket's folder"
        return CallError("denied", "no_access", f"{text} mounted")
    if error.errno == errno.ECONNREFUSED:
        text = f"{path}: {error.strerror}: is the kubelet running? systemctl status kubelet"
        return CallError("unavailable", "kubelet", text)
    return CallError("error", "kubelet", f"{path}: {error.strerror or error}")


class Kubelet:
    """A connection to the kubelet for one run; all its calls end by the same deadline."""

    def __init__(self, path: str, seconds: float) -> None:
        """Raises ProbeError if h2 is not installed."""
        import_libraries()
        from nodevitals.probes.kubernetes.grpc import Connection, GrpcError

        self._path = path
        self._failed = GrpcError
        self._connection = Connection(path, time.monotonic() + seconds, MAX_ANSWER_BYTES)

    def containers(self) -> list[Container]:
        """The containers that have devices. Raises CallError."""
        return self._call("List", parse_list)

    def allocatable(self) -> list[Devices]:
        """The healthy devices that may be allocated. Raises CallError, UnsupportedError."""
        return self._call("GetAllocatableResources", parse_allocatable)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _call(self, name: str, parse: Callable[[bytes], T]) -> T:
        try:
            return parse(self._connection.call(f"{SERVICE}/{name}", b""))
        except self._failed as error:
            raise self._failure(name, error.code, error.details) from None
        except ValueError as error:
            text = f"{self._path}: {name}: {str(error)[:_SHOWN_CHARACTERS]}"
            raise CallError("error", "garbage", text) from None

    def _failure(self, name: str, code: str, details: str) -> CallError:
        text = f"{self._path}: {name}: {code}: {details[:_SHOWN_CHARACTERS]}"
        # If the feature gate is off, the error has no code of its own; KEP-2403.
        if code == "UNIMPLEMENTED" or (code == "UNKNOWN" and "disabled" in details):
            return UnsupportedError("error", "kubelet", f"{text}: needs Kubernetes 1.23 or later")
        if code == "DEADLINE_EXCEEDED":
            return CallError("timeout", "timeout", f"{text}: the kubelet hangs")
        if code == "PERMISSION_DENIED":
            return CallError("denied", "no_access", text)
        if code == "RESOURCE_EXHAUSTED" and "rate" in details:
            return CallError("throttled", "kubelet", text)
        result = "unavailable" if code == "UNAVAILABLE" else "error"
        return CallError(result, "kubelet", text)


def import_libraries() -> None:
    """Import the modules that call the kubelet. Raises ProbeError if h2 is not installed."""
    try:
        importlib.import_module("nodevitals.probes.kubernetes.grpc")
    except ImportError as error:
        text = f"{error.name or error} is not installed: {INSTALL}"
        raise ProbeError("missing", text) from None
