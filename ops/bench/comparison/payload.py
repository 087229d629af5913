"""Record values that compress as such data does (about 4 to 1), the same in every run. Pure."""

from __future__ import annotations

import random

COUNT_BYTES_MAX = 4_000_000
COUNT_MAX = 1_000
_STATES = ("delivered", "in_transit", "returned", "lost", "waiting")


def record_values(size: int) -> list[bytes]:
    """Different values of `size` bytes each."""
    source = random.Random(size)
    return [_value(source, size) for _ in range(max(min(COUNT_MAX, COUNT_BYTES_MAX // size), 8))]


def _value(source: random.Random, size: int) -> bytes:
    text = bytearray()
    while len(text) < size:
        text += (
            f'{{"id":{source.getrandbits(40)},"weight":{source.randrange(50_000)},'
            f'"state":"{source.choice(_STATES)}","site":"{source.randrange(400):04}"}}'
        ).encode()
    return bytes(text[:size])
