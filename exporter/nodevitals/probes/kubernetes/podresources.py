"""The kubelet's pod resources API v1: the bytes of its answers in, typed records out.

Field numbers from k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; fields that are not used are
skipped.
"""

from __future__ import annotations

import msgspec

from nodevitals.probes.kubernetes.protobuf import Message

SERVICE = "/v1.PodResourcesLister"
# The API's own limit on names of objects is 253 characters; a CDI name may have more.
MAX_NAME_CHARACTERS = 512


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
    """The containers that have devices, of a ListPodResourcesResponse. Raises ValueError."""
    pods = _parsed("ListPodResourcesResponse", data).messages(1)
    return [container for pod in pods for container in _containers(pod)]


def parse_allocatable(data: bytes) -> list[Devices]:
    """The devices of an AllocatableResourcesResponse. Raises ValueError."""
    return [_devices(one) for one in _parsed("AllocatableResourcesResponse", data).messages(1)]


def _parsed(name: str, data: bytes) -> Message:
    try:
        return Message(data)
    except ValueError as error:
        raise ValueError(f"not a {name}: {error}") from None


def _containers(pod: Message) -> list[Container]:
    """Those of a PodResources that have devices."""
    found = []
    name, namespace = pod.text(1), pod.text(2)
    for container in pod.messages(3):
        own, devices = container.text(1), tuple(map(_devices, container.messages(2)))
        dynamic = container.messages(5)
        claims = tuple(_claim(claim) for one in dynamic for claim in one.messages(4))
        if claims or devices:
            names = (_name(namespace), _name(name), _name(own))
            found.append(Container(*names, devices, claims))
    return found


def _devices(message: Message) -> Devices:
    """Of a ContainerDevices."""
    return Devices(_name(message.text(1)), tuple(map(_name, message.texts(2))))


def _claim(message: Message) -> Claim:
    """Of a ClaimResource."""
    cdi = tuple(_name(device.text(1)) for device in message.messages(1))
    driver, pool, device = map(_name, (message.text(2), message.text(3), message.text(4)))
    return Claim(driver, pool, device, cdi)


def _name(text: str) -> str:
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise ValueError(f"not a name: {text[:40]!a}")
    return text
