"""Messages made from their own declarations, for every test that wants "any message in any version"."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from broker.wire.message import Versioned, VersionedData
from broker.wire.messages import (
    consumer_group_records,
    consumer_protocol,
    group_records,
    offset_records,
    principal,
    producer_snapshot,
    transaction_records,
)
from broker.wire.registry import APIS
from broker.wire.schema import Field, Kind, Struct

_DATA_MODULES = (
    consumer_group_records,
    consumer_protocol,
    group_records,
    offset_records,
    principal,
    producer_snapshot,
    transaction_records,
)
STORED_VALUES: list[type[VersionedData]] = [
    value
    for module in _DATA_MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, VersionedData) and value is not VersionedData
]
MESSAGES: list[type[Versioned]] = [
    *(side for api in APIS.values() for side in (api.request, api.response)),
    *STORED_VALUES,
]

_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_UNSIGNED_BITS = {Kind.UINT16: 16, Kind.UINT32: 32}
_TEXTS = ("", "a", "orders.eu", "Grüße", "日本", "x" * 127, "y" * 128, "z" * 300)
_OWN_TAGS_FROM = 100
_MANY = 130
"""An array length whose compact form takes two bytes."""


def versions_of(message: type[Versioned]) -> range:
    """Every version of `message`."""
    return range(message.min_version, message.max_version + 1)


def every_message_and_version() -> Iterator[tuple[type[Versioned], int]]:
    """All pairs that there are tables for."""
    for message in MESSAGES:
        for version in versions_of(message):
            yield message, version


def sample(struct: type[Struct], version: int, random: Random, *, tame: bool = False) -> Any:
    """A `struct` with random values in the fields that `version` carries, and defaults in the others.

    `tame` keeps error codes, durations and timestamps within what oracles can represent, and leaves out the
    tagged fields that only our nodes know.
    """
    values = {
        field.name: _value(field, version, random, tame=tame)
        for field in struct.__fields__
        if version in field.versions
        and (field.tag is None or random.random() < 0.5)
        and not (tame and is_our_own(field))
    }
    return struct(**values)


def is_our_own(field: Field) -> bool:
    """Whether Kafka has no such field: others skip it, as they skip every tag that they do not know."""
    return field.tag is not None and field.tag >= _OWN_TAGS_FROM


def samples(struct: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """As `sample`, as a strategy over seeds: a failure prints the value, and its seed stays small."""
    return st.integers(0, 1 << 32).map(lambda seed: sample(struct, version, Random(seed)))


def _value(field: Field, version: int, random: Random, *, tame: bool) -> Any:
    if version in field.nullable and random.random() < 0.25:
        return None
    match field.kind:
        case Kind.ARRAY:
            assert field.element is not None
            count = _array_length(field.element, random)
            return [_value(field.element, version, random, tame=tame) for _ in range(count)]
        case Kind.STRUCT:
            return sample(field.nested(), version, random, tame=tame)
        case Kind.STRING:
            return random.choice(_TEXTS)
        case Kind.BYTES | Kind.RECORDS:
            return random.randbytes(random.choice((0, 1, 5, 126, 127, 200)))
        case Kind.UUID:
            return UUID(int=random.choice((0, 1, random.getrandbits(128))))
        case Kind.BOOL:
            return random.random() < 0.5
        case Kind.FLOAT64:
            return random.choice((0.0, -1.5, 1e300))
        case _:
            return _integer(field, random, tame=tame)


def _array_length(element: Field, random: Random) -> int:
    if element.kind is not Kind.STRUCT and random.random() < 0.05:
        return _MANY
    return random.choice((0, 1, 1, 2, 3))


def _integer(field: Field, random: Random, *, tame: bool) -> int:
    if tame and field.name.endswith("error_code"):
        return random.choice((-1, 0, 1, 3, 76))
    if field.kind in _UNSIGNED_BITS:
        return random.choice((0, 1, (1 << _UNSIGNED_BITS[field.kind]) - 1))
    bits = _INTEGER_BITS[field.kind]
    if tame and (field.name.endswith("_ms") or "timestamp" in field.name) and bits == 64:
        return random.choice((0, 1, 86_400_000, 1_700_000_000_123))
    half = 1 << bits - 1
    return random.choice((0, 1, -1, 127, -half, half - 1, random.randrange(-half, half)))
