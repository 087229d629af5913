"""JSON in which no number loses anything: those that a `float` would round keep their spelling. Pure.

Python reads most numbers so that they are written as the same value. What is not sure is found by its looks,
so that other documents cost no more than `json` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_Encode = Callable[[Any, str], "tuple[bytes, list[Spelt]]"]
_MAY_BE_ROUNDED = re.compile(rb"[0-9.]{16}|[eE][-+]?[0-9]{3}")
"""Fifteen digits, and exponents of two digits, survive being a `float`. In UTF-16 and UTF-32 zero bytes stand
between the digits.
"""


class Spelt:
    """A number with a fraction or an exponent, or of more digits than Python reads, as it was spelt."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def canonical(self) -> str:
        """The same for equal numbers, as far as a `float` tells them apart; whole ones are told by digits."""
        return self.text if self.text.lstrip("-").isdigit() else json.dumps(float(self.text))


def _whole_number(text: str) -> int | Spelt:
    try:
        return int(text)
    except ValueError:  # more digits than `sys.get_int_max_str_digits`
        return Spelt(text)


_DECODER = json.JSONDecoder(parse_float=Spelt)
_DECODER_OF_LONG_NUMBERS = json.JSONDecoder(parse_float=Spelt, parse_int=_whole_number)
"""Takes longer: a call for each number."""


def read_exactly(value: bytes) -> Any:
    """The document, numbers that `json` would not read exactly as `Spelt`; None where it reads it without
    loss, or where it is no JSON.
    """
    if b"\0" not in value and not _MAY_BE_ROUNDED.search(value):
        return None
    try:
        text = value.decode(json.detect_encoding(value), "surrogatepass")
    except ValueError:
        return None
    for decoder in (_DECODER, _DECODER_OF_LONG_NUMBERS):
        with suppress(ValueError, RecursionError):
            return decoder.decode(text)
    return None


class _RepeatedNameError(Exception):
    pass


def _told_once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise _RepeatedNameError


def repeats_names(value: bytes) -> bool:
    """Whether an object in a JSON value has a name twice: readers differ in which of them they take."""
    try:
        json.loads(value, object_pairs_hook=_told_once, parse_int=_whole_number)
    except _RepeatedNameError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def problem_of(value: bytes) -> str:
    """Why there is no object or list to be had of a value."""
    return syntax_problem(value) or "it is a single value"


def syntax_problem(value: bytes) -> str | None:
    """Why a value is no JSON; None: it is."""
    try:
        json.loads(value, parse_int=_whole_number)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def write_json(document: Any) -> bytes:
    """Compact JSON."""
    return _written(document, _encode, lambda number: number.text)


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted names, by which equal values are equal; numbers with fractions as `float`
    reads them.
    """
    return _written(value, _encode_sorted, lambda number: number.canonical)


def _written(document: Any, encode: _Encode, text_of: Callable[[Spelt], str]) -> bytes:
    """With texts of numbers where `encode` writes a mark for them."""
    mark = "?"
    while True:
        encoded, numbers = encode(document, mark)
        if not numbers:
            return encoded
        pieces = encoded.split(json.dumps(mark).encode())
        if len(pieces) == len(numbers) + 1:
            texts = [*(text_of(number).encode() for number in numbers), b""]
            return b"".join(part for pair in zip(pieces, texts, strict=True) for part in pair)
        mark += "?"  # the document has this text itself


def _encode(document: Any, mark: str) -> tuple[bytes, list[Spelt]]:
    """With `mark` as a text where the numbers stand that come with it, in their order."""
    try:
        return _dumped(document, mark, ensure_ascii=False)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        return _dumped(document, mark)


def _encode_sorted(document: Any, mark: str) -> tuple[bytes, list[Spelt]]:
    return _dumped(document, mark, sort_keys=True)


def _dumped(document: Any, mark: str, **options: bool) -> tuple[bytes, list[Spelt]]:
    numbers: list[Spelt] = []

    def stand_in(number: Spelt) -> str:
        numbers.append(number)
        return mark

    text = json.dumps(document, separators=(",", ":"), default=stand_in, **options)  # type: ignore[arg-type]
    return text.encode(), numbers
