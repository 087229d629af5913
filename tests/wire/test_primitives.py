"""Unsigned varints: round trips, limits, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import WireError
from broker.wire.primitives import (
    INT32_MAX,
    STRING_SIZE_MAX,
    ArrayStructs,
    encode_string_length,
    encode_unsigned_varint,
    finish_string_length,
    read_unsigned_varint,
)


@given(value=st.integers(0, INT32_MAX))
def test_an_unsigned_varint_comes_back(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert read_unsigned_varint(b"x" + encoded, 1) == (value, 1 + len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(IndexError):
            read_unsigned_varint(encoded[:size], 0)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"), (INT32_MAX, "ffffffff07")],
)
def test_varints_are_written_as_the_protocol_says(value: int, encoded: str) -> None:
    assert encode_unsigned_varint(value).hex() == encoded


@pytest.mark.parametrize("value", [-1, INT32_MAX + 1])
def test_a_value_that_fits_no_varint_is_refused(value: int) -> None:
    with pytest.raises(WireError):
        encode_unsigned_varint(value)


@pytest.mark.parametrize("encoded", ["ffffffff08", "ffffffff7f", "808080808000", "ffffffffffffffffff01"])
def test_a_varint_over_the_limit_is_refused(encoded: str) -> None:
    with pytest.raises(WireError):
        read_unsigned_varint(bytes.fromhex(encoded), 0)


def test_strings_are_limited_in_both_directions() -> None:
    longest = encode_string_length(STRING_SIZE_MAX + 1)
    assert finish_string_length(longest, longest[0], 1) == (STRING_SIZE_MAX + 1, 3)
    with pytest.raises(WireError, match="limit"):
        encode_string_length(STRING_SIZE_MAX + 2)
    too_long = encode_unsigned_varint(STRING_SIZE_MAX + 2)
    with pytest.raises(WireError, match="limit"):
        finish_string_length(too_long, too_long[0], 1)


def test_only_structs_of_short_arrays_are_kept() -> None:
    structs = ArrayStructs("i")
    for count in (0, 1, 256, 257, 10**6):
        assert structs[count].size == 4 * count
    assert sorted(structs) == [0, 1, 256]
