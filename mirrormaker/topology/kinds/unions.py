"""Mappings of which exactly one key says what they are, and values that are text or a mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from mirrormaker.topology.document import Place, suggestion
from mirrormaker.topology.kinds.docs import class_doc, field_docs
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, T, UnreadableError, unexpected
from mirrormaker.topology.kinds.records import Key


@dataclass(frozen=True, slots=True)
class Alternative:
    """One key of several: the kind of its value, and what is made of it and of the keys beside. `documented`
    is the class whose docstring says what it means.
    """

    kind: Kind[Any]
    make: Callable[..., Any]
    documented: type


class OneKey(Kind[T]):
    """A mapping with exactly one key out of `alternatives`, and any of those `beside` it."""

    def __init__(
        self,
        alternatives: Mapping[str, Alternative],
        *,
        stand_in: T,
        cls: type = object,
        beside: Mapping[str, Kind[Any] | Key] | None = None,
    ) -> None:
        """`cls` is the class whose fields the keys `beside` set."""
        self.alternatives = alternatives
        self.cls = cls
        given = beside or {}
        self.beside = {name: key if isinstance(key, Key) else Key(key, name) for name, key in given.items()}
        self._stand_in = stand_in

    @property
    def words(self) -> str:
        return f"mapping with one of {', '.join(f'`{name}`' for name in self.alternatives)}"

    @property
    def stand_in(self) -> T:
        return self._stand_in

    def read(self, place: Place) -> T:
        if not isinstance(place.node, yaml.MappingNode):
            raise unexpected("a mapping", place)
        entries = place.entries()
        known = [*self.beside, *self.alternatives]
        for name in entries.keys() - set(known):
            entries[name].report(f"unknown key{suggestion(name, known)}")
        chosen = [name for name in self.alternatives if name in entries]
        if len(chosen) != 1:
            found = f"not {' and '.join(chosen)}" if chosen else "says none of them"
            raise UnreadableError(f"needs one of {', '.join(self.alternatives)}: {found}")
        beside = {
            key.field or name: _read_inside(key.kind, entries[name])
            for name, key in self.beside.items()
            if name in entries
        }
        alternative = self.alternatives[chosen[0]]
        made: T = alternative.make(_read_inside(alternative.kind, entries[chosen[0]]), **beside)
        return made

    def schema(self) -> JsonSchema:
        docs = field_docs(self.cls) if self.beside else {}
        shared = {
            name: {"description": docs.get(key.field or name, "")} | key.kind.schema()
            for name, key in self.beside.items()
        }
        return {
            "oneOf": [
                {
                    "description": class_doc(alternative.documented),
                    "type": "object",
                    "properties": shared | {name: alternative.kind.schema()},
                    "required": [name],
                    "additionalProperties": False,
                }
                for name, alternative in self.alternatives.items()
            ]
        }


class Either(Kind[Any]):
    """Text, or a mapping: each is read by a kind of its own."""

    def __init__(self, text: Kind[Any], mapping: Kind[Any]) -> None:
        self.text = text
        self.mapping = mapping

    @property
    def words(self) -> str:
        return f"{self.text.words}, or {self.mapping.words}"

    @property
    def stand_in(self) -> Any:
        return self.text.stand_in

    def read(self, place: Place) -> Any:
        if isinstance(place.node, yaml.MappingNode):
            return self.mapping.read(place)
        return self.text.read(place)

    def schema(self) -> JsonSchema:
        return {"anyOf": [self.text.schema(), self.mapping.schema()]}

    def render(self, value: Any) -> str:
        return self.text.render(value)


class Named(Kind[T]):
    """A kind that is defined elsewhere, by name: what refers to itself comes to an end so."""

    NESTING_MAX = 20

    def __init__(self, name: str, words: str, kind: Callable[[], Kind[T]]) -> None:
        self.name = name
        self.kind = kind
        self._words = words

    @property
    def words(self) -> str:
        return self._words

    @property
    def stand_in(self) -> T:
        return self.kind().stand_in

    def read(self, place: Place) -> T:
        if place.path.count(".") > self.NESTING_MAX:
            raise UnreadableError("nested too deeply")
        return self.kind().read(place)

    def schema(self) -> JsonSchema:
        return {"$ref": f"#/$defs/{self.name}"}


def _read_inside(kind: Kind[Any], place: Place) -> Any:
    """The value; what is unreadable is reported at its own place, and stood in for."""
    try:
        return kind.read(place)
    except UnreadableError as error:
        place.report(str(error))
        return kind.stand_in
