"""How a message is declared: a class whose attributes are the protocol's fields, with type and versions.

    class PartitionProduceData(Struct):
        index: int = int32()
        records: Buffer | None = record_bytes(nullable="0+")

The declaration is the only source: constructor, equality, encoder and decoder all come from it. Encoders
and decoders are source text generated and compiled at first use, one per message and version (`encoding`,
`decoding`).

Versions are written as the protocol writes them: `"3+"`, `"0-7"`, `"2"`; a field without versions is
there in all. A field that a version does not carry is dropped when it is ignorable or has its default,
and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

NO_UUID = UUID(int=0)


class VersionRange(NamedTuple):
    """Versions from `first` to `last`, both included; empty when `last` is smaller."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read `"3+"`, `"0-7"`, `"2"` or `"none"`. Raises ValueError for anything else."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), OPEN_END)
        first, separator, last = text.partition("-")
        return cls(int(first), int(last) if separator else int(first))


OPEN_END = 0x7FFF
ALL_VERSIONS = VersionRange(0, OPEN_END)
NO_VERSIONS = VersionRange(0, -1)


class Kind(Enum):
    """What a field is on the wire. Fixed-size kinds carry their format code for `struct`."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    ARRAY = "array"
    STRUCT = "struct"


FIXED_SIZES: Mapping[Kind, int] = {
    Kind.BOOL: 1,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.UINT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}
"""Bytes of the kinds that always take the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One declared field. `element` is an array's, `struct` a structure's; `tag` makes it a tagged field."""

    kind: Kind
    versions: VersionRange = ALL_VERSIONS
    nullable: VersionRange = NO_VERSIONS
    default: Any = None
    tag: int | None = None
    ignorable: bool = False
    element: Field | None = None
    struct: type[Struct] | None = None
    name: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the field is a single value of fixed size other than a UUID."""
        return self.kind in FIXED_SIZES and self.kind is not Kind.UUID

    @property
    def is_number_array(self) -> bool:
        """Whether the field is an array that one call of `struct` reads or writes."""
        return self.element is not None and self.element.is_number

    def nested(self) -> type[Struct]:
        """The structure of a STRUCT field."""
        assert self.struct is not None
        return self.struct


MADE_NEW: Any = type("MadeNew", (), {"__repr__": lambda _: "..."})()
"""Stands for a default that is made anew for each instance."""
UNSET: Any = object()
"""What a constructor's keyword holds when its field is to be made anew."""


def _declarator(kind: Kind, zero: Any) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        nullable: str = "none",
        default: Any = zero,
        tag: int | None = None,
        ignorable: bool = False,
    ) -> Any:
        return Field(
            kind=kind,
            versions=VersionRange.parse(versions),
            nullable=VersionRange.parse(nullable),
            default=default,
            tag=tag,
            ignorable=ignorable,
        )

    declare.__doc__ = f"Declare a field of kind {kind.name.lower()}; its default is {zero!r} unless given."
    return declare


boolean = _declarator(Kind.BOOL, False)
int8 = _declarator(Kind.INT8, 0)
int16 = _declarator(Kind.INT16, 0)
uint16 = _declarator(Kind.UINT16, 0)
int32 = _declarator(Kind.INT32, 0)
uint32 = _declarator(Kind.UINT32, 0)
int64 = _declarator(Kind.INT64, 0)
float64 = _declarator(Kind.FLOAT64, 0.0)
uuid = _declarator(Kind.UUID, NO_UUID)
string = _declarator(Kind.STRING, "")
bytestring = _declarator(Kind.BYTES, b"")
record_bytes = _declarator(Kind.RECORDS, None)
_array = _declarator(Kind.ARRAY, MADE_NEW)
_nested = _declarator(Kind.STRUCT, MADE_NEW)


def array(element: type[Struct] | Callable[[], Any], versions: str = "0+", **options: Any) -> Any:
    """Declare an array of a structure (`array(TopicData)`) or of a simple kind (`array(int32)`).

    Arrays of numbers are tuples when decoded and by default, as nobody changes them in place and a reader
    that makes thousands of them should not burden the garbage collector; any sequence can be given. Other
    arrays are lists.
    """
    if isinstance(element, type):
        inner = Field(kind=Kind.STRUCT, struct=element, default=MADE_NEW)
    else:
        inner = element()
    field: Field = _array(versions, **options)
    if field.default is MADE_NEW and inner.is_number:
        field = replace(field, default=())
    return replace(field, element=inner)


def nested(struct: type[Struct], versions: str = "0+", **options: Any) -> Any:
    """Declare a single nested structure."""
    return replace(_nested(versions, **options), struct=struct)


class StructType(type):
    """Turns the declared fields of a class body into slots; the fields themselves go to `__fields__`."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        body["__fields__"] = tuple(replace(field, name=key) for key, field in fields.items())
        return super().__new__(mcs, name, bases, body, **options)


class Struct(metaclass=StructType):
    """A structure of named fields: keyword constructor with defaults, equality, and a readable form."""

    __fields__: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        """Set the given fields, the others to their defaults. Raises TypeError for a name without field."""
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _is_same(field, getattr(self, field.name), getattr(other, field.name))
            for field in self.__fields__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field.name}={_readable(field, getattr(self, field.name))}" for field in self.__fields__)
        return f"{type(self).__name__}({', '.join(values)})"


def _readable(field: Field, value: Any) -> str:
    """The value for a log; of bytes, which may be large or secret, only how many they are."""
    if field.kind in (Kind.BYTES, Kind.RECORDS) and value is not None:
        return f"<{len(value)} bytes>"
    return repr(value)


def _is_same(field: Field, one: Any, other: Any) -> bool:
    if field.is_number_array and one is not None and other is not None:
        return tuple(one) == tuple(other)
    return bool(one == other)


def _compile_constructor(struct: type[Struct]) -> Callable[..., None]:
    """The constructor of `struct`, a keyword for each field, generated when the first instance is made."""
    namespace: dict[str, Any] = {"UNSET": UNSET}
    parameters, body = [], []
    for field in struct.__fields__:
        name, default = field.name, f"default_{field.name}"
        if field.default is not MADE_NEW:
            namespace[default] = field.default
            body.append(f"self.{name} = {name}")
        else:
            namespace[default] = UNSET
            namespace[f"make_{name}"] = list if field.kind is Kind.ARRAY else field.struct
            body.append(f"self.{name} = make_{name}() if {name} is UNSET else {name}")
        parameters.append(f"{name}={default}")
    keywords = f", *, {', '.join(parameters)}" if parameters else ""
    text = f"def __init__(self{keywords}):\n    " + "\n    ".join(body or ["pass"])
    exec(compile(text, f"<constructor of {struct.__name__}>", "exec"), namespace)
    constructor: Callable[..., None] = namespace["__init__"]
    constructor.__qualname__ = f"{struct.__qualname__}.__init__"
    return constructor
