"""JSON documents out of ZooKeeper, read field by field: whatever is wrong is a CoordinationError naming the
path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker.errors import CoordinationError

INT32_MAX = 2**31 - 1


class Document:
    """One JSON object. Fields that are absent or null read as their default; a wrong type raises
    CoordinationError.
    """

    def __init__(self, fields: Mapping[str, Any], path: str) -> None:
        self._fields = fields
        self._path = path

    @classmethod
    def parse(cls, data: bytes, path: str) -> Document:
        """Raises CoordinationError when `data` is not a JSON object."""
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CoordinationError(f"{path} holds no JSON: {data[:80]!r}") from error
        if not isinstance(fields, dict):
            raise CoordinationError(f"{path} holds no JSON object: {data[:80]!r}")
        return cls(fields, path)

    def has(self, name: str) -> bool:
        """Whether the field is there, and not null."""
        return self._fields.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer, also one written as a string as some versions do; required without a default."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._wrong(name, "an integer")
        try:
            return int(value)
        except ValueError as error:
            raise self._wrong(name, "an integer") from error

    def small(self, name: str, *, minimum: int = 0, maximum: int = INT32_MAX) -> int:
        """An integer that goes into 32 bits, between these bounds; required."""
        value = self.integer(name)
        if not minimum <= value <= maximum:
            raise self._wrong(name, f"an integer from {minimum} to {maximum}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str | int):
            raise self._wrong(name, "a string")
        return str(value)

    def optional_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def members(self, name: str) -> tuple[int, ...]:
        """A list of ids of brokers, none of them twice."""
        return self._members(name, self._value(name, None))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        values = self._value(name, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._wrong(name, "a list of strings")
        return tuple(values)

    def text_map(self, name: str) -> dict[str, str]:
        """String -> string, empty when absent; numbers and booleans read as their text."""
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in self._map(name)}

    def integer_map(self, name: str) -> dict[str, int]:
        """String -> integer, empty when absent."""
        document = Document(dict(self._map(name)), self._path)
        return {key: document.integer(key) for key, _ in self._map(name)}

    def member_lists(self, name: str) -> dict[int, tuple[int, ...]]:
        """Number, written as a string -> list as `members` reads it; empty when absent."""
        lists: dict[int, tuple[int, ...]] = {}
        for key, value in self._map(name):
            if not key.isdecimal() or int(key) > INT32_MAX:
                raise self._wrong(name, "an object keyed by numbers of partitions")
            lists[int(key)] = self._members(name, value)
        return lists

    def documents(self, name: str) -> list[Document]:
        """A list of objects, empty when absent."""
        values = self._value(name, [])
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self._wrong(name, "a list of objects")
        return [Document(value, self._path) for value in values]

    def document_map(self, name: str) -> dict[str, Document]:
        """String -> object, empty when absent."""
        found = {}
        for key, value in self._map(name):
            if not isinstance(value, dict):
                raise self._wrong(name, "an object of objects")
            found[key] = Document(value, self._path)
        return found

    def _map(self, name: str) -> list[tuple[str, Any]]:
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return list(value.items())

    def _members(self, name: str, values: object) -> tuple[int, ...]:
        if not isinstance(values, list) or not all(
            type(value) is int and 0 <= value <= INT32_MAX for value in values
        ):
            raise self._wrong(name, "a list of ids")
        if len(set(values)) != len(values):
            raise self._wrong(name, "a list of different ids")
        return tuple(values)

    def _value(self, name: str, default: object) -> Any:
        value = self._fields.get(name)
        if value is None:
            value = default
        if value is None:
            raise CoordinationError(f"{self._path} has no field {name!r}")
        return value

    def _wrong(self, name: str, expected: str) -> CoordinationError:
        return CoordinationError(f"{self._path}: {name!r} is not {expected}: {self._fields.get(name)!r}")


def to_json(fields: Mapping[str, object]) -> bytes:
    """Compact JSON, keys in the order given."""
    return json.dumps(fields, separators=(",", ":")).encode()
