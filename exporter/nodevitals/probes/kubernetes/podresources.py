"""The kubelet's pod resources API v1: the bytes of its answers in, typed records out.

Field numbers from k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; fields that are not used are
skipped. Of Protocol Buffers, only what these answers need is decoded: texts and messages, which are
length-delimited. Google's library takes 4 MiB of every node's memory for that.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import msgspec

_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_MAX_NUMBER = (1 << 29) - 1
_MAX_LENGTH = (1 << 31) - 1
_MAX_KEY_BYTES = 5
_MAX_VARINT_BYTES = 10

SERVICE = "/v1.PodResourcesLister"
# The API's own limit on names of objects is 253 characters; a CDI name may have more.
MAX_NAME_CHARACTERS = 512


class Message:
    """One message. Raises ValueError if the bytes are no message, or if they contain a group, which
    exists only before version 3 of the language.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0
        self._fields: dict[int, list[bytes]] = {}
        while self._place < len(data):
            number, kind = self._key()
            if kind == _DELIMITED:
                value = self._take(self._varint(_MAX_VARINT_BYTES, _MAX_LENGTH))
                self._fields.setdefault(number, []).append(value)
            elif kind == _VARINT:
                self._varint(_MAX_VARINT_BYTES)
            elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
                self._take(8 if kind == _EIGHT_BYTES else 4)
            else:
                raise ValueError(f"a field of kind {kind}")

    def messages(self, number: int) -> list[Message]:
        """The messages in a repeated field."""
        return [Message(value) for value in self._fields.get(number, [])]

    def texts(self, number: int) -> list[str]:
        """The texts in a repeated field. Raises ValueError if one is not UTF-8."""
        return [value.decode() for value in self._fields.get(number, [])]

    def text(self, number: int) -> str:
        """The text in a field; the last one if there are several, '' if there is none."""
        return (self.texts(number) or [""])[-1]

    def _key(self) -> tuple[int, int]:
        """The number of the next field, and the kind of its value."""
        key = self._varint(_MAX_KEY_BYTES)
        number, kind = key >> 3, key & 7
        if not 0 < number <= _MAX_NUMBER:
            raise ValueError(f"no field has the number {number}")
        return number, kind

    def _varint(self, max_bytes: int, highest: int | None = None) -> int:
        value = 0
        for index in range(max_bytes):
            [byte] = self._take(1)
            value |= (byte & 127) << 7 * index
            if byte < 128:
                if highest is not None and value > highest:
                    raise ValueError(f"a length of {value} bytes")
                return value
        raise ValueError(f"a number of over {max_bytes} bytes")

    def _take(self, length: int) -> bytes:
        end = self._place + length
        if end > len(self._data):
            raise ValueError("the end is missing")
        taken, self._place = self._data[self._place : end], end
        return taken


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
    return [
        _devices(message) for message in _parsed("AllocatableResourcesResponse", data).messages(1)
    ]


def _parsed(name: str, data: bytes) -> Message:
    try:
        return Message(data)
    except ValueError as error:
        raise ValueError(f"not a {name}: {error}") from None


def _containers(pod: Message) -> list[Container]:
    """The containers of a PodResources that have devices."""
    containers = []
    name, namespace = pod.text(1), pod.text(2)
    for container in pod.messages(3):
        own, devices = container.text(1), tuple(map(_devices, container.messages(2)))
        dynamic = container.messages(5)
        claims = tuple(_claim(claim) for resource in dynamic for claim in resource.messages(4))
        if claims or devices:
            names = (_name(namespace), _name(name), _name(own))
            containers.append(Container(*names, devices, claims))
    return containers


def _devices(message: Message) -> Devices:
    """The devices of a ContainerDevices."""
    return Devices(_name(message.text(1)), tuple(map(_name, message.texts(2))))


def _claim(message: Message) -> Claim:
    """The claim of a ClaimResource."""
    cdi = tuple(_name(device.text(1)) for device in message.messages(1))
    driver, pool, device = map(_name, (message.text(2), message.text(3), message.text(4)))
    return Claim(driver, pool, device, cdi)


def _name(text: str) -> str:
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise ValueError(f"not a name: {text[:40]!a}")
    return text
