"""Messages of Protocol Buffers: bytes in, the fields by number out.

Only what the kubelet's answers need: texts and messages, which are length-delimited; other fields
are skipped. Google's library takes 4 MiB of every node's memory for that.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_MAX_NUMBER = (1 << 29) - 1
_MAX_LENGTH = (1 << 31) - 1
_MAX_KEY_BYTES = 5
_MAX_VARINT_BYTES = 10


class Message:
    """One message. Raises ValueError where the bytes are none; a group, which the language had
    before its version 3, is none.
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
        """The texts in a repeated field. Raises ValueError where one is not UTF-8."""
        return [value.decode() for value in self._fields.get(number, [])]

    def text(self, number: int) -> str:
        """The text in a field; '' without it, and the last one where there are several."""
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
        found, self._place = self._data[self._place : end], end
        return found
