"""Schemas of Avro as they stand in a topology, and what Spark calls the types of their values. Pure.

A union of a type and null is that type, and int with long, or float with double, the wider of the two; any
other union is a struct `member0`, `member1`, ... one of which is not null. That is how Spark's own reader of
Avro has it, as are logical types: date, timestamps, decimal. Types that hold themselves cannot be columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark.sql import types as t

from broker.errors import ConfigurationError


class Primitive(Enum):
    """What has no parts."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


class Unit(Enum):
    """What numbers stand for that are times."""

    DAYS = "date"
    MILLISECONDS = "timestamp-millis"
    MICROSECONDS = "timestamp-micros"
    LOCAL_MILLISECONDS = "local-timestamp-millis"
    LOCAL_MICROSECONDS = "local-timestamp-micros"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitiveType:
    """A primitive; a number may be a time."""

    kind: Primitive
    unit: Unit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedType:
    """So many bytes."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalType:
    """A number of `scale` digits behind the point, in bytes, of which there are `size` or as many as said."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType:
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayType:
    items: AvroType


@dataclass(frozen=True, slots=True, kw_only=True)
class MapType:
    values: AvroType


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    fields: Mapping[str, AvroType]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionType:
    branches: tuple[AvroType, ...]

    @property
    def wide(self) -> Primitive | None:
        """What its numbers become where all branches but null are such."""
        kinds = {each.kind for each in self.values if isinstance(each, PrimitiveType) and each.unit is None}
        if len(kinds) != len(self.values):
            return None
        widths = {frozenset({Primitive.INT, Primitive.LONG}): Primitive.LONG}
        widths[frozenset({Primitive.FLOAT, Primitive.DOUBLE})] = Primitive.DOUBLE
        return widths.get(frozenset(kinds))

    @property
    def values(self) -> tuple[AvroType, ...]:
        """The branches but null."""
        return tuple(each for each in self.branches if each != _NULL)


AvroType = PrimitiveType | FixedType | DecimalType | EnumType | ArrayType | MapType | RecordType | UnionType
_NULL = PrimitiveType(kind=Primitive.NULL)
_OF_UNIT = {
    Unit.DAYS: Primitive.INT,
    Unit.MILLISECONDS: Primitive.LONG,
    Unit.MICROSECONDS: Primitive.LONG,
    Unit.LOCAL_MILLISECONDS: Primitive.LONG,
    Unit.LOCAL_MICROSECONDS: Primitive.LONG,
}
_DIGITS_MAX = 38
_DEPTH_MAX = 100
"""Types within types, where those that read them and their values call themselves."""
_TOO_DEEP = f"more than {_DEPTH_MAX} types within each other"


def parse_schema(text: str) -> AvroType:
    """What a schema in JSON says. Raises ConfigurationError."""
    try:
        return _Parser().parse(json.loads(text), "")
    except ValueError as error:
        raise ConfigurationError([f"no schema of Avro's: {error}"]) from error
    except RecursionError as error:
        raise ConfigurationError([f"no schema of Avro's: {_TOO_DEEP}"]) from error


class _Parser:
    """Keeps the types that have names."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._depth = 0

    def parse(self, said: Any, namespace: str) -> AvroType:
        if self._depth == _DEPTH_MAX:
            raise ValueError(_TOO_DEEP)
        self._depth += 1
        found = self._parse(said, namespace)
        self._depth -= 1
        return found

    def _parse(self, said: Any, namespace: str) -> AvroType:
        if isinstance(said, list):
            return UnionType(branches=tuple(self.parse(each, namespace) for each in said))
        if isinstance(said, str):
            return self._by_name(said, namespace)
        if not isinstance(said, dict) or "type" not in said:
            raise ValueError(f"{json.dumps(said)} is no type")
        kind = said["type"]
        match kind:
            case "record" | "enum" | "fixed":
                return self._named_type(kind, said, namespace)
            case "array":
                return ArrayType(items=self.parse(said.get("items"), namespace))
            case "map":
                return MapType(values=self.parse(said.get("values"), namespace))
        return _logical(self.parse(kind, namespace), said)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in {each.value for each in Primitive}:
            return PrimitiveType(kind=Primitive(name))
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for known in (full, name):
            if known in self._named:
                found = self._named[known]
                if found is None:
                    raise ValueError(f"{name} holds itself, which no column can")
                return found
        raise ValueError(f"{name!r} is no type")

    def _named_type(self, kind: str, said: Mapping[str, Any], namespace: str) -> AvroType:
        name = said.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"a {kind} has no name")
        inside = name.rpartition(".")[0] if "." in name else str(said.get("namespace", namespace))
        full = name if "." in name or not inside else f"{inside}.{name}"
        self._named[full] = None
        found: AvroType
        match kind:
            case "record":
                found = RecordType(fields=self._fields(said.get("fields"), full, inside))
            case "enum":
                found = EnumType(symbols=_symbols(said.get("symbols"), full))
            case _:
                if not isinstance(said.get("size"), int) or said["size"] < 0:
                    raise ValueError(f"{full} has no size")
                found = _logical(FixedType(size=said["size"]), said)
        self._named[full] = found
        return found

    def _fields(self, said: Any, name: str, namespace: str) -> dict[str, AvroType]:
        if not isinstance(said, list) or not said:
            raise ValueError(f"{name} has no fields")
        found: dict[str, AvroType] = {}
        for field in said:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
                raise ValueError(f"{json.dumps(field)} is no field of {name}")
            if field["name"] in found:
                raise ValueError(f"{name} has two fields {field['name']!r}")
            found[field["name"]] = self.parse(field["type"], namespace)
        return found


def _symbols(said: Any, name: str) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise ValueError(f"{name} has no symbols")
    return tuple(said)


def _logical(found: AvroType, said: Mapping[str, Any]) -> AvroType:
    """What a logical type makes of one; those that are not known, or do not fit, are passed over."""
    name = said.get("logicalType")
    if name == "decimal" and (isinstance(found, FixedType) or found == PrimitiveType(kind=Primitive.BYTES)):
        precision, scale = said.get("precision"), said.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            raise ValueError(f"precision and scale of a decimal are numbers: {json.dumps(said)}")
        if 0 < precision <= _DIGITS_MAX and 0 <= scale <= precision:
            size = found.size if isinstance(found, FixedType) else None
            return DecimalType(precision=precision, scale=scale, size=size)
        raise ValueError(f"a decimal has 1 to {_DIGITS_MAX} digits: {json.dumps(said)}")
    units = {each.value: each for each in Unit}
    if isinstance(found, PrimitiveType) and name in units and found.kind is _OF_UNIT[units[name]]:
        return PrimitiveType(kind=found.kind, unit=units[name])
    return found


def spark_type(avro: AvroType) -> t.DataType:
    """The type of a column with values of `avro`."""
    match avro:
        case PrimitiveType(unit=Unit.DAYS):
            return t.DateType()
        case PrimitiveType(unit=Unit.MILLISECONDS | Unit.MICROSECONDS):
            return t.TimestampType()
        case PrimitiveType(unit=Unit.LOCAL_MILLISECONDS | Unit.LOCAL_MICROSECONDS):
            return t.TimestampNTZType()
        case PrimitiveType(kind=kind):
            return _PRIMITIVES[kind]
        case FixedType():
            return t.BinaryType()
        case DecimalType(precision=precision, scale=scale):
            return t.DecimalType(precision, scale)
        case EnumType():
            return t.StringType()
        case ArrayType(items=items):
            return t.ArrayType(spark_type(items))
        case MapType(values=values):
            return t.MapType(t.StringType(), spark_type(values))
        case RecordType(fields=fields):
            return t.StructType([t.StructField(name, spark_type(each)) for name, each in fields.items()])
        case UnionType(values=(only,)):
            return spark_type(only)
        case UnionType(values=values):
            if avro.wide is not None:
                return _PRIMITIVES[avro.wide]
            members = enumerate(map(spark_type, values))
            return t.StructType([t.StructField(f"member{number}", each) for number, each in members])


_PRIMITIVES: Mapping[Primitive, t.DataType] = {
    Primitive.NULL: t.NullType(),
    Primitive.BOOLEAN: t.BooleanType(),
    Primitive.INT: t.IntegerType(),
    Primitive.LONG: t.LongType(),
    Primitive.FLOAT: t.FloatType(),
    Primitive.DOUBLE: t.DoubleType(),
    Primitive.BYTES: t.BinaryType(),
    Primitive.STRING: t.StringType(),
}
