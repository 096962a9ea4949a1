"""Reads and writes tf.train.Example records without TensorFlow.

An Example is a protocol buffer: a map from names to lists of bytes, floats or whole
numbers. Form: tensorflow/core/example/{example,feature}.proto, protocol buffers' wire
format https://protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator, Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT_LIST = 1, 2, 3

Value = list[bytes] | list[float] | list[int]


def parse(record: bytes) -> dict[str, Value]:
    """Reads {name: values}; ValueError where the record is no Example."""
    try:
        features = [value for field, value in _fields(record) if field == 1]
        entries = [value for one in features for f, value in _fields(one) if f == 1]
        return dict(_entry(entry) for entry in entries)
    except (IndexError, TypeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"must be a tf.train.Example, got {error}") from error


def serialise(features: Mapping[str, bytes | int]) -> bytes:
    """Writes one value a name, bytes or a whole number."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            kind, listed = _BYTES_LIST, _field(1, value)
        else:  # Whole numbers are packed; negative ones are 64 bits long.
            kind, listed = _INT_LIST, _field(1, _written(value % 2**64))
        feature = _field(kind, listed)
        entry = _field(1, name.encode()) + _field(2, feature)
        entries += _field(1, entry)
    return _field(1, entries)


def _entry(entry: bytes) -> tuple[str, Value]:
    parts = dict(_fields(entry))
    ((kind, values),) = list(_fields(parts.get(2, b""))) or [(_BYTES_LIST, b"")]
    return parts[1].decode(), _values(kind, values)


def _values(kind: int, data: bytes) -> Value:
    found: list = []
    for field, value in _fields(data):
        if field != 1:
            continue
        if kind == _BYTES_LIST:
            found.append(value)
        elif kind == _INT_LIST:
            numbers = [value] if isinstance(value, int) else _varints(value)
            found += [n - 2**64 if n >= 2**63 else n for n in numbers]
        else:
            found += struct.unpack(f"<{len(value) // 4}f", value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Goes through the fields of a message: (number, value)."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, place = _varint(data, place)
        else:
            if wire == _BYTES:
                length, place = _varint(data, place)
            else:
                length = {_FIXED64: 8, _FIXED32: 4}.get(wire)
            if length is None or place + length > len(data):
                raise IndexError("a field of another form, or one that is cut off")
            value, place = data[place : place + length], place + length
        yield number, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
        if shift > 63:
            raise IndexError("a number of more than 64 bits")


def _varints(data: bytes) -> list[int]:
    found, place = [], 0
    while place < len(data):
        number, place = _varint(data, place)
        found.append(number)
    return found


def _written(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, data: bytes) -> bytes:
    return _written(number << 3 | _BYTES) + _written(len(data)) + data
