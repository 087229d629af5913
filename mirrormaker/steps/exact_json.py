"""JSON in which no number loses anything: those that a `float` would round keep their spelling. Pure.

Python reads most numbers so that they are written as the same value. What is not sure is found by its looks,
so that other documents cost no more than `json` does.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MAY_BE_ROUNDED = re.compile(rb"[0-9.]{16}|[eE][-+]?[0-9]{3}")
"""Fifteen digits, and exponents of two digits, survive being a `float`."""


class Spelt:
    """A number with a fraction or an exponent, as it was spelt."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_DECODER = json.JSONDecoder(parse_float=Spelt)


def read_exactly(value: bytes) -> Any:
    """The document, its numbers with fractions as `Spelt`; None where `json` reads it without loss, or where
    it is no JSON.
    """
    if not _MAY_BE_ROUNDED.search(value):
        return None
    try:
        return _DECODER.decode(value.decode(json.detect_encoding(value), "surrogatepass"))
    except (ValueError, RecursionError):
        return None


def write_json(document: Any) -> bytes:
    """Compact JSON."""
    mark = "?"
    while True:
        spelt: list[str] = []
        encoded = _encode(document, mark, spelt)
        stand_in = json.dumps(mark).encode()
        if not spelt:
            return encoded
        pieces = encoded.split(stand_in)
        if len(pieces) == len(spelt) + 1:
            return b"".join(
                part for pair in zip(pieces, [*map(str.encode, spelt), b""], strict=True) for part in pair
            )
        mark += "?"  # the document has this text itself


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted names, by which equal values are equal; numbers as `float` reads them."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda number: float(number.text))
    return text.encode()


def _encode(document: Any, mark: str, spelt: list[str]) -> bytes:
    """With `mark` as a text where numbers stand that are `spelt`, in their order."""

    def stand_in(number: Spelt) -> str:
        spelt.append(number.text)
        return mark

    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=stand_in)
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        spelt.clear()
        return json.dumps(document, separators=(",", ":"), default=stand_in).encode()
