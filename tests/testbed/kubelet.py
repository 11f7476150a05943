"""A kubelet: its pod resources API on a Unix socket, served by grpcio.

The messages are written by hand, byte by byte, from the field numbers of Kubernetes 1.34's
api.proto, with fields that the probe does not read, as a kubelet sends them.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import msgspec

SERVICE = "v1.PodResourcesLister"


class Claim(msgspec.Struct, kw_only=True):
    """A device of a container that was allocated dynamically."""

    driver: str = "gpu.nvidia.com"
    pool: str = "node-7"
    device: str = ""
    cdi: tuple[str, ...] = ()


class Pod(msgspec.Struct, kw_only=True):
    """A pod as the kubelet and the API server know it, with one container."""

    name: str
    namespace: str = "train"
    uid: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    devices: dict[str, list[str]] = {}
    claims: list[Claim] = []
    container: str = "main"
    container_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex * 2)
    last_container_id: str = ""
    phase: str = "Running"
    node: str = "node-7"


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: bytes | str | int) -> bytes:
    """One field: a length-delimited one, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def _devices(number: int, resource: str, ids: Iterable[str]) -> bytes:
    """Since 1.21 the kubelet has one entry per NUMA node; here one per device."""
    topology = field(3, field(1, field(1, 1)))
    return b"".join(field(number, field(1, resource) + field(2, one) + topology) for one in ids)


def _claim(claim: Claim) -> bytes:
    cdi = b"".join(field(1, field(1, name)) for name in claim.cdi)
    names = field(2, claim.driver) + field(3, claim.pool) + field(4, claim.device)
    return field(2, "a-claim") + field(3, "train") + field(4, cdi + names)


def _pod(pod: Pod) -> bytes:
    main = field(1, pod.container)
    main += b"".join(_devices(2, resource, ids) for resource, ids in pod.devices.items())
    main += field(3, bytes([0, 1, 2]))  # exclusive CPUs, packed
    main += field(4, field(1, "memory") + field(2, 1 << 30))
    main += b"".join(field(5, _claim(claim)) for claim in pod.claims)
    sidecar = field(1, "istio-proxy")
    return field(1, pod.name) + field(2, pod.namespace) + field(3, main) + field(3, sidecar)


class Kubelet:
    """The socket of a kubelet that has these pods. `behaviour` is `` or `hang`, `garbage`,
    `truncated`, `old` (no GetAllocatableResources), `disabled`, `limited`, `slow_allocatable`.
    """

    def __init__(self, folder: Path, pods: list[Pod]) -> None:
        self.path = folder / "kubelet.sock"
        self.pods = pods
        self.allocatable: dict[str, list[str]] = {}
        self.behaviour = ""
        self.calls: list[str] = []
        self._server: Any = None
        self._stopped = threading.Event()

    def __enter__(self) -> Kubelet:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Kubelet:
        """Serve; a socket file that was left behind is replaced, as the kubelet does."""
        self.path.unlink(missing_ok=True)
        self._stopped.clear()
        self._server = grpc.server(ThreadPoolExecutor(4))
        handlers = {
            "List": grpc.unary_unary_rpc_method_handler(self._list),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(self._allocatable),
        }
        if self.behaviour == "old":
            del handlers["GetAllocatableResources"]
        handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((handler,))
        assert self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()
        return self

    def stop(self) -> None:
        """End, as in a restart: the socket is gone."""
        self._stopped.set()
        self._server.stop(grace=None).wait(10)
        self.path.unlink(missing_ok=True)

    def _list(self, request: bytes, context: Any) -> bytes:
        assert request == b""
        self.calls.append("List")
        self._behave(context)
        body = b"".join(field(1, _pod(pod)) for pod in self.pods)
        if self.behaviour == "garbage":
            return b"\xff" * 100
        return body[: len(body) // 2] if self.behaviour == "truncated" else body

    def _allocatable(self, request: bytes, context: Any) -> bytes:
        assert request == b""
        self.calls.append("GetAllocatableResources")
        if self.behaviour == "disabled":
            # The text of fmt.Errorf in server_v1.go; such an error has no code.
            text = "Pod Resources API GetAllocatableResources disabled"
            context.abort(grpc.StatusCode.UNKNOWN, text)
        if self.behaviour == "slow_allocatable":
            self._stopped.wait(600)
        rows = (_devices(1, resource, ids) for resource, ids in self.allocatable.items())
        return b"".join(rows) + field(2, bytes([0, 1, 2, 3])) + field(3, field(1, "memory"))

    def _behave(self, context: Any) -> None:
        if self.behaviour == "hang":
            self._stopped.wait(600)
        if self.behaviour == "limited":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


class SilentSocket:
    """A socket whose process accepts no connection; `full`: and whose queue takes none either."""

    def __init__(self, path: Path, *, full: bool = False) -> None:
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(0 if full else 16)
        self._waiting: list[socket.socket] = []
        while full and self._fill(str(path)):
            pass

    def _fill(self, path: str) -> bool:
        sock = socket.socket(socket.AF_UNIX)
        self._waiting.append(sock)
        sock.setblocking(False)
        try:
            sock.connect(path)
        except BlockingIOError:
            return False
        return len(self._waiting) < 100

    def close(self) -> None:
        """End it."""
        for sock in (*self._waiting, self._server):
            sock.close()


def gpu_uuid(number: int) -> str:
    """The uuid of a simulated GPU."""
    return f"GPU-00000000-0000-4000-8000-{number:012x}"


def mig_uuid(number: int) -> str:
    """The uuid of a simulated MIG instance."""
    return f"MIG-00000000-0000-5000-8000-{number:012x}"


def job_pod(number: int, devices: dict[str, list[str]], **more: Any) -> Pod:
    """A pod of a Volcano job with these devices."""
    labels = {
        "volcano.sh/job-name": f"pretrain-{number // 4}",
        "volcano.sh/queue-name": "research",
        "user.id": f"user-{number % 3}",
    }
    return Pod(name=f"pretrain-{number}", labels=labels, devices=devices, **more)


def gpu_pods(gpus: int = 8, pods: int = 40) -> list[Pod]:
    """Pods with one GPU each, and pods without a device."""
    with_gpu = [job_pod(n, {"nvidia.com/gpu": [gpu_uuid(n)]}) for n in range(gpus)]
    return with_gpu + [Pod(name=f"web-{n}", namespace="web") for n in range(pods - gpus)]
