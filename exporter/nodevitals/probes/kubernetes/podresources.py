"""The kubelet's pod resources API v1: the bytes of its answers in, typed records out.

Field numbers from k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; fields that are not used are
skipped. protobuf is imported here only, and only when a run needs it: it takes memory and time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

SERVICE = "/v1.PodResourcesLister"
# The API's own limit on names of objects is 253 characters; a CDI name may have more.
MAX_NAME_CHARACTERS = 512

# Message: its fields, each with its number and the message or `string` that it repeats (`*`) or is.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ListPodResourcesResponse": {"pod_resources": (1, "*PodResources")},
    "AllocatableResourcesResponse": {"devices": (1, "*ContainerDevices")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "*ContainerResources"),
    },
    "ContainerResources": {
        "name": (1, "string"),
        "devices": (2, "*ContainerDevices"),
        "dynamic_resources": (5, "*DynamicResource"),
    },
    "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "*string")},
    "DynamicResource": {"claim_resources": (4, "*ClaimResource")},
    "ClaimResource": {
        "cdi_devices": (1, "*CDIDevice"),
        "driver_name": (2, "string"),
        "pool_name": (3, "string"),
        "device_name": (4, "string"),
    },
    "CDIDevice": {"name": (1, "string")},
}


class Devices(msgspec.Struct, frozen=True, array_like=True):
    """The IDs of the devices of one resource."""

    resource: str
    ids: tuple[str, ...]


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A device that was allocated dynamically (DRA): its driver, pool and name, and its names for
    the container device interface.
    """

    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...] = ()


class Container(msgspec.Struct, frozen=True, array_like=True):
    """A container that has devices."""

    namespace: str
    pod: str
    name: str
    devices: tuple[Devices, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def pod_key(self) -> str:
        """Namespace and name of its pod."""
        return f"{self.namespace}/{self.pod}"


def parse_list(data: bytes) -> list[Container]:
    """The containers that have devices, of the answer to List. Raises ValueError."""
    found = []
    for pod in _parsed("ListPodResourcesResponse", data).pod_resources:
        for one in pod.containers:
            claims = tuple(
                _claim(part) for claim in one.dynamic_resources for part in claim.claim_resources
            )
            devices = tuple(map(_devices, one.devices))
            if claims or devices:
                names = (_name(pod.namespace), _name(pod.name), _name(one.name))
                found.append(Container(*names, devices, claims))
    return found


def parse_allocatable(data: bytes) -> list[Devices]:
    """The devices of the answer to GetAllocatableResources. Raises ValueError."""
    return list(map(_devices, _parsed("AllocatableResourcesResponse", data).devices))


def _devices(message: Any) -> Devices:
    return Devices(_name(message.resource_name), tuple(map(_name, message.device_ids)))


def _claim(message: Any) -> Claim:
    cdi = tuple(_name(one.name) for one in message.cdi_devices)
    driver, pool = _name(message.driver_name), _name(message.pool_name)
    return Claim(driver, pool, _name(message.device_name), cdi)


def _name(text: str) -> str:
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise ValueError(f"not a name: {text[:40]!a}")
    return text


def _parsed(name: str, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    message = message_classes()[name]()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {name}: {error}") from None
    return message


@cache
def message_classes() -> dict[str, Any]:
    """The classes by name, in a pool of their own: another library may declare the same names."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="podresources.proto", package="v1", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated = kind.startswith("*")
            kind = kind.removeprefix("*")
            added = message.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added.type = kinds.TYPE_STRING if kind == "string" else kinds.TYPE_MESSAGE
            if kind != "string":
                added.type_name = f".v1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}"))
        for name in _MESSAGES
    }
