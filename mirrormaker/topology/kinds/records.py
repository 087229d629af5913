"""Mappings with fixed keys, which become the dataclasses of the model.

Defaults are those of the dataclass. What was given is kept apart from what it becomes, so that the values of
one mapping can stand where another leaves them out, key by key (`merged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

import yaml

from mirrormaker.topology.document import NULL, Place, suggestion
from mirrormaker.topology.kinds.docs import field_docs
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, T, UnreadableError, unexpected

_MERGE_KEY = "<<"


@dataclass(frozen=True, slots=True)
class Given:
    """The values that one mapping gives, by field; those of records inside it are `Given` too."""

    place: Place
    values: Mapping[str, Any]

    def merged(self, fallback: Given) -> Given:
        """These, and what `fallback` gives beside."""
        values = dict(fallback.values)
        for name, value in self.values.items():
            other = values.get(name)
            if isinstance(value, Given) and isinstance(other, Given):
                values[name] = value.merged(other)
            else:
                values[name] = value
        return Given(self.place, values)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record: its kind, and the field that it sets, when that has another name."""

    kind: Kind[Any]
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """How a field follows from others while it is not given, and what that is, in words."""

    words: str
    of: Callable[[Given], Any]


class Record(Kind[T]):
    """A mapping that becomes a `cls`. Its keys are `keys`, in the order in which people read about them.

    `derived` are fields that follow from others, unless they are given. `check` looks at the whole, reports
    what does not fit together, and returns what is to be taken.
    """

    def __init__(
        self,
        cls: type[T],
        keys: Mapping[str, Kind[Any] | Key],
        *,
        derived: Mapping[str, Derived] | None = None,
        check: Callable[[T, Given], T] | None = None,
    ) -> None:
        self.cls = cls
        self.keys = {name: key if isinstance(key, Key) else Key(key, name) for name, key in keys.items()}
        self.derived = derived or {}
        self._check = check
        declared: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
        self._fields = [field.name for field in declared]
        self._defaults = _defaults_of(declared)

    @property
    def words(self) -> str:
        return "mapping"

    @property
    def stand_in(self) -> T:
        required = [name for name in self._fields if name not in self._defaults]
        return self.cls(**{name: self._stand_in_of(name) for name in required})

    def is_required(self, name: str) -> bool:
        """Whether the key `name` must be given."""
        field = self.field_of(name)
        return field not in self._defaults and field not in self.derived

    def default_of(self, name: str) -> Any:
        """What holds when the key `name` is left out; None when something must be said, or nothing holds."""
        default = self._defaults.get(self.field_of(name))
        return default() if default is not None else None

    def field_of(self, name: str) -> str:
        """The field that the key `name` sets."""
        return self.keys[name].field or name

    def read(self, place: Place) -> T:
        return self.build(self.take(place))

    def take(self, place: Place, *, without: tuple[str, ...] = ()) -> Given:
        """What a mapping gives, every complaint told. Those of the keys `without` are not known in it, and
        none is required; otherwise those without a default are.
        """
        if not isinstance(place.node, yaml.MappingNode):
            raise unexpected("a mapping", place)
        entries = place.entries()
        known = [name for name in self.keys if name not in without]
        values: dict[str, Any] = {}
        for name in known:
            if name in entries:
                self._take_key(name, entries[name], values)
            elif self.is_required(name) and not without:
                place.report_missing(name)
        for name in entries.keys() - set(known):
            entries[name].report(self._unknown(name, known, name in without))
        return Given(place, values)

    def build(self, given: Given) -> T:
        """The value; stand-ins take the place of required ones that are missing or unreadable."""
        values: dict[str, Any] = {}
        for name, key in self.keys.items():
            field = self.field_of(name)
            if field in given.values:
                values[field] = _built(key.kind, given.values[field])
        for name in self._fields:
            if name not in values and name in self.derived:
                values[name] = self.derived[name].of(given)
            elif name not in values and name not in self._defaults:
                values[name] = self._stand_in_of(name)
        built = self.cls(**values)
        return self._check(built, given) if self._check is not None else built

    def schema(self, *, without: tuple[str, ...] = ()) -> JsonSchema:
        properties = {name: self._schema_of(name) for name in self.keys if name not in without}
        required = [name for name in self.keys if self.is_required(name) and not without]
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        } | ({"required": required} if required else {})

    def _take_key(self, name: str, place: Place, values: dict[str, Any]) -> None:
        key, field = self.keys[name], self.field_of(name)
        if field in values:
            place.report("says the same as another key here: leave one of them out")
        if place.node.tag == NULL and self.is_nullable(name):
            values[field] = self.default_of(name)
            return
        try:
            values[field] = key.kind.take(place) if isinstance(key.kind, Record) else key.kind.read(place)
        except UnreadableError as error:
            place.report(str(error))

    def is_nullable(self, name: str) -> bool:
        """Whether `null` may stand under the key, for "none"; so a route can take back a default. Where two
        keys set one field, either may have a null that is a value.
        """
        field, default = self.field_of(name), self.default_of(name)
        is_empty = field == name and isinstance(default, tuple | Mapping) and not default
        return field in self._defaults and (default is None or is_empty)

    def doc_of(self, name: str) -> str:
        """What the key `name` does, in one line."""
        return field_docs(self.cls).get(self.field_of(name), "")

    def _schema_of(self, name: str) -> JsonSchema:
        schema = self.keys[name].kind.schema()
        if self.is_nullable(name):
            schema = _or_null(schema)
        return {"description": self.doc_of(name), **schema}

    def _unknown(self, name: str, known: list[str], misplaced: bool) -> str:
        if name == _MERGE_KEY:
            return "merge keys are not read: say under 'defaults' what routes have in common"
        if misplaced:
            return "every route says this itself"
        inside = [path for path in self._paths_inside() if name in (path[-1], "_".join(path))]
        if inside:
            return f"unknown key; did you mean {' or '.join(repr('.'.join(path)) for path in inside)}?"
        return f"unknown key{suggestion(name, known)}"

    def _paths_inside(self) -> Iterator[tuple[str, ...]]:
        """Of all keys of the records in this one: where somebody may have meant a key of this one's to be."""
        for name, key in self.keys.items():
            if isinstance(key.kind, Record):
                yield from ((name, inner) for inner in key.kind.keys)
                yield from ((name, *path) for path in key.kind._paths_inside())

    def _stand_in_of(self, field: str) -> Any:
        for name, key in self.keys.items():
            if self.field_of(name) == field:
                return key.kind.stand_in
        return ""


def _or_null(schema: JsonSchema) -> JsonSchema:
    """An editor tells what is wrong inside a value by its place, unless there are several schemas for it."""
    kind = schema.get("type")
    if isinstance(kind, str) and not schema.keys() & {"enum", "const"}:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _built(kind: Kind[Any], value: Any) -> Any:
    return kind.build(value) if isinstance(kind, Record) and isinstance(value, Given) else value


class Taken(Kind[Given | None]):
    """What a record is given, before defaults are added; None where that is no mapping."""

    def __init__(self, record: Record[Any], *, without: tuple[str, ...] = ()) -> None:
        self.record = record
        self.without = without

    @property
    def words(self) -> str:
        return self.record.words

    @property
    def stand_in(self) -> Given | None:
        return None

    def read(self, place: Place) -> Given | None:
        return self.record.take(place, without=self.without)

    def schema(self) -> JsonSchema:
        return self.record.schema(without=self.without)


def _defaults_of(declared: tuple[Field[Any], ...]) -> dict[str, Callable[[], Any]]:
    """How each field gets its default, for those that have one."""
    found: dict[str, Callable[[], Any]] = {}
    for field in declared:
        if field.default is not MISSING:
            found[field.name] = lambda value=field.default: value  # type: ignore[misc]
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory
    return found
