"""What filters of records are made of: fields, relations, and their combinations. Pure.

A comparison holds when anything that its field names has the relation: of several headers of one name any may
be the one. Nothing is in relation to what a record does not have, nor, but for `!=`, to what is of another
kind; `not` turns that around.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from broker.records.record import Header

Literal = bytes | str | float | int | bool | None
"""What a field is compared with: bytes for keys, values and headers, JSON's kinds for fields of values."""

_LONG_NUMBER = re.compile(rb"[0-9]{640}")
"""Shorter whole numbers Python reads however it is configured; no `float` has as many digits. In
UTF-16 and UTF-32 zero bytes stand between them.
"""
_UNREAD = object()
_NOTHING: tuple[Any, ...] = ()


class LookedAt:
    """A record under a filter: its value is read as JSON at most once."""

    __slots__ = ("_document", "headers", "key", "value")

    def __init__(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self._document: Any = _UNREAD

    @property
    def document(self) -> Any:
        """The value as JSON; what is none is None."""
        if self._document is _UNREAD:
            try:
                self._document = None if self.value is None else _read_json(self.value)
            except (ValueError, RecursionError):
                self._document = None
        return self._document

    def look_anew(self) -> None:
        """The value is another one now."""
        self._document = _UNREAD


def _read_json(value: bytes) -> Any:
    """A whole number of more digits than Python reads is told as an infinite one, as those with an exponent
    are that no `float` holds. Raises ValueError, RecursionError.
    """
    try:
        return json.loads(value)
    except ValueError:
        if b"\0" not in value and _LONG_NUMBER.search(value) is None:
            raise
        return json.loads(value, parse_int=_whole_number)


def _whole_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


class Field(Protocol):
    """What a filter looks at."""

    def found(self, record: LookedAt) -> Sequence[Any]:
        """Everything in the record that the field names."""
        ...


class Term(Protocol):
    """A part of a filter."""

    def holds(self, record: LookedAt) -> bool: ...


@dataclass(frozen=True, slots=True)
class Key:
    def found(self, record: LookedAt) -> Sequence[Any]:
        return _NOTHING if record.key is None else (record.key,)


@dataclass(frozen=True, slots=True)
class Value:
    def found(self, record: LookedAt) -> Sequence[Any]:
        return _NOTHING if record.value is None else (record.value,)


@dataclass(frozen=True, slots=True)
class HeaderNamed:
    name: str

    def found(self, record: LookedAt) -> Sequence[Any]:
        return [value for name, value in record.headers if name == self.name]


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of a JSON value by the names and indexes that lead to it."""

    path: tuple[str | int, ...]

    def found(self, record: LookedAt) -> Sequence[Any]:
        place = record.document
        if place is None:
            return _NOTHING
        for step in self.path:
            if isinstance(step, str):
                if not isinstance(place, dict) or step not in place:
                    return _NOTHING
            elif not isinstance(place, list) or step >= len(place):
                return _NOTHING
            place = place[step]
        return (place,)


def _kind(value: Any) -> type:
    """Numbers are of one kind, and truth values are no numbers."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(found: Any, literal: Any) -> bool:
        kind = _kind(literal)
        return kind in (bytes, str, float) and _kind(found) is kind and compare(found, literal)

    return holds


def _equal(found: Any, literal: Any) -> bool:
    return _kind(found) is _kind(literal) and bool(found == literal)


def _starts(found: Any, literal: Any) -> bool:
    return type(found) is type(literal) and bool(found.startswith(literal))


def _contains(found: Any, literal: Any) -> bool:
    return type(found) is type(literal) and literal in found


RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda found, literal: not _equal(found, literal),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "starts with": _starts,
    "contains": _contains,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    field: Field
    relation: Callable[[Any, Any], bool]
    literal: Literal

    def holds(self, record: LookedAt) -> bool:
        return any(self.relation(found, self.literal) for found in self.field.found(record))


@dataclass(frozen=True, slots=True)
class Membership:
    field: Field
    literals: tuple[Literal, ...]

    def holds(self, record: LookedAt) -> bool:
        return any(_equal(found, one) for found in self.field.found(record) for one in self.literals)


@dataclass(frozen=True, slots=True)
class Existence:
    field: Field

    def holds(self, record: LookedAt) -> bool:
        return bool(self.field.found(record))


@dataclass(frozen=True, slots=True)
class Not:
    term: Term

    def holds(self, record: LookedAt) -> bool:
        return not self.term.holds(record)


@dataclass(frozen=True, slots=True)
class AllOf:
    terms: tuple[Term, ...]

    def holds(self, record: LookedAt) -> bool:
        return all(term.holds(record) for term in self.terms)


@dataclass(frozen=True, slots=True)
class AnyOf:
    terms: tuple[Term, ...]

    def holds(self, record: LookedAt) -> bool:
        return any(term.holds(record) for term in self.terms)
