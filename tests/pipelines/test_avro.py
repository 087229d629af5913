"""Avro's encoding, by a writer that is as short as the specification."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from mirrormaker.pipelines.avro_reader import MalformedError, value_reader
from mirrormaker.pipelines.avro_schema import parse_schema, spark_type

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


def long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def text(said: str) -> bytes:
    return long(len(said.encode())) + said.encode()


def read(schema: Any, data: bytes) -> Any:
    return value_reader(parse_schema(json.dumps(schema)))(data)


ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "parts", "type": {"type": "array", "items": "float"}},
        {"name": "marks", "type": {"type": "map", "values": ["int", "string"]}},
        {"name": "paid", "type": {"type": "enum", "name": "Paid", "symbols": ["no", "yes"]}},
        {"name": "again", "type": "Paid"},
    ],
}


def order(number: int, name: str | None, parts: list[float], marks: dict[str, int | str]) -> bytes:
    said = long(0) if name is None else long(1) + text(name)
    listed = b"".join(struct.pack("<f", part) for part in parts)
    entries = b"".join(
        text(key) + (long(0) + long(value) if isinstance(value, int) else long(1) + text(value))
        for key, value in marks.items()
    )
    blocks = (long(len(parts)) + listed if parts else b"") + long(0)
    blocks += (long(-len(marks)) + long(len(entries)) + entries if marks else b"") + long(0)
    return long(number) + said + blocks + long(1) + long(0)


INTS = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    LONGS,
    st.none() | st.text(),
    st.lists(st.floats(width=32, allow_nan=False)),
    st.dictionaries(st.text(), INTS | st.text()),
)
def test_what_was_written_is_read_and_no_part_of_it_is(
    number: int, name: str | None, parts: list[float], marks: dict[str, int | str]
) -> None:
    data = order(number, name, parts, marks)
    members = [
        (key, {"member0": value} if isinstance(value, int) else {"member1": value})
        for key, value in marks.items()
    ]
    assert read(ORDER, data) == {
        "id": number,
        "name": name,
        "parts": parts,
        "marks": members,
        "paid": "yes",
        "again": "no",
    }
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(MalformedError):
            read(ORDER, wrong)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        read(ORDER, data)
    except MalformedError:
        return
    assert data


def test_schemas_become_the_types_that_spark_gives_them() -> None:
    fields = {
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "local": {"type": "long", "logicalType": "local-timestamp-micros"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "wide": ["null", "int", "long"],
        "either": ["string", "boolean"],
        "hash": {"type": "fixed", "name": "Hash", "size": 4},
        "seen": {"type": "long", "logicalType": "of-somebody"},
        "inside": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "double"}]},
    }
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    assert spark_type(parse_schema(json.dumps(record))).simpleString() == (
        "struct<day:date,at:timestamp,local:timestamp_ntz,price:decimal(9,2),wide:bigint,"
        "either:struct<member0:string,member1:boolean>,hash:binary,seen:bigint,inside:struct<x:double>>"
    )
    price = Decimal("-1234.56")
    data = (
        *(long(1), long(-1500), long(7), long(3), (-123456).to_bytes(3, "big", signed=True)),
        *(long(2), long(1 << 40), long(1), b"\1", b"\xff" * 4, long(9), struct.pack("<d", 0.5)),
    )
    assert list(read(record, b"".join(data)).values()) == [
        *(1, -1_500_000, 7, price, 1 << 40, {"member1": True}, b"\xff" * 4, 9, {"x": 0.5})
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "no schema of Avro's: "),
        ('"lnog"', "'lnog' is no type"),
        ('{"type": "record", "name": "R"}', "R has no fields"),
        ('{"type": "array"}', "null is no type"),
        ('{"type": "enum", "symbols": []}', "a enum has no name"),
        ('{"type": "enum", "name": "E", "symbols": 5}', "E has no symbols"),
        ('{"type": "enum", "name": "E", "symbols": [5]}', "E has no symbols"),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": "2"}',
            "precision and scale of a decimal are numbers",
        ),
        *(
            ('{"type": "array", "items": ' * depth + '"int"' + "}" * depth, "more than 100 types within each")
            for depth in (100, 100_000)
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}',
            "R holds itself, which no column can",
        ),
    ],
)
def test_what_is_no_schema_is_told(schema: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told.replace("(", r"\(")):
        parse_schema(schema)


@pytest.mark.parametrize(
    ("schema", "data", "told"),
    [
        ("int", long(1 << 31), "2147483648 is no int"),
        ("long", b"\xff" * 11, "a number of more than 64 bits"),
        ("boolean", b"\2", "2 is neither true nor false"),
        ("string", long(-1), "ends too early"),
        ("string", b"\2\xff", "text that is not UTF-8"),
        ({"type": "array", "items": "null"}, long(1 << 60), "items in 9 bytes"),
        (["null", "int"], long(2), "2 is none of 2 types"),
        (ORDER, long(1), "field name: ends too early"),
        ("int", long(1) + b"x", "1 bytes too many"),
    ],
)
def test_what_is_malformed_says_where(schema: Any, data: bytes, told: str) -> None:
    with pytest.raises(MalformedError, match=told):
        read(schema, data)
