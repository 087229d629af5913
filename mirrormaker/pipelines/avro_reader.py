"""Avro's binary encoding: from bytes to what Arrow makes columns of. Pure.

A value must take all of its bytes. Times become numbers of days or microseconds, records dictionaries, maps
lists of pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from mirrormaker.pipelines.avro_schema import (
    ArrayType,
    AvroType,
    DecimalType,
    EnumType,
    FixedType,
    MapType,
    Primitive,
    PrimitiveType,
    RecordType,
    UnionType,
    Unit,
)

_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
_VARINT_BITS_MAX = 63
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
Reading = tuple[Any, int]
"""A value, and where the next one begins."""
Read = Callable[[bytes, int], Reading]


class MalformedError(ValueError):
    """Bytes that are not of the schema."""


def value_reader(avro: AvroType) -> Callable[[bytes], Any]:
    """What reads one value; it raises MalformedError."""
    read = _reader(avro)

    def whole(data: bytes) -> Any:
        try:
            value, end = read(data, 0)
        except (IndexError, struct.error):
            raise MalformedError("ends too early") from None
        except UnicodeDecodeError:
            raise MalformedError("text that is not UTF-8") from None
        if end != len(data):
            raise MalformedError(f"{len(data) - end} bytes too many")
        return value

    return whole


def _reader(avro: AvroType) -> Read:
    match avro:
        case PrimitiveType(kind=kind, unit=unit):
            if unit in (Unit.MILLISECONDS, Unit.LOCAL_MILLISECONDS):
                return _read_milliseconds
            return _PRIMITIVES[kind]
        case FixedType(size=size):
            return partial(_read_fixed, size)
        case DecimalType(scale=scale, size=size):
            return partial(_read_decimal, avro.precision, scale, size)
        case EnumType(symbols=symbols):
            return partial(_read_symbol, symbols)
        case ArrayType(items=items):
            return partial(_read_items, _reader(items))
        case MapType(values=values):
            return partial(_read_items, partial(_read_entry, _reader(values)))
        case RecordType(fields=fields):
            return partial(_read_record, [(name, _reader(each)) for name, each in fields.items()])
        case UnionType():
            return partial(_read_branch, _branches(avro))


def _branches(union: UnionType) -> list[tuple[Read, str | None]]:
    """Of each branch, and what the member is called that it is in a struct."""
    is_struct = len(union.values) != 1 and union.wide is None
    found: list[tuple[Read, str | None]] = []
    member = 0
    for each in union.branches:
        is_null = each == PrimitiveType(kind=Primitive.NULL)
        found.append((_reader(each), f"member{member}" if is_struct and not is_null else None))
        member += not is_null
    return found


def _read_null(data: bytes, at: int) -> Reading:
    return None, at


def _read_boolean(data: bytes, at: int) -> Reading:
    if data[at] > 1:
        raise MalformedError(f"{data[at]} is neither true nor false")
    return data[at] == 1, at + 1


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    number, bits = byte & 0x7F, 7
    while byte & 0x80:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << bits
        bits += 7
        if bits > _VARINT_BITS_MAX + 7 or number >> 64:
            raise MalformedError("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


def _read_int(data: bytes, at: int) -> Reading:
    number, at = _read_long(data, at)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise MalformedError(f"{number} is no int")
    return number, at


def _read_milliseconds(data: bytes, at: int) -> Reading:
    number, at = _read_long(data, at)
    if abs(number) > _LONG_MAX // 1000:
        raise MalformedError(f"{number} is no time")
    return number * 1000, at


def _read_float(data: bytes, at: int) -> Reading:
    return _FLOAT.unpack_from(data, at)[0], at + _FLOAT.size


def _read_double(data: bytes, at: int) -> Reading:
    return _DOUBLE.unpack_from(data, at)[0], at + _DOUBLE.size


def _read_fixed(size: int, data: bytes, at: int) -> tuple[bytes, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise MalformedError("ends too early")
    return data[at:end], end


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    return _read_fixed(size, data, at)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _read_bytes(data, at)
    return text.decode(), at


def _read_decimal(precision: int, scale: int, size: int | None, data: bytes, at: int) -> Reading:
    body, at = _read_bytes(data, at) if size is None else _read_fixed(size, data, at)
    number = int.from_bytes(body, "big", signed=True)
    if abs(number) >= 10**precision:
        raise MalformedError(f"a decimal of more than {precision} digits")
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)), at


def _read_symbol(symbols: tuple[str, ...], data: bytes, at: int) -> Reading:
    number, at = _read_long(data, at)
    if not 0 <= number < len(symbols):
        raise MalformedError(f"{number} is none of {len(symbols)} symbols")
    return symbols[number], at


def _read_items(read: Read, data: bytes, at: int) -> Reading:
    """Blocks of items up to one of none; a negative count has the size of the block behind it."""
    found: list[Any] = []
    while True:
        count, at = _read_long(data, at)
        if count == 0:
            return found, at
        if count < 0:
            count = -count
            _, at = _read_long(data, at)
        if count > len(data):  # no item takes less than a byte, but for those of nothing
            raise MalformedError(f"{count} items in {len(data)} bytes")
        for _ in range(count):
            value, at = read(data, at)
            found.append(value)


def _read_entry(read: Read, data: bytes, at: int) -> Reading:
    key, at = _read_string(data, at)
    value, at = read(data, at)
    return (key, value), at


def _read_record(fields: list[tuple[str, Read]], data: bytes, at: int) -> Reading:
    found = {}
    for name, read in fields:
        try:
            found[name], at = read(data, at)
        except MalformedError as error:
            raise MalformedError(f"field {name}: {error}") from None
        except (IndexError, struct.error):
            raise MalformedError(f"field {name}: ends too early") from None
        except UnicodeDecodeError:
            raise MalformedError(f"field {name}: text that is not UTF-8") from None
    return found, at


def _read_branch(branches: list[tuple[Read, str | None]], data: bytes, at: int) -> Reading:
    number, at = _read_long(data, at)
    if not 0 <= number < len(branches):
        raise MalformedError(f"{number} is none of {len(branches)} types")
    read, member = branches[number]
    value, at = read(data, at)
    return (value if member is None else {member: value}), at


_PRIMITIVES: dict[Primitive, Read] = {
    Primitive.NULL: _read_null,
    Primitive.BOOLEAN: _read_boolean,
    Primitive.INT: _read_int,
    Primitive.LONG: _read_long,
    Primitive.FLOAT: _read_float,
    Primitive.DOUBLE: _read_double,
    Primitive.BYTES: _read_bytes,
    Primitive.STRING: _read_string,
}
