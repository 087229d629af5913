"""Lists, mappings with free keys, and values of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import yaml

from mirrormaker.topology.document import INT, Place, line_of
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, T, UnreadableError, unexpected
from mirrormaker.topology.kinds.numbers import read_number

K = TypeVar("K")


class ListOf(Kind[tuple[T, ...]]):
    """A list. An item that is unreadable is reported and left out; where `keeps_numbers`, a stand-in takes
    its place, so that the others are still found by their numbers.
    """

    def __init__(self, item: Kind[T], *, empty: bool = True, keeps_numbers: bool = False) -> None:
        self.item = item
        self._empty = empty
        self._keeps_numbers = keeps_numbers

    @property
    def words(self) -> str:
        return f"list of {self.item.words}"

    @property
    def stand_in(self) -> tuple[T, ...]:
        return ()

    def read(self, place: Place) -> tuple[T, ...]:
        if not isinstance(place.node, yaml.SequenceNode):
            raise unexpected("a list", place)
        if not place.node.value and not self._empty:
            raise UnreadableError("is empty")
        found = []
        for index, node in enumerate(place.node.value):
            item = place.item(index, node)
            try:
                found.append(self.item.read(item))
            except UnreadableError as error:
                item.report(str(error))
                found += [self.item.stand_in] * self._keeps_numbers
        return tuple(found)

    def schema(self) -> JsonSchema:
        return {"type": "array", "items": self.item.schema()} | ({} if self._empty else {"minItems": 1})

    def render(self, value: tuple[T, ...]) -> str:
        return "[" + ", ".join(map(self.item.render, value)) + "]"


class Several(Kind[tuple[T, ...]]):
    """A list, or one item alone."""

    def __init__(self, item: Kind[T]) -> None:
        self._item = item
        self._list = ListOf(item, empty=False)

    @property
    def words(self) -> str:
        return f"{self._item.words}, or a list"

    @property
    def stand_in(self) -> tuple[T, ...]:
        return ()

    def read(self, place: Place) -> tuple[T, ...]:
        if isinstance(place.node, yaml.SequenceNode):
            return self._list.read(place)
        return (self._item.read(place),)

    def schema(self) -> JsonSchema:
        return {"anyOf": [self._item.schema(), self._list.schema()]}

    def render(self, value: tuple[T, ...]) -> str:
        return self._list.render(value)


class _Mapping(Kind[Mapping[K, T]]):
    """What is unreadable of it is reported and left out."""

    def __init__(self, name: str, value: Kind[T]) -> None:
        """`name` says for people what the keys are."""
        self.name = name
        self.value = value

    @property
    def words(self) -> str:
        return f"mapping: {self.name} -> {self.value.words}"

    @property
    def stand_in(self) -> Mapping[K, T]:
        return {}


class MapOf(_Mapping[str, T]):
    """A mapping whose keys are names."""

    def read(self, place: Place) -> Mapping[str, T]:
        if not isinstance(place.node, yaml.MappingNode):
            raise unexpected("a mapping", place)
        found: dict[str, T] = {}
        for key, entry in place.entries().items():
            try:
                found[key] = self.value.read(entry)
            except UnreadableError as error:
                entry.report(str(error))
        return found

    def schema(self) -> JsonSchema:
        return {"type": "object", "additionalProperties": self.value.schema()}

    def render(self, value: Mapping[str, T]) -> str:
        return "{" + ", ".join(f"{key}: {self.value.render(item)}" for key, item in value.items()) + "}"


class NumberedOf(_Mapping[int, T]):
    """A mapping whose keys are whole numbers from 0 on."""

    def read(self, place: Place) -> Mapping[int, T]:
        if not isinstance(place.node, yaml.MappingNode):
            raise unexpected("a mapping", place)
        found: dict[int, T] = {}
        for key, value in place.node.value:
            entry = place.below(str(key.value), value, line_of(key))
            try:
                number = _number(key)
                if number in found:
                    raise UnreadableError(f"the {self.name} {number} stands here twice")
                found[number] = self.value.read(entry)
            except UnreadableError as error:
                entry.report(str(error))
        return found

    def schema(self) -> JsonSchema:
        return {
            "type": "object",
            "patternProperties": {"^[0-9]+$": self.value.schema()},
            "additionalProperties": False,
        }


def _number(key: yaml.Node) -> int:
    if not isinstance(key, yaml.ScalarNode) or key.tag != INT or not key.value.isdecimal():
        raise UnreadableError("the key is not a number: whole, from 0 on")
    return read_number(key.value)
